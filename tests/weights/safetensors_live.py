# SPDX-License-Identifier: MIT
"""Our safetensors files against the safetensors package: each reads the other's, and the bytes are the same.

usage: safetensors_live.py SAFETENSORS_TOOL DIRECTORY
"""
import json
import os
import random
import subprocess
import sys

import numpy
from safetensors.numpy import load, save

TOOL, DIRECTORY = sys.argv[1:]
DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "int32": "I32",
          "uint32": "U32", "float32": "F32", "int64": "I64", "uint64": "U64", "float64": "F64"}
NAMES = ["weight", "layer.0.bias", "a b", "quote\"d", "back\\slash", "\u00e9\u4e2d\U0001f600", "slash/ed", "tab\there",
         "\x01control", "Z", "_", "w.10", "w.9"]


def random_tensors(rnd):
    tensors = {}
    for name in rnd.sample(NAMES, rnd.randrange(len(NAMES) + 1)):
        shape = [rnd.choice([0, 1, 2, 3, 5]) for _ in range(rnd.randrange(4))]
        dtype = rnd.choice(sorted(DTYPES))
        values = [rnd.randrange(2 if dtype == "bool" else 100) for _ in range(int(numpy.prod(shape)))]
        tensors[name] = numpy.array(values, dtype=dtype).reshape(shape)
    return tensors


def path(name):
    return os.path.join(DIRECTORY, name)


def read(name):
    with open(path(name), "rb") as file:
        return file.read()


def header(data):
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


def main():
    seed = random.randrange(2**32)
    print("seed", seed)
    rnd = random.Random(seed)
    for _ in range(50):
        tensors = random_tensors(rnd)
        theirs = save(tensors)
        with open(path("theirs"), "wb") as out:
            out.write(theirs)
        subprocess.run([TOOL, "copy", path("theirs"), path("ours")], check=True)
        ours = read("ours")
        assert ours == theirs, f"other bytes:\n{ours!r}\n{theirs!r}"
        listed = subprocess.run([TOOL, "list", path("ours")], check=True, capture_output=True).stdout.decode()
        expected = "".join(f"{name} {DTYPES[str(t.dtype)]} [{','.join(map(str, t.shape))}] {t.tobytes().hex()}\n"
                           for name, t in tensors.items())
        assert sorted(listed.split("\n")) == sorted(expected.split("\n")), f"{listed}\n{expected}"
        subprocess.run([TOOL, "copy", path("theirs"), path("ours"), "metadata"], check=True)
        assert header(read("ours"))["__metadata__"] == {"format": "pt"}
        again = load(read("ours"))
        assert again.keys() == tensors.keys()
        assert all(again[n].tobytes() == t.tobytes() and again[n].shape == t.shape for n, t in tensors.items())


main()
