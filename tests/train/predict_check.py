# SPDX-License-Identifier: MIT
"""usage: predict_check.py data DIRECTORY            makes samples: x.npy, y.npy; tx.npy, ty.npy
          predict_check.py images DIRECTORY          makes images of two classes, which tell them apart by their grey
          predict_check.py names FILE                checks what is predicted of them
          predict_check.py compare DIRECTORY MODEL   PyTorch with the weights w predicts what p.csv and p.npy say"""
import csv
import json
import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
CLASSES, CHANNELS, SIDE = 5, 3, 8


def make(directory):
    import numpy
    random = numpy.random.RandomState(7)
    centres = random.standard_normal((CLASSES, CHANNELS, SIDE, SIDE))
    for prefix, count in (("", 400), ("t", 263)):
        labels = random.randint(0, CLASSES, count)
        samples = centres[labels] + 2 * random.standard_normal((count, CHANNELS, SIDE, SIDE))
        numpy.save(directory + "/" + prefix + "x.npy", samples.astype("f4"))
        numpy.save(directory + "/" + prefix + "y.npy", labels)


def weights(path):
    import numpy
    import torch
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: torch.tensor(numpy.frombuffer(data, "<f4", (t["data_offsets"][1] - t["data_offsets"][0]) // 4,
                                                8 + size + t["data_offsets"][0]).reshape(t["shape"]))
            for name, t in header.items()}


def build(model, state):
    import torch
    import models
    if model == "cnn":
        return models.Cnn(CHANNELS, SIDE, CLASSES)
    if model == "resnet":
        return models.ResNet(20, CHANNELS, CLASSES)
    layers = torch.nn.Sequential()
    names = sorted(name[:-7] for name in state if name.endswith(".weight"))
    layers.add_module("flatten", torch.nn.Flatten())
    for name in names:
        layers.add_module(name, torch.nn.Linear(*reversed(state[name + ".weight"].shape)))
        if name != names[-1]:
            layers.add_module(name + "-relu", torch.nn.ReLU())
    return layers


def compare(directory, model):
    import numpy
    import torch
    state = weights(directory + "/w")
    network = build(model, state)
    missing, extra = network.load_state_dict(state, strict=False)
    assert not extra and all(name.endswith("num_batches_tracked") for name in missing), (missing, extra)
    network.eval()
    labels = numpy.load(directory + "/ty.npy")
    with torch.no_grad():
        wanted = torch.softmax(network(torch.tensor(numpy.load(directory + "/tx.npy"))), 1).numpy()
    found = numpy.load(directory + "/p.npy")
    assert found.dtype == numpy.float32 and found.shape == wanted.shape, (found.dtype, found.shape)
    assert abs(found.sum(1) - 1).max() < 1e-6
    assert abs(found - wanted).max() < 1e-6, abs(found - wanted).max()
    assert 0.25 < found.max(1).mean() < 0.9999, "too easy to tell much: %g" % found.max(1).mean()
    rows = list(csv.DictReader(open(directory + "/p.csv", newline="")))
    assert len(rows) == len(labels)
    for i, row in enumerate(rows):
        assert int(row["index"]) == i and int(row["label"]) == labels[i], row
        assert int(row["prediction"]) == wanted[i].argmax() == found[i].argmax(), (row, wanted[i])
        assert numpy.float32(row["probability"]) == found[i].max(), (row, found[i])
    print("%s: %d samples agree, probabilities within %.1e" % (model, len(rows), abs(found - wanted).max()))


NAMES = ("one", 'two, "2"')


def png(grey):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes([grey] * 4) for _ in range(4))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)) + \
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def images(directory):
    for number, name in enumerate(NAMES):
        os.makedirs(os.path.join(directory, name))
        for i in range(6):
            with open(os.path.join(directory, name, "%d,x.png" % i), "wb") as file:
                file.write(png(20 + i + 180 * number))


def names(path):
    rows = list(csv.DictReader(open(path, newline="")))
    assert [int(row["index"]) for row in rows] == list(range(12))
    assert [row["file"] for row in rows] == ["%s/%d,x.png" % (name, i) for name in NAMES for i in range(6)], rows
    assert all(row["label"] == row["prediction"] == row["file"].rpartition("/")[0] for row in rows), rows


if sys.argv[1] == "data":
    make(sys.argv[2])
elif sys.argv[1] == "images":
    images(sys.argv[2])
elif sys.argv[1] == "names":
    names(sys.argv[2])
else:
    compare(*sys.argv[2:])
