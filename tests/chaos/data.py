# SPDX-License-Identifier: MIT
"""Small data sets of each format that the trainer reads, the same from each run to the next."""
import gzip
import os
import random
import struct
import zipfile


def idx(path, shape, values):
    with open(path, "wb") as file:
        file.write(struct.pack(">HBB", 0, 8, len(shape)) + struct.pack(f">{len(shape)}I", *shape) + values)


def images(directory, count, side, tests=20):
    """IDX files as MNIST has them, with labels that can be learnt."""
    draw = random.Random(f"{count} {side}")
    os.makedirs(directory, exist_ok=True)
    for name, number in (("train", count), ("t10k", tests)):
        pixels = draw.randbytes(number * side * side)
        labels = bytes(pixels[i * side * side] * 10 // 256 for i in range(number))
        idx(os.path.join(directory, name + "-images-idx3-ubyte"), (number, side, side), pixels)
        idx(os.path.join(directory, name + "-labels-idx1-ubyte"), (number,), labels)
    return directory


def npy_bytes(kind, shape, values):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, tuple(shape))
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + values


def numbers(directory):
    """X.npy,Y.npy and all.npz: 40 samples of 6 numbers, 3 classes."""
    draw = random.Random(1)
    os.makedirs(directory, exist_ok=True)
    x = npy_bytes("<f4", (40, 6), struct.pack("<240f", *(draw.gauss(0, 1) for _ in range(240))))
    y = npy_bytes("<i8", (40,), struct.pack("<40q", *(draw.randrange(3) for _ in range(40))))
    for name, data in (("X.npy", x), ("Y.npy", y)):
        with open(os.path.join(directory, name), "wb") as file:
            file.write(data)
    with zipfile.ZipFile(os.path.join(directory, "all.npz"), "w") as archive:
        for name, data in (("x_train.npy", x), ("y_train.npy", y), ("x_test.npy", x), ("y_test.npy", y)):
            archive.writestr(name, data, zipfile.ZIP_DEFLATED if name[0] == "x" else zipfile.ZIP_STORED)
    return directory


def cifar(directory):
    draw = random.Random(2)
    os.makedirs(directory, exist_ok=True)
    for name, count in [(f"data_batch_{i}.bin", 8) for i in range(1, 6)] + [("test_batch.bin", 4)]:
        with open(os.path.join(directory, name), "wb") as file:
            for _ in range(count):
                file.write(bytes([draw.randrange(10)]) + draw.randbytes(3072))
    return directory


def text(path, lines=200):
    with open(path, "w") as file:
        for i in range(lines):
            file.write(f"line {i}: the square of {i} is {i * i}, its cube {i ** 3}.\n")
    return path


def lines(path):
    """JSON lines, a document each."""
    text = "".join('{"id": %d, "text": "the square of %d\\nis %d \\u00e9"}\n' % (i, i, i * i) for i in range(40)).encode()
    with gzip.open(path, "wb") if path.endswith(".gz") else open(path, "wb") as file:
        file.write(text)
    return path


def tokens(path):
    """llm.c's file of GPT-2 tokens."""
    draw = random.Random(3)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, 1000, *([0] * 253)))
        file.write(struct.pack("<1000H", *(draw.randrange(60) for _ in range(1000))))
    return path
