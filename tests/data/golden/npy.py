#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes arrays and archives with NumPy itself, for check_npy to read.

usage: npy.py DIRECTORY [SEED]

DIRECTORY/data/golden gets npy.txt and the files that it names in npy/. A line is one set: "train" or "test", what --data is,
samples, classes (0: no labels), the dimensions of a sample, a colon; then for each sample its label (-, when there is
none) and its values, as the hexadecimal of the bits of a float32. SEED chooses other numbers than the committed ones.
"""
import os
import sys

import numpy as np

OUT = os.path.join(sys.argv[1], "data", "golden")
rng = np.random.RandomState(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
os.makedirs(os.path.join(OUT, "npy"), exist_ok=True)
lines = []


def path(name):
    return os.path.join(OUT, "npy", name)


def moments(x, channel_axis):
    """Mean and deviation of pixel/255 for each channel, from exact sums."""
    planes = [x] if channel_axis is None else list(np.moveaxis(x, channel_axis, 0))
    result = []
    for plane in planes:
        plane = plane.astype(np.int64)
        n, total, squares = float(plane.size), float(plane.sum()), float((plane * plane).sum())
        average = total / n
        variance = squares / n - average * average
        result.append((average / 255, np.sqrt(variance) / 255 if variance > 0 else 1.0))
    return result


def seen(x, train):
    """Samples as the trainer sees them: floats, channels first."""
    axis = None
    if x.ndim == 4:
        last = x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4)
        axis = 3 if last else 1
        if x.shape[axis] > 4:
            axis = None
    if x.dtype == np.uint8:
        scale = moments(train, axis)
        planes = [x] if axis is None else list(np.moveaxis(x, axis, 0))
        planes = [((p / 255.0 - mean) / std).astype(np.float32) for p, (mean, std) in zip(planes, scale)]
        values = planes[0] if axis is None else np.stack(planes, 1)
    else:
        values = x.astype(np.float32)
        if axis == 3:
            values = np.moveaxis(values, 3, 1)
    if values.ndim == 3:
        values = values[:, None]
    return values if values.ndim > 1 else values[:, None]


def line(kind, data, x, y, train, classes):
    values = np.ascontiguousarray(seen(x, train))
    answer = []
    for i, sample in enumerate(values):
        answer.append("-" if y is None else str(int(y.flat[i])))
        answer += ["%08x" % b for b in sample.ravel().view(np.uint32)]
    lines.append("%s %s %d %d %s : %s" % (kind, data, len(x), classes, "x".join(map(str, values.shape[1:])), " ".join(answer)))


def classes_of(y):
    return 0 if y is None else int(y.max()) + 1


def numbers(shape, dtype):
    if dtype == "?":
        return rng.randint(0, 2, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        return (rng.standard_normal(shape) * 10.0 ** rng.randint(-5, 4, shape)).astype(dtype)
    info = np.iinfo(dtype)
    return rng.randint(max(info.min, -2**40), min(info.max, 2**40), shape, dtype=np.int64).astype(dtype)


def pair(name, shape, dtype, label_dtype="u1", label_shape=None):
    x, y = numbers(shape, dtype), rng.randint(0, 5, label_shape or shape[:1]).astype(label_dtype)
    np.save(path(name + ".npy"), x)
    np.save(path(name + "-y.npy"), y)
    line("train", "%s.npy,%s-y.npy" % (name, name), x, y, x, classes_of(y))


for dtype in ("<f2", "<f4", "<f8", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "?"):
    pair(np.dtype(dtype).name, (3, 4), dtype)
for dtype in ("<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "?"):
    pair("labels-" + np.dtype(dtype).name, (3, 2), "<f4", dtype)
pair("labels-column", (3, 2), "<f4", "<i8", (3, 1))
pair("one-value", (5,), "<f4")
pair("grey", (4, 3, 5), "u1")
pair("grey-float", (4, 3, 5), "<f4")
pair("rgb-first", (3, 3, 2, 5), "u1")
pair("rgb-last", (3, 5, 2, 3), "u1")
pair("rgb-last-float", (3, 5, 2, 3), "<f8")
pair("rgb-last-float4", (3, 5, 2, 4), "<f4")
pair("many-channels", (2, 6, 2, 2), "u1")
half = np.arange(0, 0x7C00, 97, dtype=np.uint16).view(np.float16)  # with the numbers near zero
half = np.concatenate([half, -half])[:320].reshape(4, 80)
np.save(path("half.npy"), half)
line("train", "half.npy", half, None, half, 0)

for version in ((1, 0), (2, 0), (3, 0)):
    x, name = numbers((2, 3), "<f4"), "version-%d.npy" % version[0]
    with open(path(name), "wb") as out:
        np.lib.format.write_array(out, x, version=version)
    line("train", name, x, None, x, 0)
x = numbers((3, 2), "<f4")
np.save(path("fortran-one.npy"), np.asfortranarray(x[:, :1])[:, 0])
line("train", "fortran-one.npy", x[:, 0], None, x[:, 0], 0)

for save, ending in ((np.savez, "stored"), (np.savez_compressed, "deflated")):
    x, y, test_x, test_y = numbers((4, 3, 5), "u1"), np.arange(4) % 3, numbers((2, 3, 5), "u1"), np.array([2, 0])
    name = "keras-%s.npz" % ending
    save(path(name), x_train=x, y_train=y, x_test=test_x, y_test=test_y)
    line("train", name, x, y, x, 3)
    line("test", name, test_x, test_y, x, 3)
    name = "medmnist-%s.npz" % ending
    x, y = numbers((3, 5, 4, 3), "u1"), np.array([[0], [1], [6]], dtype=np.uint8)
    save(path(name), train_images=x, train_labels=y, val_images=x[:1], val_labels=y[:1], test_images=x[1:], test_labels=y[1:])
    line("train", name, x, y, x, 7)
    line("test", name, x[1:], y[1:], x, 7)
    name = "plain-%s.npz" % ending
    x, y = numbers((3, 4), "<f4"), np.array([1, 0, 1])
    save(path(name), x=x, y=y)
    line("train", name, x, y, x, 2)
    name = "no-labels-%s.npz" % ending
    save(path(name), x=x)
    line("train", name, x, None, x, 0)

# Where the first size may be a number of channels, it is, whatever the last one is.
for shape in ((2, 3, 3, 3), (2, 3, 5, 3), (2, 1, 4, 3), (2, 4, 2, 1), (2, 3, 2, 4), (2, 2, 3, 1)):
    for dtype in ("u1", "<f4"):
        pair("channels-%s-%s" % ("x".join(map(str, shape[1:])), np.dtype(dtype).name), shape, dtype)

# Arrays by any usual name; of several that would do, those for training, in small letters, of the likelier word.
x, y, test_x, test_y = numbers((4, 3), "<f4"), np.array([2, 0, 1, 1]), numbers((2, 3), "<f4"), np.array([1, 2])
for name, arrays, has_test in (
        ("capitals", {"X_train": x, "Y_train": y, "X_test": test_x, "Y_test": test_y}, True),
        ("joined", {"trainX": x, "trainY": y, "valX": test_x, "valY": test_y}, True),
        ("validation", {"train-images": x, "train-labels": y, "validation-images": test_x, "validation-labels": test_y}, True),
        ("short", {"X": x, "y": y, "X_test": test_x, "y_test": test_y}, True),
        ("sklearn", {"DESCR": np.array([7]), "data": x, "target": y}, False),
        ("words", {"features": x, "label": y}, False),
        ("positions", {"arr_0": x, "arr_1": y}, False),
        ("several", {"data": test_x, "X": test_x, "X_TRAIN": test_x, "x_train": x, "targets": test_y, "y_train": y}, False)):
    np.savez(path("names-%s.npz" % name), **arrays)
    line("train", "names-%s.npz" % name, x, y, x, 3)
    if has_test:
        line("test", "names-%s.npz" % name, test_x, test_y, x, 3)
np.savez(path("none-fits.npz"), weights=x, ids=y, notes=np.array(["text"]))
np.savez_compressed(path("none-fits-deflated.npz"), weights=x)

with open(os.path.join(OUT, "npy.txt"), "w", encoding="ascii") as out:
    out.write("\n".join(lines) + "\n")
