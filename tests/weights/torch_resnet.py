#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files of weights as torchvision's state_dict() makes them.

usage: torch_resnet.py make FROM TO [without=PREFIX]   from a file of ours: no description, a counter beside each norm
       torch_resnet.py compare A B                     prints the tensors that differ or are in one of them
"""
import json
import struct
import sys


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size:]
    return {name: (entry, body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def make(source, target, without=None):
    tensors = {name: t for name, t in read(source).items() if not (without and name.startswith(without))}
    for name in [n for n in tensors if n.endswith(".running_mean")]:
        tensors[name.replace("running_mean", "num_batches_tracked")] = ({"dtype": "I64", "shape": []}, struct.pack("<q", 5))
    header, body = {}, b""
    # The counters first: eight bytes each, so that all stays aligned.
    for name, (entry, data) in sorted(tensors.items(), key=lambda item: item[1][0]["dtype"] != "I64"):
        header[name] = {**entry, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3], *(a.split("=")[1] for a in sys.argv[4:]))
else:
    one, other = read(sys.argv[2]), read(sys.argv[3])
    for name in sorted(set(one) | set(other)):
        if name not in one or name not in other or one[name][1] != other[name][1]:
            print(name)
