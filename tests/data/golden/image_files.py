#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes images with Pillow, and what Pillow makes of them, for check_images to compare with.

usage: image_files.py DIRECTORY [SEED]

DIRECTORY/data/golden gets image_files.txt and the files that it names in image_files/. A line is one image: its file, the size asked for
(height, width), the channels asked for, perhaps "reduced" for a JPEG that is decoded smaller, by draft(), a colon, then the bytes of the result in hexadecimal, channel after channel. It is
made as torchvision's Resize (to what just covers the size) and CenterCrop do it. SEED chooses other images than the
committed ones.
"""
import io
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

OUT = os.path.join(sys.argv[1], "data", "golden")
rng = np.random.RandomState(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
os.makedirs(os.path.join(OUT, "image_files"), exist_ok=True)
lines = []


def picture(width, height, channels):
    """Smooth shapes and some noise, in bytes."""
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for _ in range(channels):
        a, b, c = rng.uniform(0.05, 0.6, 3)
        planes.append(128 + 90 * np.sin(a * x + b * y) + 30 * np.cos(c * x) + rng.uniform(-20, 20, x.shape))
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def seen(image, height, width):
    """Resize and CenterCrop, in the words of torchvision, rows first: Pillow 13 begins with the columns where the height shrinks
    by more than twice as many pixels as the width, which rounds other values."""
    w, h = image.size
    if w * height <= h * width:
        size = (width, int(width * h / w))
    else:
        size = (int(height * w / h), height)
    image = image.resize((size[0], h), Image.BILINEAR).resize(size, Image.BILINEAR)
    top, left = int(round((size[1] - height) / 2.0)), int(round((size[0] - width) / 2.0))
    return image.crop((left, top, left + width, top + height))


def reduced_case(name, sizes):
    for height, width in sizes:
        image = Image.open(os.path.join(OUT, "image_files", name))
        image.draft(None, (height, width) if image.getexif().get(0x0112, 1) > 4 else (width, height))
        pixels = np.asarray(seen(ImageOps.exif_transpose(image).convert("RGB"), height, width))
        lines.append(f"{name} {height} {width} 3 reduced : {np.moveaxis(pixels, 2, 0).tobytes().hex()}")


def case(name, sizes, source=None, modes=("L", "RGB")):
    """source: the image that the file shows, where Pillow reads another"""
    image = source or ImageOps.exif_transpose(Image.open(os.path.join(OUT, "image_files", name)))
    for height, width in sizes:
        for mode in modes:
            pixels = np.asarray(seen(image.convert("RGB").convert(mode) if mode == "L" else image.convert(mode), height, width))
            planes = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
            assert planes.shape[1:] == (height, width)
            lines.append(f"{name} {height} {width} {len(planes)} : {planes.tobytes().hex()}")


def save(name, image, **options):
    image.save(os.path.join(OUT, "image_files", name), **options)


def png(name, pixels, depth, kind, interlaced=False):
    """A PNG of kinds that Pillow does not write; pixels are whole numbers of so many bits, depth 8 or 16."""
    height, width = pixels.shape[:2]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x, y, step_x, step_y in passes if interlaced else [(0, 0, 1, 1)]:
        part = pixels[y::step_y, x::step_x]
        if part.size:
            data += b"".join(b"\0" + row.astype(">u2" if depth == 16 else "u1").tobytes() for row in part)

    def chunk(tag, body):
        return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))

    with open(os.path.join(OUT, "image_files", name), "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)))
        out.write(chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


rgb = Image.fromarray(picture(23, 17, 3))
grey = Image.fromarray(picture(19, 26, 1)[:, :, 0])

# Every way to scale: as it is, smaller, larger, cut in one direction, one pixel, odd and even rests.
save("rgb.png", rgb)
case("rgb.png", [(17, 23), (8, 8), (7, 8), (8, 11), (16, 16), (17, 17), (20, 20), (1, 1), (17, 5), (5, 23), (3, 4)])
save("grey.png", grey)
case("grey.png", [(26, 19), (9, 9), (10, 7), (30, 30)])
save("row.png", Image.fromarray(picture(40, 1, 3)))
case("row.png", [(1, 40), (4, 4), (1, 9)])
save("column.png", Image.fromarray(picture(1, 41, 1)[:, :, 0]))
case("column.png", [(5, 5), (6, 1)])
save("pixel.png", Image.fromarray(picture(1, 1, 3)))
case("pixel.png", [(1, 1), (3, 2)])

for i in range(6):
    width, height = rng.randint(1, 60, 2)
    save(f"any-{i}.png", Image.fromarray(picture(width, height, 1)[:, :, 0]))
    case(f"any-{i}.png", [tuple(rng.randint(1, 20, 2))], modes=("L",))

# Every kind of PNG.
one_size = [(8, 8)]
save("bits-1.png", grey.point(lambda v: 255 * (v > 128)).convert("1"))
case("bits-1.png", one_size)
save("palette.png", rgb.quantize(40))
case("palette.png", one_size)
save("palette-2-bits.png", rgb.quantize(4), bits=2)
case("palette-2-bits.png", one_size)
shades = grey.quantize(16)
save("palette-grey.png", shades)
case("palette-grey.png", one_size)
save("palette-transparent.png", rgb.quantize(40), transparency=3)
case("palette-transparent.png", one_size)
save("rgba.png", Image.fromarray(picture(14, 15, 4), "RGBA"))
case("rgba.png", one_size)
save("grey-alpha.png", Image.fromarray(picture(14, 15, 2), "LA"))
case("grey-alpha.png", one_size)
save("rgb-transparent.png", rgb, transparency=(10, 20, 30))
case("rgb-transparent.png", one_size)
deep = rng.randint(0, 65536, (9, 11, 3))
png("rgb-16.png", deep, 16, 2)
case("rgb-16.png", one_size, Image.fromarray((deep >> 8).astype(np.uint8)))
png("grey-16.png", deep[:, :, 0], 16, 0)
case("grey-16.png", one_size, Image.fromarray((deep[:, :, 0] >> 8).astype(np.uint8)))
png("rgba-16.png", np.concatenate([deep, deep[:, :, :1]], 2), 16, 6)
case("rgba-16.png", one_size, Image.fromarray((deep >> 8).astype(np.uint8)))
png("interlaced.png", np.asarray(rgb), 8, 2, True)
case("interlaced.png", one_size)
png("interlaced-grey.png", np.asarray(grey), 8, 0, True)
case("interlaced-grey.png", one_size)
noise = io.BytesIO()
rgb.save(noise, "PNG", icc_profile=bytes(rng.randint(0, 256, 300).astype(np.uint8)))
with open(os.path.join(OUT, "image_files", "profile.png"), "wb") as file:
    file.write(noise.getvalue())
case("profile.png", one_size)

# Every kind of JPEG.
save("rgb.jpg", rgb, quality=90)
case("rgb.jpg", [(17, 23), (8, 8), (20, 20)])
save("rgb-444.jpg", rgb, quality=80, subsampling=0)
case("rgb-444.jpg", one_size)
save("rgb-422.jpg", rgb, quality=80, subsampling=1)
case("rgb-422.jpg", one_size)
save("progressive.jpg", rgb, quality=80, progressive=True)
case("progressive.jpg", one_size)
save("restarts.jpg", rgb, quality=80, restart_marker_rows=1)
case("restarts.jpg", one_size)
save("grey.jpeg", grey, quality=80)
case("grey.jpeg", one_size)
save("cmyk.jpg", Image.fromarray(picture(20, 12, 4), "CMYK"), quality=85)
case("cmyk.jpg", one_size)
exif = Image.Exif()
exif[0x0112] = 6  # orientation: turned to the right to be shown
save("turned.jpg", rgb, quality=80, exif=exif)
case("turned.jpg", one_size)
save("named-wrongly.png", rgb, quality=80, format="JPEG")
case("named-wrongly.png", one_size)

# All ways to turn and mirror, in two of the formats that say so, and in the rest one.
small = Image.fromarray(picture(9, 6, 3))
for how in range(1, 9):
    exif[0x0112] = how
    save(f"turned-{how}.jpg", small, quality=95, exif=exif)
    case(f"turned-{how}.jpg", [(9, 6), (6, 9)], modes=("RGB",))
    save(f"turned-{how}.tif", small, tiffinfo={0x0112: how})
    case(f"turned-{how}.tif", [(9, 6), (6, 9)], modes=("RGB",))
exif[0x0112] = 8
save("turned.png", small, exif=exif)
case("turned.png", [(9, 6)])
save("turned.webp", small, lossless=True, exif=exif)
case("turned.webp", [(9, 6)])

# Kinds of the other formats.
save("rgb.webp", rgb, quality=80)
case("rgb.webp", [(17, 23), (8, 8)])
save("lossless.webp", rgb, lossless=True)
case("lossless.webp", one_size)
save("alpha.webp", Image.fromarray(picture(14, 15, 4), "RGBA"), lossless=True, exact=True)
case("alpha.webp", one_size)
save("palette.gif", rgb.quantize(40))
case("palette.gif", [(17, 23), (8, 8)])
save("grey.gif", grey)
case("grey.gif", one_size)
save("interlaced.gif", rgb.quantize(256), interlace=1)
case("interlaced.gif", [(17, 23)])
frames = [Image.fromarray(picture(12, 9, 3)).quantize(16) for _ in range(3)]
save("animated.gif", frames[0], save_all=True, append_images=frames[1:], transparency=3, disposal=2)
case("animated.gif", [(9, 12)])
for name, image in (("rgb", rgb), ("grey", grey), ("palette", rgb.quantize(40)), ("bits-1", grey.convert("1"))):
    save(name + ".bmp", image)
    case(name + ".bmp", one_size)
    for packing in (None, "tiff_lzw", "tiff_adobe_deflate") if name == "rgb" else (None,):
        file = name + ("-" + packing if packing else "") + ".tiff"
        save(file, image, compression=packing)
        case(file, one_size)
save("alpha.tif", Image.fromarray(picture(14, 15, 4), "RGBA"))
case("alpha.tif", one_size)


def bmp(name, bits, words, masks=(), top_down=False):
    """A BMP of kinds that Pillow does not write; words are the pixels."""
    height, width = words.shape
    rows = [row.astype("<u2" if bits == 16 else "<u4").tobytes() for row in (words if top_down else words[::-1])]
    pixels = b"".join(row + bytes(-len(row) % 4) for row in rows)
    extra = struct.pack("<%dI" % len(masks), *masks)
    head = struct.pack("<IiiHHIIiiII", 40, width, -height if top_down else height, 1, bits, 3 if masks else 0, len(pixels), 0, 0, 0, 0)
    with open(os.path.join(OUT, "image_files", name), "wb") as out:
        out.write(b"BM" + struct.pack("<IHHI", 54 + len(extra) + len(pixels), 0, 0, 54 + len(extra)) + head + extra + pixels)


bmp("555.bmp", 16, rng.randint(0, 1 << 15, (7, 9)))
case("555.bmp", one_size)
bmp("565.bmp", 16, rng.randint(0, 1 << 16, (7, 9)), (0xF800, 0x7E0, 0x1F))
case("565.bmp", one_size)
bmp("32.bmp", 32, rng.randint(0, 1 << 24, (7, 9)), top_down=True)
case("32.bmp", one_size)

reduced_case("rgb.jpg", [(8, 8), (4, 5), (2, 2), (9, 20)])
for name in ("rgb-444.jpg", "rgb-422.jpg", "progressive.jpg", "grey.jpeg", "turned.jpg", "cmyk.jpg"):
    reduced_case(name, [(5, 7), (3, 2)])
reduced_case("turned-7.jpg", [(3, 2)])

with open(os.path.join(OUT, "image_files.txt"), "w") as file:
    file.write("\n".join(lines) + "\n")
