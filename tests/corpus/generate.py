#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the corpora beside this file: idx/, safetensors/, options/. See README."""
import gzip
import json
import os
import struct
import sys

HERE = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))


def put(kind, name, data):
    os.makedirs(os.path.join(HERE, kind), exist_ok=True)
    with open(os.path.join(HERE, kind, name), "wb") as out:
        out.write(data)


def idx(dims, values=None, dtype=8, zeros=b"\0\0"):
    count = 1
    for dim in dims:
        count *= dim
    data = bytes(i % 251 for i in range(count)) if values is None else values
    return zeros + bytes([dtype, len(dims)]) + b"".join(struct.pack(">I", d) for d in dims) + data


def packed(data):
    return gzip.compress(data, 9, mtime=0)


def flipped(data, at):
    data = bytearray(data)
    data[at] ^= 1
    return bytes(data)


def write_idx():
    labels, images = idx([5]), idx([3, 4, 2])
    put("idx", "good-labels", labels)
    put("idx", "good-images", images)
    put("idx", "good-channels", idx([2, 3, 2, 2]))
    put("idx", "good-gzip", packed(images))
    put("idx", "good-gzip-two-members", packed(images[:9]) + packed(images[9:]))
    put("idx", "good-gzip-empty-member", packed(images) + packed(b""))
    put("idx", "good-one-byte", idx([1]))
    put("idx", "bad-empty", b"")
    put("idx", "bad-magic-only", images[:4])
    put("idx", "bad-header-cut", images[:13])
    put("idx", "bad-data-cut", images[:-1])
    put("idx", "bad-trailing", images + b"x")
    put("idx", "bad-zeros", idx([5], zeros=b"\0\1"))
    put("idx", "bad-type-float", idx([5], dtype=0x0D))
    put("idx", "bad-no-dimensions", b"\0\0\10\0")
    put("idx", "bad-five-dimensions", idx([1] * 5))
    put("idx", "bad-no-items", idx([0, 2, 2]))
    put("idx", "bad-empty-items", idx([2, 0, 2]))
    put("idx", "bad-claims-4-billion", idx([2**32 - 1], b""))
    put("idx", "bad-overflow", idx([2**32 - 1] * 4, b""))
    put("idx", "bad-gzip-cut", packed(images)[:-9])
    put("idx", "bad-gzip-no-trailer", packed(images)[:-8])
    put("idx", "bad-gzip-header-only", packed(images)[:10])
    put("idx", "bad-gzip-crc", flipped(packed(images), -8))
    put("idx", "bad-gzip-length", flipped(packed(images), -4))
    put("idx", "bad-gzip-method", flipped(packed(images), 2))
    put("idx", "bad-gzip-trailing", packed(images) + b"x")
    put("idx", "bad-gzip-data-cut", packed(images[:-1]))
    put("idx", "bad-gzip-data-trailing", packed(images + b"x"))


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin, end, shape, dtype="F32", **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def write_safetensors():
    two = {"a": entry(0, 8, [2]), "b": entry(8, 20, [3, 1])}
    good, bad = {}, {}
    good["empty"] = safetensors(b"{}")
    good["one"] = safetensors({"a": entry(0, 8, [2])}, bytes(8))
    good["two"] = safetensors(two, bytes(20))
    good["padded"] = safetensors(json.dumps(two).encode() + b"    ", bytes(20))
    good["scalar"] = safetensors({"s": entry(0, 8, [], "I64")}, bytes(8))
    good["empty-tensor"] = safetensors({"a": entry(0, 8, [2]), "e": entry(8, 8, [0, 3])}, bytes(8))
    good["metadata"] = safetensors({"__metadata__": {"format": "pt"}, **two}, bytes(20))
    good["dtypes"] = safetensors({d: entry(i * 8, i * 8 + 8, [64 // bits], d) for i, (d, bits) in enumerate(
        [("BOOL", 8), ("U8", 8), ("BF16", 16), ("F16", 16), ("F64", 64), ("U64", 64), ("F8_E4M3", 8)])}, bytes(56))
    good["unicode-name"] = safetensors({"\u00e9\u4e2d\U0001f600": entry(0, 4, [1])}, bytes(4))
    good["unsorted"] = safetensors({"b": entry(8, 20, [3]), "a": entry(0, 8, [2])}, bytes(20))
    good["unknown-key"] = safetensors({"a": entry(0, 4, [1], note="text")}, bytes(4))
    bad["nothing"] = b""
    bad["length-cut"] = b"\2\0\0\0"
    bad["length-zero"] = safetensors(b"", length=0)
    bad["length-beyond"] = safetensors(b"{}", length=3)
    bad["length-limit"] = safetensors(b"{}", length=100000001)
    bad["length-max"] = safetensors(b"{}", length=2**64 - 1)
    bad["list"] = safetensors(b"[]")
    bad["space-first"] = safetensors(b" {}")
    bad["json-cut"] = safetensors(b'{"a":')
    bad["json-trailing"] = safetensors(b"{}x")
    bad["not-utf8"] = safetensors(b'{"\xff":1}')
    bad["deep"] = safetensors(b'{"a":' + b"[" * 5000)
    bad["duplicate"] = safetensors(b'{"a":1,"a":1}')
    bad["entry-number"] = safetensors(b'{"a":1}')
    bad["no-dtype"] = safetensors(b'{"a":{"shape":[],"data_offsets":[0,0]}}')
    bad["dtype-unknown"] = safetensors({"a": entry(0, 4, [1], "F31")}, bytes(4))
    bad["shape-negative"] = safetensors({"a": entry(0, 4, [-1])}, bytes(4))
    bad["shape-real"] = safetensors({"a": entry(0, 4, [1.0])}, bytes(4))
    bad["shape-long"] = safetensors({"a": entry(0, 4, [1] * 9)}, bytes(4))
    bad["shape-overflow"] = safetensors({"a": entry(0, 0, [2**62, 4])})
    bad["half-byte"] = safetensors({"a": entry(0, 1, [1], "F4")}, bytes(1))
    bad["number-overflow"] = safetensors(b'{"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,0]}}')
    bad["offsets-three"] = safetensors({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, bytes(1))
    bad["offsets-falling"] = safetensors({"a": entry(4, 0, [1])}, bytes(4))
    bad["offsets-beyond"] = safetensors({"a": entry(0, 8, [2])}, bytes(7))
    bad["offsets-shape"] = safetensors({"a": entry(0, 8, [3])}, bytes(8))
    bad["overlap"] = safetensors({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}, bytes(12))
    bad["hole"] = safetensors({"a": entry(0, 8, [2]), "b": entry(12, 20, [2])}, bytes(20))
    bad["hole-first"] = safetensors({"a": entry(4, 8, [1])}, bytes(8))
    bad["trailing"] = safetensors(two, bytes(21))
    bad["metadata-list"] = safetensors(b'{"__metadata__":[]}')
    bad["metadata-number"] = safetensors(b'{"__metadata__":{"a":1}}')
    for name, data in good.items():
        put("safetensors", "good-" + name, data)
    for name, data in bad.items():
        put("safetensors", "bad-" + name, data)


def write_options():
    # An odd number of bytes: the first argument that is no option ends the options; even: it is an error.
    for name, args in (("none", ""), ("int", "--count\n3"), ("equals", "--count=-3"), ("real", "--rate\n1e-3"),
                       ("text", "--text=a b"), ("choice", "--choice\nred"), ("flag", "--flag\n-v"),
                       ("underscore", "--long_name=1"), ("letter", "-n5"), ("stop", "-v\n--\n--count")):
        put("options", "good-" + name, args.encode())
    for name, args in (("unknown", "--nothing"), ("no-value", "--count"), ("not-a-number", "--count=3x"),
                       ("too-large", "--count=99999999999999999999"), ("not-finite", "--rate=nan"),
                       ("choice", "--choice=blue"), ("flag-value", "--flag=maybe"), ("empty", "--text="),
                       ("letter", "-z"), ("number-empty", "--count="), ("stray", "--\n--count")):
        put("options", "bad-" + name, args.encode())


write_idx()
write_safetensors()
write_options()
