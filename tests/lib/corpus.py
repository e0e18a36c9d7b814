#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the corpora of the parsers' tests.

usage: corpus.py DIRECTORY, which gets a directory for each parser

A file good-* must be accepted, a file bad-* rejected with a message; `make check` replays all of them (tests/lib/replay.c),
`make fuzz` starts from them. When the fuzzer finds a fault, mend it and add the input here under a name that says what is
wrong with it.

  idx/          one IDX file each, plain or gzip
  safetensors/  one safetensors file each
  npy/          one NumPy array each
  zip/          one zip archive each
  tokens/       one file of tokens each, with llm.c's header or a text
  tokenizer/    one tokenizer.json each, and a text in its last line
  wordpiece/    one vocab.txt each, and a text in its last line
  text/         JSON lines, plain or gzip
  table/        one table each, with commas, a header and the target y
  record/       JSON lines of texts, prompts and chats, plain or gzip
  image/        one image each; of the formats but PNG and BMP, those of tests/data/golden/image_files are the start
  options/      a command line each, one argument a line, for the table in tests/core/fuzz_options.c
  yaml/         one file of options each
  jinja/        one chat template each, perhaps with a byte 0 and JSON behind it
  place/        "nodes", "hosts", "tasks" or "endpoint", and such a text: see tests/launcher/fuzz_place.c
  llmc/         the header of a model file of llm.c, and the size of its file in the last eight bytes
  hf_config/    one config.json of Hugging Face's each
  hf_llama/     one config.json each, of a model of the Llama kind
  gguf/         one GGUF file each, of a llama of one layer
  peft/         one adapter_config.json each, of a base of two layers
  bnb/          one safetensors file each, with a matrix of bitsandbytes' nf4
  index/        one model.safetensors.index.json of Hugging Face's each
  choices/      one file of algorithms of matrix products each
  checkpoint/   one state.json each; with "sign" as its last line its checksum is made right first
  plan_text/    what trainer --plan printed
  run_log/      one log of trainer --log each
  trace/        one trace of trainer --trace each
  link/         what comes over a connection between ddpruns; before it, its phase and the size of its pieces
"""
import gzip
import hashlib
import io
import json
import os
import struct
import sys
import zipfile
import zlib

OUT = sys.argv[1]


def put(kind, name, data):
    os.makedirs(os.path.join(OUT, kind), exist_ok=True)
    with open(os.path.join(OUT, kind, name), "wb") as out:
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
                       ("underscore", "--long_name=1"), ("letter", "-n5"), ("stop", "-v\n--\n--count"), ("bytes", "--bytes\n1.5GiB\n--bytes=80G\n"),
                       ("list", "--list=1,5,9"), ("seed", "--seed=18446744073709551615")):
        put("options", "good-" + name, args.encode())
    for name, args in (("unknown", "--nothing"), ("no-value", "--count"), ("not-a-number", "--count=3x"),
                       ("too-large", "--count=99999999999999999999"), ("not-finite", "--rate=nan"),
                       ("choice", "--choice=blue"), ("flag-value", "--flag=maybe"), ("empty", "--text="),
                       ("letter", "-z"), ("number-empty", "--count="), ("stray", "--\n--count"), ("seed", "--seed=-1"),
                       ("bytes-huge", "--bytes=9999999P"), ("bytes-negative", "--bytes=-1G"), ("bytes-none", "--bytes=GB"),
                       ("bytes-point", "--bytes=1.2.3M"), ("bytes-unit", "--bytes=80Gi"),
                       ("list-falls", "--list=5,4"), ("list-long", "--list=1,2,3,4,5")):
        put("options", "bad-" + name, args.encode())


def write_place():
    for name, text in (("nodes", "nodes 4"), ("nodes-twice", "nodes 4:4"), ("nodes-range", "nodes 1:4"), ("host", "hosts n1"), ("hosts", "hosts dn[0-1]"),
                       ("hosts-zeros", "hosts n[001-010,020],m3"), ("hosts-two-brackets", "hosts rack[0-1]n[3,5]"),
                       ("hosts-suffix", "hosts n[1-2]-ib.site"), ("tasks", "tasks 1(x4)"), ("tasks-list", "tasks 1,1(x2),1"),
                       ("endpoint", "endpoint n1:29500"), ("endpoint-host", "endpoint n1"),
                       ("endpoint-six", "endpoint [fe80::1%eth0]:1")):
        put("place", "good-" + name, text.encode())
    for name, text in (("nodes-none", "nodes 0"), ("nodes-many", "nodes 4097"), ("nodes-range", "nodes 4:1"),
                       ("nodes-text", "nodes four"), ("nodes-long", "nodes 99999999999999999999"), ("nodes-half", "nodes 4:"),
                       ("hosts-empty", "hosts "), ("hosts-comma", "hosts ,n1"), ("hosts-open", "hosts n[1-2"),
                       ("hosts-nested", "hosts n[[1]]"), ("hosts-backwards", "hosts n[2-1]"), ("hosts-space", "hosts n 1"),
                       ("hosts-long", "hosts " + "n" * 256), ("hosts-long-number", "hosts n[" + "0" * 300 + "]"),
                       ("tasks-two", "tasks 2(x2)"), ("tasks-few", "tasks 1(x3)"), ("tasks-many", "tasks 1(x5)"),
                       ("tasks-open", "tasks 1(x4"), ("tasks-overflow", "tasks 1(x2147483647),1(x2147483647),1(x6)"),
                       ("endpoint-port", "endpoint n1:65536"), ("endpoint-colons", "endpoint ::1"),
                       ("endpoint-open", "endpoint [::1"), ("endpoint-no-host", "endpoint :1"), ("nothing", "")):
        put("place", "bad-" + name, text.encode())


def npy(dictionary, data=b"", version=1, length=None):
    text = dictionary if isinstance(dictionary, bytes) else dictionary.encode()
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", size) + text + data


def array(descr, shape, fortran="False"):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n" % (descr, fortran, shape)


def write_npy():
    f4 = array("'<f4'", "(2, 3)")
    put("npy", "good-version-1", npy(f4, bytes(24)))
    put("npy", "good-version-2", npy(f4, bytes(24), 2))
    put("npy", "good-version-3", npy(f4, bytes(24), 3))
    put("npy", "good-padded", npy(" " * 60 + f4.strip() + " " * 20 + "\n", bytes(24)))
    put("npy", "good-double-quotes", npy(f4.replace("'", '"'), bytes(24)))
    put("npy", "good-other-order", npy("{'shape':(2,),'fortran_order':True,'descr':'|u1'}", bytes(2)))
    put("npy", "good-scalar", npy(array("'<i8'", "()"), bytes(8)))
    put("npy", "good-empty", npy(array("'<i8'", "(3, 0)")))
    put("npy", "good-python-2", npy(array("'<f2'", "(3L,)"), bytes(6)))
    for descr in ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f8"):
        put("npy", "good-" + descr[1:], npy(array("'%s'" % descr, "(2,)"), bytes(range(200, 200 + 2 * int(descr[2])))))
    put("npy", "bad-nothing", b"")
    put("npy", "bad-magic", b"\x93NUMPX" + npy(f4, bytes(24))[6:])
    put("npy", "bad-magic-cut", npy(f4)[:8])
    put("npy", "bad-length-cut", npy(f4, version=2)[:11])
    put("npy", "bad-version-0", npy(f4, bytes(24), 0))
    put("npy", "bad-version-4", npy(f4, bytes(24), 4))
    put("npy", "bad-header-cut", npy(f4)[:40])
    put("npy", "bad-header-4-gigabytes", npy(f4, bytes(24), 2, 2**32 - 1))
    put("npy", "bad-header-empty", npy("", bytes(24)))
    put("npy", "bad-data-cut", npy(f4, bytes(23)))
    put("npy", "bad-trailing", npy(f4, bytes(25)))
    put("npy", "bad-big-endian", npy(array("'>f4'", "(2, 3)"), bytes(24)))
    put("npy", "bad-fortran", npy(array("'<f4'", "(2, 3)", "True"), bytes(24)))
    put("npy", "bad-overflow", npy(array("'<f4'", "(4611686018427387904, 4)")))
    put("npy", "bad-overflow-number", npy(array("'<f4'", "(99999999999999999999,)")))
    put("npy", "bad-overflow-signed", npy(array("'<f8'", "(4611686018427387903,)")))
    put("npy", "bad-negative", npy(array("'<f4'", "(-1,)")))
    put("npy", "bad-shape-number", npy(array("'<f4'", "(6)"), bytes(24)))
    put("npy", "bad-shape-list", npy(array("'<f4'", "[6]"), bytes(24)))
    put("npy", "bad-shape-long", npy(array("'<f4'", "(" + "1, " * 9 + ")"), bytes(4)))
    put("npy", "bad-shape-open", npy(b"{'descr':'<f4','fortran_order':False,'shape':(2,"))
    put("npy", "bad-string-open", npy(b"{'descr':'<f4"))
    put("npy", "bad-records", npy(array("[('a', '<f4')]", "(2, 3)"), bytes(24)))
    put("npy", "bad-objects", npy(array("'|O'", "(1,)"), bytes(8)))
    put("npy", "bad-complex", npy(array("'<c8'", "(3,)"), bytes(24)))
    put("npy", "bad-twice", npy("{'descr':'<f4','descr':'<f4','shape':(6,)}", bytes(24)))
    put("npy", "bad-missing", npy("{'descr':'<f4','shape':(6,)}", bytes(24)))
    put("npy", "bad-unknown", npy("{'descr':'<f4','fortran_order':False,'shape':(6,),'x':1}", bytes(24)))
    put("npy", "bad-after", npy(f4 + "x", bytes(24)))
    put("npy", "bad-zero-byte", npy(b"{\0}", bytes(24)))


def archive(members, method=zipfile.ZIP_STORED, large=False, comment=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.comment = comment
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with z.open(info, "w", force_zip64=large) as member:
                member.write(data)
    return out.getvalue()


def changed(data, at, value):
    data = bytearray(data)
    data[at : at + len(value)] = value
    return bytes(data)


def end64(plain):
    """The same archive with its end in 64 bits, as one of more than 4 GiB has it."""
    end = plain.index(b"PK\5\6")
    count, size, offset = struct.unpack("<10xHII", plain[end : end + 20])
    record = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<IIQI", 0x07064B50, 0, end, 1)
    return plain[:end] + record + locator + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)


def write_zip():
    two = [("x.npy", bytes(range(100))), ("y.npy", b"label" * 20)]
    plain, deflated = archive(two), archive(two, zipfile.ZIP_DEFLATED)
    end, entry = plain.index(b"PK\5\6"), plain.index(b"PK\1\2")
    put("zip", "good-stored", plain)
    put("zip", "good-deflated", deflated)
    put("zip", "good-empty", archive([]))
    put("zip", "good-empty-member", archive([("a", b"")], zipfile.ZIP_DEFLATED))
    put("zip", "good-64-bit-members", archive(two, large=True))
    put("zip", "good-64-bit-end", end64(plain))
    put("zip", "good-comment", archive(two, comment=b"a comment"))
    put("zip", "bad-nothing", b"")
    put("zip", "bad-cut", plain[:-1])
    put("zip", "bad-trailing", plain + b"x")
    put("zip", "bad-directory-cut", changed(plain, end + 12, struct.pack("<I", 60)))
    put("zip", "bad-directory-beyond", changed(plain, end + 16, struct.pack("<I", end)))
    put("zip", "bad-count", changed(plain, end + 10, b"\3\0"))
    put("zip", "bad-parts", changed(plain, end + 4, b"\1\0"))
    put("zip", "bad-64-bit-end-missing", changed(plain, end + 16, b"\xff" * 4))
    put("zip", "bad-64-bit-end-beyond", changed(end64(plain), -34, struct.pack("<Q", 2**63)))
    put("zip", "bad-64-bit-count", changed(end64(plain), end + 32, struct.pack("<Q", 2**60)))
    put("zip", "bad-64-bit-size", changed(plain, entry + 24, b"\xff" * 4))
    put("zip", "bad-encrypted", changed(plain, entry + 8, b"\1\0"))
    put("zip", "bad-method", changed(deflated, deflated.index(b"PK\1\2") + 10, b"\14\0"))
    put("zip", "bad-crc", flipped(deflated, deflated.index(b"PK\1\2") + 16))
    put("zip", "bad-deflate", flipped(deflated, 40))
    put("zip", "bad-two-sizes", changed(plain, entry + 24, struct.pack("<I", 99)))
    put("zip", "bad-claims-4-gigabytes", changed(deflated, deflated.index(b"PK\1\2") + 24, struct.pack("<I", 2**32 - 2)))
    put("zip", "bad-size", changed(deflated, deflated.index(b"PK\1\2") + 24, struct.pack("<I", 101)))
    put("zip", "bad-member-beyond", changed(plain, entry + 42, struct.pack("<I", end)))
    put("zip", "bad-member-elsewhere", changed(plain, entry + 42, struct.pack("<I", 1)))
    put("zip", "bad-name", changed(plain, entry + 46, b"z"))
    put("zip", "bad-name-zero", changed(plain, entry + 46, b"\0"))
    put("zip", "bad-name-long", changed(plain, entry + 28, b"\xff\xff"))
    put("zip", "bad-duplicate", archive([("a", b"1"), ("b", b"2")]).replace(b"b", b"a"))


def tokens(count, magic=20240520, version=1, announced=None, width=2, order="<"):
    head = struct.pack(order + "256i", magic, version, count if announced is None else announced, *[0] * 253)
    return head + b"".join(struct.pack("<H" if width == 2 else "<I", i % 50000) for i in range(count))


def write_tokens():
    put("tokens", "good-gpt2", tokens(20))
    put("tokens", "good-llama3", tokens(20, 20240801, 7, width=4))
    put("tokens", "good-no-tokens", tokens(0))
    put("tokens", "good-text", "To be, or not to b\u00e9".encode())
    put("tokens", "good-empty", b"")
    put("tokens", "good-npy", npy(array("'<u2'", "(20,)"), bytes(40)))
    put("tokens", "bad-npy-two-dimensions", npy(array("'<u2'", "(4, 5)"), bytes(40)))
    put("tokens", "bad-npy-float", npy(array("'<f4'", "(5,)"), bytes(20)))
    put("tokens", "bad-cut", tokens(20)[:-1])
    put("tokens", "bad-header-cut", tokens(0)[:-1])
    put("tokens", "bad-magic-only", tokens(0)[:8])
    put("tokens", "bad-trailing", tokens(20) + b"x")
    put("tokens", "bad-claims-2-billion", tokens(20, announced=2**31 - 1))
    put("tokens", "bad-negative", tokens(20, announced=-1))
    put("tokens", "bad-version", tokens(20, version=2))
    put("tokens", "bad-big-endian", tokens(20, order=">"))
    put("tokens", "bad-evaluation", tokens(20, 20240522))
    put("tokens", "bad-tokenizer", tokens(20, 20240328, 2))
    put("tokens", "bad-model", tokens(20, 20240326, 3))
    put("tokens", "bad-binary", bytes(range(100)))


write_npy()
write_zip()
write_tokens()
def write_llmc():
    def header(size=None, **words):
        fields = {"magic": 20240326, "version": 3, "context": 4, "vocabulary": 5, "layers": 2, "heads": 2, "channels": 4,
                  "padded": 128, **{k: v for k, v in words.items() if not k.startswith("w")}}
        values = list(fields.values()) + [0] * 248
        for name, value in words.items():
            if name.startswith("w"):
                values[int(name[1:])] = value
        c, v, t, n = fields["channels"], fields["padded"], fields["context"], fields["layers"]
        count = v * c + t * c + n * (12 * c * c + 13 * c) + 2 * c
        full = 1024 + count * (2 if fields["version"] == 5 else 4)
        return struct.pack("<256i", *values) + struct.pack("<Q", (full if size is None else size) % 2**64)

    good = header()
    put("llmc", "good-fp32", good)
    put("llmc", "good-bf16", header(version=5))
    put("llmc", "good-no-padding", header(padded=5))
    put("llmc", "good-124M", header(context=1024, vocabulary=50257, layers=12, heads=12, channels=768, padded=50304))
    put("llmc", "bad-empty", b"")
    put("llmc", "bad-header-cut", good[:1020])
    put("llmc", "bad-big-endian", struct.pack(">256i", *struct.unpack("<256i", good[:1024])) + good[1024:])
    put("llmc", "bad-magic", header(magic=20240327))
    put("llmc", "bad-tokens-magic", header(magic=20240520))
    put("llmc", "bad-version-1", header(version=1))
    put("llmc", "bad-version-4", header(version=4))
    for field in ("context", "vocabulary", "layers", "heads", "channels", "padded"):
        put("llmc", f"bad-{field}-zero", header(**{field: 0}))
        put("llmc", f"bad-{field}-negative", header(**{field: -4}))
        put("llmc", f"bad-{field}-huge", header(**{field: 2**31 - 1}))
    put("llmc", "bad-heads", header(heads=3))
    put("llmc", "bad-padding", header(padded=4))
    put("llmc", "bad-word", header(w100=1))
    put("llmc", "bad-overflow", header(layers=2**24, channels=2**24, padded=2**24, context=2**24))
    put("llmc", "bad-truncated", header(size=2048))
    put("llmc", "bad-size-zero", header(size=0))
    put("llmc", "bad-trailing", header(size=10**6))


def write_hf_config():
    gpt2 = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
            "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
            "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None,
            "task_specific_params": {"text-generation": {"do_sample": True}}, "vocab_size": 50257}
    put("hf_config", "good-gpt2", json.dumps(gpt2, indent=2).encode())
    put("hf_config", "good-empty", b"{}")
    put("hf_config", "good-n-ctx", b'{"n_ctx": 256}')
    put("hf_config", "good-n-inner", json.dumps({**gpt2, "n_inner": 3072}).encode())
    put("hf_config", "good-n-inner-null", json.dumps({**gpt2, "n_inner": None}).encode())
    put("hf_config", "good-exact", b'{"activation_function": "gelu", "embd_pdrop": 0, "resid_pdrop": 0.0}')
    put("hf_config", "good-attention-defaults", b'{"scale_attn_weights": true, "tie_word_embeddings": true}')
    for name, text in (("nothing", b""), ("list", b"[]"), ("cut", b'{"n_layer": 12'), ("duplicate", b'{"n_layer": 1, "n_layer": 2}'),
                       ("not-utf8", b'{"n_layer\xff": 1}'), ("deep", b'{"a":' + b"[" * 5000), ("trailing", b"{}x")):
        put("hf_config", "bad-" + name, text)
    for name, fields in (("type", {"model_type": "llama"}), ("type-number", {"model_type": 2}), ("layers-zero", {"n_layer": 0}),
                         ("layers-text", {"n_layer": "12"}), ("layers-real", {"n_layer": 12.5}), ("heads-negative", {"n_head": -1}),
                         ("heads", {"n_head": 7}), ("vocabulary-huge", {"vocab_size": 2**40}), ("n-inner", {"n_inner": 3071}),
                         ("activation", {"activation_function": "relu"}), ("activation-null", {"activation_function": None}),
                         ("eps-zero", {"layer_norm_epsilon": 0}), ("eps-text", {"layer_norm_epsilon": "x"}),
                         ("dropout-one", {"resid_pdrop": 1, "embd_pdrop": 1}), ("dropouts-differ", {"resid_pdrop": 0.2}),
                         ("untied", {"tie_word_embeddings": False}), ("untied-text", {"tie_word_embeddings": "no"}),
                         ("unscaled", {"scale_attn_weights": False}), ("by-layer", {"scale_attn_by_inverse_layer_idx": True}),
                         ("cross", {"add_cross_attention": True})):
        put("hf_config", "bad-" + name, json.dumps({**gpt2, **fields}).encode())


def write_hf_llama():
    llama = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 128000, "eos_token_id": 128001,
             "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
             "mlp_bias": False, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
             "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": False,
             "torch_dtype": "bfloat16", "transformers_version": "4.43.0", "use_cache": True, "vocab_size": 128256}
    tiny = {"model_type": "llama", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2}
    new = {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": False}
    for name, fields in (("good-llama-3.1-8b", llama), ("good-tiny", tiny), ("good-type-alone", {"model_type": "llama"}),
                         ("good-qwen2", {**tiny, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2}),
                         ("good-qwen3", {**tiny, "model_type": "qwen3", "rope_parameters": new, "dtype": "float32"}),
                         ("good-layer-types", {**tiny, "model_type": "qwen3", "use_sliding_window": True,
                                               "layer_types": ["full_attention", "sliding_attention"] * 2}),
                         ("good-mistral", {**tiny, "model_type": "mistral", "sliding_window": None}),
                         ("good-smollm3", {**tiny, "model_type": "smollm3"}),
                         ("good-smollm3-list", {**tiny, "model_type": "smollm3", "no_rope_layers": [1, 0, 1, 0]}),
                         ("good-phi3", {**tiny, "model_type": "phi3", "partial_rotary_factor": 0.5, "rope_scaling": None}),
                         ("good-nf4", {**tiny, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True,
                                                                       "bnb_4bit_quant_type": "nf4"}}),
                         ("good-unknown-keys", {**tiny, "surely": {"a": [1, 2.5, None]}, "\u00e9\"": "\\"}),
                         ("good-linear", {**tiny, "rope_scaling": {"type": "linear", "factor": 2}})):
        put("hf_llama", name, json.dumps(fields, indent=2).encode())
    for name, text in (("nothing", b""), ("list", b"[]"), ("cut", b'{"model_type": "llama"'), ("not-utf8", b'{"model_type\xff": 1}'),
                       ("duplicate", b'{"model_type": "llama", "model_type": "llama"}'), ("deep", b'{"a":' + b"[" * 5000),
                       ("trailing", b'{"model_type": "llama"}x'), ("no-type", b"{}")):
        put("hf_llama", "bad-" + name, text)
    for name, fields in (("type", {"model_type": "gemma2"}), ("type-moe", {"model_type": "qwen3_moe"}), ("type-number", {"model_type": 1}),
                         ("heads-zero", {"num_attention_heads": 0}), ("heads-text", {"num_attention_heads": "4"}),
                         ("heads-negative", {"num_attention_heads": -4}), ("kv-heads", {"num_key_value_heads": 3}),
                         ("layers-many", {"num_hidden_layers": 1000}), ("layers-real", {"num_hidden_layers": 2.5}),
                         ("width-huge", {"hidden_size": 2**62}), ("head-odd", {"head_dim": 7}), ("vocabulary-null", {"vocab_size": None}),
                         ("eps-zero", {"rms_norm_eps": 0}), ("act", {"hidden_act": "gelu"}), ("dropout", {"attention_dropout": 0.1}),
                         ("quantised", {"quantization_config": {"quant_method": "gptq"}}), ("quantised-text", {"quantization_config": "nf4"}), ("dtype", {"dtype": "int8"}),
                         ("rope-dynamic", {"rope_scaling": {"type": "dynamic", "factor": 2}}),
                         ("rope-longrope", {"rope_scaling": {"rope_type": "longrope"}}),
                         ("rope-unknown", {"rope_parameters": {"rope_type": "mrope"}}), ("rope-list", {"rope_scaling": [1]}),
                         ("rope-nested", {"rope_parameters": {"full_attention": {"rope_theta": 1}}}),
                         ("rope-no-factor", {"rope_scaling": {"rope_type": "linear"}}), ("theta-zero", {"rope_theta": 0}),
                         ("layer-types", {"layer_types": ["full_attention"]}), ("tied-text", {"tie_word_embeddings": "yes"})):
        put("hf_llama", "bad-" + name, json.dumps({**tiny, **fields}).encode())


def write_bnb():
    codes = [-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495,
             0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
             0.7229568362236023, 1]
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [3, 64]}
    nested = {**state, "nested_blocksize": 2, "nested_dtype": "float32", "nested_offset": 0.25}

    def reals(*values):
        return "F32", [len(values)], struct.pack(f"<{len(values)}f", *values)

    def file(about=state, drop=(), **parts):
        text = about if isinstance(about, bytes) else json.dumps(about).encode()
        tensors = {"w": ("U8", [96, 1], bytes(range(96))), "w.quant_map": reals(*codes), "w.absmax": reals(0.5, 0.25, 0.125),
                   "w.quant_state.bitsandbytes__nf4": ("U8", [len(text)], text)}
        tensors.update({"w." + name.replace("__", "."): part for name, part in parts.items()})
        header, at, data = {}, 0, b""
        for name, (kind, shape, raw) in tensors.items():
            if name not in drop:
                header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(raw)]}
                at += len(raw)
                data += raw
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    double = {"absmax": ("U8", [3], b"\0\x80\xff"), "nested_absmax": reals(0.1, 0.2), "nested_quant_map": reals(*(i / 128 - 1 for i in range(256)))}
    for name, data in (
            ("good-single", file()), ("good-double", file(nested, **double)), ("good-float32", file({**state, "dtype": "float32"})),
            ("bad-no-map", file(drop=["w.quant_map"])), ("bad-map", file(quant_map=reals(*range(16)))), ("bad-no-state", file(
                drop=["w.quant_state.bitsandbytes__nf4"])), ("bad-state", file(b"{")), ("bad-state-list", file(b"[]")), ("bad-state-empty", file(b"")),
            ("bad-state-long", file(json.dumps(state).encode() + b" " * 5000)), ("bad-shape", file({**state, "shape": [64, 3]})),
            ("bad-shape-text", file({**state, "shape": "3"})), ("bad-type", file({**state, "quant_type": "fp4"})),
            ("bad-block", file({**state, "blocksize": 128})), ("bad-block-huge", file({**state, "blocksize": 1 << 40})),
            ("bad-dtype", file({**state, "dtype": "float16"})), ("bad-scales-few", file(absmax=reals(0.5, 0.25))),
            ("bad-scales-bytes", file(absmax=("U8", [3], bytes(3)))), ("bad-scales-nan", file(absmax=reals(0.5, float("nan"), 1))),
            ("bad-scales-type", file(absmax=("I32", [3], bytes(12)))), ("bad-nested-few", file(nested, **{**double, "nested_absmax": reals(0.1)})),
            ("bad-nested-map", file(nested, **{**double, "nested_quant_map": reals(*range(255))})), ("bad-nested-block", file(
                {**nested, "nested_blocksize": 0}, **double)), ("bad-nested-offset", file({**nested, "nested_offset": "x"}, **double)),
            ("bad-nested-inf", file(nested, **{**double, "nested_absmax": reals(float("inf"), 1)})), ("bad-none", file(drop=["w"])),
            ("bad-cut", file()[:-20])):
        put("bnb", name, data)


def write_peft():
    peft = {"base_model_name_or_path": "org/base", "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "init_lora_weights": True,
            "layers_to_transform": None, "loftq_config": {}, "lora_alpha": 16, "lora_dropout": 0.05, "modules_to_save": None,
            "peft_type": "LORA", "r": 8, "rank_pattern": {}, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM",
            "use_dora": False, "use_rslora": False}
    linear = ["self_attn." + n + "_proj" for n in "qkvo"] + ["mlp." + n + "_proj" for n in ("gate", "up", "down")]
    for name, fields in (("good-plain", {}), ("good-rslora", {"use_rslora": True, "lora_alpha": 0.5}), ("good-all-linear", {"target_modules": "all-linear"}),
                         ("good-full-names", {"target_modules": [f"model.layers.{i}.{n}" for i in range(2) for n in linear]}),
                         ("good-two-parts", {"target_modules": ["mlp.up_proj", "q_proj", "q_proj"]}), ("good-no-base", {"base_model_name_or_path": None}),
                         ("good-unknown-keys", {"surely": {"a": [1, 2.5, None]}, "\u00e9\"": "\\"}), ("good-gaussian", {"init_lora_weights": "gaussian"}),
                         ("bad-dora", {"use_dora": True}), ("bad-lora-bias", {"lora_bias": True}), ("bad-bias", {"bias": "all"}), ("bad-bias-number", {"bias": 0}),
                         ("bad-rank-pattern", {"rank_pattern": {"q_proj": 4}}), ("bad-alpha-pattern", {"alpha_pattern": {"q_proj": 4}}),
                         ("bad-modules-to-save", {"modules_to_save": ["lm_head"]}), ("bad-layers", {"layers_to_transform": [1]}),
                         ("bad-parameters", {"target_parameters": ["x"]}), ("bad-type", {"peft_type": "IA3"}), ("bad-pissa", {"init_lora_weights": "pissa"}),
                         ("bad-r-zero", {"r": 0}), ("bad-r-real", {"r": 2.5}), ("bad-r-huge", {"r": 2**62}), ("bad-alpha", {"lora_alpha": -1}),
                         ("bad-alpha-huge", {"lora_alpha": 1e300}), ("bad-dropout", {"lora_dropout": 1}), ("bad-flag", {"use_rslora": "yes"}),
                         ("bad-target", {"target_modules": ["q_proj", "lm_head"]}), ("bad-target-number", {"target_modules": [1]}),
                         ("bad-target-empty", {"target_modules": [""]}), ("bad-targets-none", {"target_modules": []}),
                         ("bad-targets-null", {"target_modules": None}), ("bad-targets-object", {"target_modules": {"q_proj": 1}}),
                         ("bad-regex", {"target_modules": ".*proj"}), ("bad-one-layer", {"target_modules": ["model.layers.1.mlp.up_proj"]}),
                         ("bad-one-layer-twice", {"target_modules": ["model.layers.1.mlp.up_proj"] * 2}),
                         ("bad-third-layer", {"target_modules": [f"model.layers.{i}.mlp.up_proj" for i in range(3)]}), ("bad-base", {"base_model_name_or_path": 1})):
        put("peft", name, json.dumps({**peft, **fields}, indent=2).encode())
    put("peft", "good-short", b'{"target_modules": ["q_proj"]}')
    for name, text in (("nothing", b""), ("list", b"[]"), ("cut", b'{"r": 8'), ("not-utf8", b'{"target_modules": ["\xff"]}'), ("no-targets", b"{}"),
                       ("duplicate", b'{"target_modules": ["q_proj"], "r": 4, "r": 8}'), ("deep", b'{"r":' + b"[" * 5000), ("trailing", b'{"target_modules": ["q_proj"]}x')):
        put("peft", "bad-" + name, text)


def write_gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + value

    def value(kind, content):
        if kind == 9:
            return struct.pack("<IQ", content[0], len(content[1])) + b"".join(value(content[0], c) for c in content[1])
        return text(content) if kind == 8 else struct.pack({4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}[kind], content)

    def file(keys=(), tensors=(), version=3, drop=(), counts=None, magic=b"GGUF", base=None):
        pairs = {**(base or (model, layer))[0], **dict(keys)}
        pairs = {k: v for k, v in pairs.items() if k not in drop}
        all_tensors = [t for t in (base or (model, layer))[1] if t[0] not in drop and t[0] not in [o[0] for o in tensors]] + list(tensors)
        out = magic + struct.pack("<IQQ", version, *(counts or (len(all_tensors), len(pairs))))
        for key, (kind, content) in pairs.items():
            out += text(key.encode()) + struct.pack("<I", kind) + value(kind, content)
        offset, data = 0, b""
        for name, dims, kind, *at in all_tensors:
            count = 1
            for dim in dims:
                count *= dim
            raw = (struct.pack("<f", 0.5) * count)[:int({0: 4, 1: 2, 2: 18 / 32, 30: 2}.get(kind, 4) * count)]
            out += text(name.encode()) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
            out += struct.pack("<IQ", kind, at[0] if at else offset)
            data += raw + bytes(-len(raw) % 32)
            offset = len(data)
        return out + bytes(-len(out) % 32) + data

    model = {"general.architecture": (8, b"llama"), "llama.block_count": (4, 1), "llama.context_length": (4, 16), "llama.embedding_length": (4, 4),
             "llama.feed_forward_length": (4, 4), "llama.attention.head_count": (4, 2), "llama.attention.head_count_kv": (4, 1),
             "llama.attention.layer_norm_rms_epsilon": (6, 1e-5), "tokenizer.ggml.model": (8, b"gpt2"), "tokenizer.ggml.pre": (8, b"gpt-2"),
             "tokenizer.ggml.tokens": (9, (8, [b"a", b"b", b"ab"])), "tokenizer.ggml.token_type": (9, (5, [1, 1, 1])),
             "tokenizer.ggml.merges": (9, (8, [b"a b"])), "tokenizer.ggml.add_bos_token": (7, False)}
    layer = [("token_embd.weight", (4, 3), 0), ("output_norm.weight", (4,), 0), ("output.weight", (4, 3), 30)]
    layer += [("blk.0." + n + ".weight", dims, 1 if len(dims) > 1 else 0)
              for n, dims in (("attn_norm", (4,)), ("attn_q", (4, 4)), ("attn_k", (4, 2)), ("attn_v", (4, 2)), ("attn_output", (4, 4)),
                              ("ffn_norm", (4,)), ("ffn_gate", (4, 4)), ("ffn_up", (4, 4)), ("ffn_down", (4, 4)))]
    sizes = {"block_count": 1, "context_length": 8, "embedding_length": 4, "feed_forward_length": 16, "attention.head_count": 2}
    vectors = [("output_norm", 4)] + [("blk.0." + n, size) for n, size in (
        ("attn_norm", 4), ("attn_qkv", 12), ("attn_output", 4), ("ffn_norm", 4), ("ffn_up", 16), ("ffn_down", 4))]
    gpt2 = ({"general.architecture": (8, b"gpt2"), **{"gpt2." + k: (4, v) for k, v in sizes.items()}, **{
        k: v for k, v in model.items() if "token" in k}},
            [("token_embd.weight", (4, 3), 0), ("position_embd.weight", (4, 8), 0), ("output_norm.weight", (4,), 0)]
            + [(n + ".bias", (size,), 0) for n, size in vectors]
            + [("blk.0." + n + ".weight", dims, 0) for n, dims in (("attn_norm", (4,)), ("attn_qkv", (4, 12)), ("attn_output", (4, 4)), (
                "ffn_norm", (4,)), ("ffn_up", (4, 16)), ("ffn_down", (16, 4)))])
    head = ("output.weight", (4, 3), 0)
    lora = ({"general.architecture": (8, b"llama"), "general.type": (8, b"adapter"), "adapter.type": (8, b"lora"), "adapter.lora.alpha": (6, 4.0)},
            [("blk.0.attn_q.weight.lora_a", (4, 2), 0), ("blk.0.attn_q.weight.lora_b", (2, 4), 1)])
    spm = {"tokenizer.ggml.model": (8, b"llama"), "tokenizer.ggml.scores": (9, (6, [-1.0, -2.0, -0.5]))}
    norm = "output_norm.weight"
    for name, data in (
            ("good-plain", file()), ("good-tied", file(drop=["output.weight"])), ("good-spm", file(spm)), ("good-no-tokenizer", file(drop=[
                "tokenizer.ggml.tokens"])), ("good-aligned", file({"general.alignment": (4, 32)})), ("good-scores-nan", file({
                    **spm, "tokenizer.ggml.scores": (9, (6, [float("nan"), float("inf"), 1.0]))})),
            ("good-shard", file({"split.no": (4, 0), "split.count": (4, 1), "split.tensors.count": (5, 12)})),
            ("bad-shard-name", file({"split.no": (4, 0), "split.count": (4, 3)})), ("bad-shard-second", file({
                "split.no": (4, 1), "split.count": (4, 3)})), ("bad-shards-many", file({"split.count": (4, 1 << 31)})),
            ("good-gpt2", file(base=gpt2)), ("good-gpt2-head", file(tensors=[head], base=gpt2)), ("bad-gpt2-head", file(
                tensors=[("output.weight", (4, 3), 1)], base=gpt2)), ("bad-gpt2-hidden", file({"gpt2.feed_forward_length": (4, 12)}, base=gpt2)),
            ("bad-gpt2-context", file({"gpt2.context_length": (4, 9)}, base=gpt2)), ("bad-gpt2-layers", file({
                "gpt2.block_count": (4, 1 << 29)}, base=gpt2)), ("bad-gpt2-no-heads", file(drop=["gpt2.attention.head_count"], base=gpt2)),
            ("bad-gpt2-missing", file(drop=["blk.0.ffn_up.bias"], base=gpt2)), ("bad-gpt2-extra", file(tensors=[("blk.1.ffn_up.bias", (4,), 0)], base=gpt2)),
            ("bad-gpt2-eps", file({"gpt2.attention.layer_norm_epsilon": (6, 2.0)}, base=gpt2)),
            ("good-lora", file(base=lora)), ("good-lora-alpha-0", file({"adapter.lora.alpha": (6, 0.0)}, base=lora)),
            ("bad-lora-type", file({"adapter.type": (8, b"dora")}, base=lora)), ("bad-lora-alpha", file({"adapter.lora.alpha": (6, -1.0)}, base=lora)),
            ("bad-lora-architecture", file({"general.architecture": (8, b"qwen2")}, base=lora)), ("bad-lora-half", file(
                drop=["blk.0.attn_q.weight.lora_a"], base=lora)), ("bad-lora-none", file(drop=["blk.0.attn_q.weight.lora_b"], base=lora)),
            ("bad-lora-shape", file(tensors=[("blk.0.attn_q.weight.lora_a", (5, 2), 0)], base=lora)),
            ("bad-lora-rank", file(tensors=[("blk.0.attn_v.weight.lora_b", (3, 4), 0)], base=lora)),
            ("bad-lora-extra", file(tensors=[("token_embd.weight.lora_a", (4, 2), 0)], base=lora)),
            ("bad-empty", b""), ("bad-magic", file(magic=b"GGML")), ("bad-version-2", file(version=2)), ("bad-big-endian", file(version=3 << 24)),
            ("bad-cut-header", file()[:300]), ("bad-cut-data", file()[:-40]), ("bad-count-of-keys", file(counts=(12, 1 << 60))),
            ("bad-count-of-tensors", file(counts=(1 << 60, 14))), ("bad-architecture", file({"general.architecture": (8, b"gemma3")})),
            ("bad-architecture-number", file({"general.architecture": (4, 7)})), ("bad-no-architecture", file(drop=["general.architecture"])),
            ("bad-layers-text", file({"llama.block_count": (8, b"one")})), ("bad-layers-huge", file({"llama.block_count": (4, 4000000000)})),
            ("bad-no-layers", file(drop=["llama.block_count"])), ("bad-eps-text", file({"llama.attention.layer_norm_rms_epsilon": (8, b"0")})),
            ("bad-heads-list", file({"llama.attention.head_count": (9, (4, [2]))})), ("bad-heads-zero", file({"llama.attention.head_count": (4, 0)})),
            ("bad-value-length", file({"llama.attention.value_length": (4, 3)})), ("bad-experts", file({"llama.expert_count": (4, 8)})),
            ("bad-scaling", file({"llama.rope.scaling.type": (8, b"longrope")})), ("bad-alignment", file({"general.alignment": (4, 3)})),
            ("bad-alignment-huge", file({"general.alignment": (4, 1 << 31)})), ("bad-key-not-utf8", file().replace(b"llama.block", b"llama.\xffloc", 1)),
            ("bad-type", file(tensors=[(norm, (4,), 13)])), ("bad-type-unknown", file(tensors=[(norm, (4,), 4000000000)])),
            ("bad-blocks", file(tensors=[("output.weight", (4, 3), 2)])), ("bad-overlap", file(tensors=[(norm, (4,), 0, 0)])),
            ("bad-gap", file(tensors=[(norm, (4,), 0, 1 << 20)])), ("bad-offset-wraps", file(tensors=[(norm, (4,), 0, (1 << 64) - 32)])),
            ("bad-shape", file(tensors=[(norm, (5,), 0)])), ("bad-dims-none", file(tensors=[(norm, (), 0)])), ("bad-dims-five", file(tensors=[(norm, (1,) * 5, 0)])),
            ("bad-missing", file(drop=[norm])), ("bad-extra", file(tensors=[("blk.0.ffn_gate_inp.weight", (4, 4), 0)])),
            ("bad-twice", file(tensors=[("x", (4,), 0), ("x", (4,), 0)])), ("bad-name-long", file(tensors=[("x" * 64, (4,), 0)])),
            ("bad-name-empty", file(tensors=[("", (4,), 0)])), ("bad-factors", file(tensors=[("rope_freqs.weight", (1,), 1)])),
            ("bad-nan", file().replace(struct.pack("<f", 0.5), struct.pack("<f", float("nan"))))):
        put("gguf", name, data)


def write_index():
    files = [f"model-{i:05}-of-00002.safetensors" for i in (1, 2)]
    weights = {"transformer.wte.weight": files[0], "transformer.wpe.weight": files[0], "transformer.ln_f.bias": files[1]}
    put("index", "good-two", json.dumps({"metadata": {"total_size": 1000}, "weight_map": weights}, indent=2).encode())
    put("index", "good-one", json.dumps({"weight_map": {"a": "model.safetensors"}}).encode())
    put("index", "good-other-keys", json.dumps({"weight_map": {"": "b c"}, "format": 7}).encode())
    for name, text in (("nothing", b""), ("list", b"[]"), ("cut", b'{"weight_map": {"a": "b"'), ("no-map", b'{"metadata": {}}'),
                       ("empty-map", b'{"weight_map": {}}'), ("map-list", b'{"weight_map": ["a"]}'),
                       ("number", b'{"weight_map": {"a": 1}}'), ("null", b'{"weight_map": {"a": null}}'),
                       ("no-name", b'{"weight_map": {"a": ""}}'), ("parent", b'{"weight_map": {"a": "../b.safetensors"}}'),
                       ("absolute", b'{"weight_map": {"a": "/etc/b.safetensors"}}'), ("hidden", b'{"weight_map": {"a": ".b"}}'),
                       ("inner", b'{"weight_map": {"a": "b/c.safetensors"}}'), ("not-utf8", b'{"weight_map": {"a": "\xff"}}'),
                       ("duplicate", b'{"weight_map": {"a": "b", "a": "c"}}'), ("deep", b'{"a":' + b"[" * 5000),
                       ("trailing", b'{"weight_map": {"a": "b"}}x'),
                       ("many", json.dumps({"weight_map": {str(i): str(i) for i in range(1001)}}).encode())):
        put("index", "bad-" + name, text)


def write_checkpoint():
    # "sign" as the last line: the target makes the checksum right.
    cursor = {"seed": 0, "step": 35, "epoch": 3, "step_in_epoch": 5, "sample": 320}
    files = {n: {"bytes": 104, "crc32": "c4d33fe1"} for n in ("model.safetensors", "optimizer.safetensors")}
    state = {"format": "ddprun checkpoint", "version": 1, "checksum": "00000000", "cursor": cursor,
             "run": {"model": "mlp", "batch size": "8"}, "files": files}

    def text(signed=True, **changes):
        fields = {k: v for k, v in {**state, **changes}.items() if v != "left out"}
        return json.dumps(fields, indent=2).encode() + (b"\nsign" if signed else b"\n")

    put("checkpoint", "good-state", text())
    put("checkpoint", "good-no-facts", text(run={}))
    put("checkpoint", "good-large", text(cursor={**cursor, "step": 2**62}))
    put("checkpoint", "good-extra", text(later={"a": [1, 2]}))
    put("checkpoint", "bad-nothing", b"")
    put("checkpoint", "bad-checksum", text(signed=False))
    put("checkpoint", "bad-no-checksum", text(checksum="left out"))
    put("checkpoint", "bad-checksum-short", text(checksum="0000"))
    put("checkpoint", "bad-checksum-capitals", text(signed=False, checksum="ABCDEF00"))
    put("checkpoint", "bad-no-line-end", text()[:-5])
    put("checkpoint", "bad-long", text(run={"a": "b" * 70000}))
    put("checkpoint", "bad-json", text()[:200] + b"\nsign")
    put("checkpoint", "bad-list", b'["checksum", {"checksum": "00000000"}]\nsign')
    put("checkpoint", "bad-format", text(format="other"))
    put("checkpoint", "bad-version", text(version=2))
    put("checkpoint", "bad-version-text", text(version="1"))
    put("checkpoint", "bad-no-cursor", text(cursor="left out"))
    put("checkpoint", "bad-cursor-list", text(cursor=[1]))
    for name, value in (("negative", -1), ("text", "5"), ("real", 1.5), ("null", None)):
        put("checkpoint", "bad-step-" + name, text(cursor={**cursor, "step": value}))
    put("checkpoint", "bad-no-sample", text(cursor={k: v for k, v in cursor.items() if k != "sample"}))
    put("checkpoint", "bad-no-run", text(run="left out"))
    put("checkpoint", "bad-fact-number", text(run={"model": 1}))
    put("checkpoint", "bad-fact-long", text(run={"model": "m" * 512}))
    put("checkpoint", "bad-fact-name-long", text(run={"m" * 200: "model"}))
    put("checkpoint", "bad-many-facts", text(run={str(i): "x" for i in range(33)}))
    put("checkpoint", "bad-no-files", text(files="left out"))
    put("checkpoint", "bad-one-file", text(files={"model.safetensors": files["model.safetensors"]}))
    for name, file in (("negative", {"bytes": -1, "crc32": "c4d33fe1"}), ("no-crc", {"bytes": 1}),
                       ("crc-short", {"bytes": 1, "crc32": "c4"}), ("crc-long", {"bytes": 1, "crc32": "c4d33fe1a"}),
                       ("crc-capitals", {"bytes": 1, "crc32": "C4D33FE1"}), ("crc-number", {"bytes": 1, "crc32": 1})):
        put("checkpoint", "bad-file-" + name, text(files={**files, "model.safetensors": file}))
    best = {"samples": "640 of 0123456789abcdef", "evaluations_since_best": 2, "best_step": 30, "best_loss": 2.125}
    put("checkpoint", "good-best", text(evaluation=best))
    put("checkpoint", "good-best-whole-loss", text(evaluation={**best, "best_loss": -2}))
    put("checkpoint", "good-best-none", text(evaluation={"samples": "8 of 0", "evaluations_since_best": 1}))
    for name, fields in (("no-samples", {"samples": None}), ("empty-samples", {"samples": ""}), ("long-samples", {"samples": "8" * 64}),
                         ("later", {"best_step": 36}), ("step-zero", {"best_step": 0}), ("step-real", {"best_step": 3.5}),
                         ("loss-text", {"best_loss": "2"}), ("loss-null", {"best_loss": None}),
                         ("since-negative", {"evaluations_since_best": -1}), ("since-null", {"evaluations_since_best": None})):
        put("checkpoint", "bad-best-" + name, text(evaluation={**best, **fields}))
    put("checkpoint", "bad-best-list", text(evaluation=[1]))
    own = {"bytes": 8, "crc32": "c4d33fe1"}
    put("checkpoint", "good-own", text(files={**files, "own-a.B_9-": own}, rate=0.0125))
    put("checkpoint", "good-later-file", text(files={**files, "later": [1]}, rate=0))
    for name, extra in (("two", {"own-a": own, "own-b": own}), ("slash", {"own-../x": own}), ("no-name", {"own-": own}),
                        ("long", {"own-" + "a" * 33: own}), ("no-size", {"own-a": {"crc32": "c4d33fe1"}}), ("list", {"own-a": [1]})):
        put("checkpoint", "bad-own-" + name, text(files={**files, **extra}))
    for name, value in (("text", "0.1"), ("negative", -0.1), ("null", None)):
        put("checkpoint", "bad-rate-" + name, text(rate=value))
    scale = {"scale": 65536.0, "good_steps": 7, "skipped_steps": 35}
    put("checkpoint", "good-scale", text(loss_scale=scale))
    for name, change in (("zero", {"scale": 0.0}), ("negative", {"scale": -2.0}), ("double", {"scale": 0.1}), ("large", {"scale": 1e39}),
                         ("good-negative", {"good_steps": -1}), ("good-many", {"good_steps": 2**31}), ("good-real", {"good_steps": 1.5}),
                         ("skipped-none", {"skipped_steps": None}), ("skipped-more", {"skipped_steps": 36})):
        put("checkpoint", "bad-scale-" + name, text(loss_scale={**scale, **change}))
    put("checkpoint", "bad-scale-list", text(loss_scale=[2.0]))
    local = {"workers": 3, "weights": True, "state": False}
    put("checkpoint", "good-local", text(local=local))
    for name, change in (("zero", {"workers": 0}), ("text", {"workers": "3"}), ("large", {"workers": 2**31}), ("number", {"state": 1}),
                         ("null", {"weights": None})):
        put("checkpoint", "bad-local-" + name, text(local={**local, **change}))


def write_description():
    put("description", "good-mlp", b"mlp dims=1,28,28 classes=10 hidden=512,512")
    put("description", "good-gpt2",
        b"gpt2 dims=64 classes=256 layers=2 heads=2 channels=128 context=64 norm_eps=9.99999975e-06")
    put("description", "good-gelu", b"gpt2 dims=8 classes=9 exact_gelu=1")
    put("description", "good-name-alone", b"resnet")
    put("description", "good-unknown-model", b"later layers=3")
    put("description", "bad-word", b"mlp wide=3")
    put("description", "bad-no-value", b"mlp layers")
    put("description", "bad-empty-value", b"mlp layers=")
    put("description", "bad-number", b"mlp layers=three")
    put("description", "bad-negative", b"gpt2 heads=-1")
    put("description", "bad-large", b"gpt2 channels=99999999999999999999")
    put("description", "bad-dims", b"cnn dims=1,2,3,4,5")
    put("description", "bad-dims-zero", b"cnn dims=1,0,3")
    put("description", "bad-dims-overflow", b"cnn dims=1000000000,1000000000,1000000000")
    put("description", "bad-hidden", b"mlp hidden=" + b",".join([b"1"] * 17))
    put("description", "bad-eps", b"gpt2 norm_eps=nan")
    put("description", "bad-long", b"mlp hidden=" + b"1" * 600)
    put("description", "bad-two-spaces", b"mlp  layers=1")

def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def write_choices():
    words = ("m n k lda ldb ldc transpose_a transpose_b type result align_a align_b align_c bias pre gelu").split()

    def line(signed=True, algorithm=bytes(range(64)).hex(), **changes):
        text = " ".join("%s=%s" % (word, changes.get(word, i)) for i, word in enumerate(words)) + " algorithm=" + algorithm
        return ("%s crc32c=%08x\n" % (text, crc32c(text.encode()) if signed else 0)).encode()

    good = {"one": line(), "several": b"# ddprun\n\n" + line() + line(m=2**63 - 1) + line(m=-2**63), "twice": line() + line(),
            "no-end": line()[:-1]}
    bad = {"empty": b"", "head": b"# ddprun\n", "text": b"hello\n", "sum": line(signed=False), "cut": line()[:-20],
           "flipped": flipped(line(), 90), "word": line().replace(b"ldb", b"ldx"), "no-number": line(k=""), "large": line(k=2**63),
           "leading-zero": line(k="08"), "short": line(algorithm="00" * 63), "long": line(algorithm="00" * 65),
           "upper": line(algorithm="AB" * 64), "no-hex": line(algorithm="zz" * 64), "zero": line().replace(b" k", b"\0k"),
           "windows": line().replace(b"\n", b"\r\n"), "behind": line() + b"x", "endless": b"m=" + b"1" * 5000}
    for name, data in good.items():
        put("choices", "good-" + name, data)
    for name, data in bad.items():
        put("choices", "bad-" + name, data)


def chunk(tag, body):
    return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))


def png(width=5, height=4, depth=8, kind=2, data=None, interlaced=0, before=b"", after=b"", end=chunk(b"IEND", b"")):
    """An image of zeros, when there are no data; those of an interlaced one are given."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(kind, 1)
    if data is None:
        data = zlib.compress((b"\0" + bytes((width * channels * depth + 7) // 8)) * height)
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", data) + after + end


def write_png():
    palette = chunk(b"PLTE", bytes(range(12)))
    image = png()
    data_at = image.index(b"IDAT") + 4
    put("image", "good-png", image)
    put("image", "good-png-one-pixel", png(1, 1, kind=0))
    for depth in 1, 2, 4, 16:
        put("image", "good-png-grey-%d" % depth, png(depth=depth, kind=0))
    put("image", "good-png-alpha", png(kind=6))
    put("image", "good-png-grey-alpha-16", png(kind=4, depth=16))
    put("image", "good-png-palette", png(kind=3, before=palette))
    put("image", "good-png-palette-beyond", png(3, 1, kind=3, before=palette, data=zlib.compress(b"\0\0\1\xff")))
    put("image", "good-png-transparent", png(kind=3, before=palette + chunk(b"tRNS", b"\0\x80")))
    put("image", "good-png-interlaced", png(1, 1, kind=0, interlaced=1, data=zlib.compress(b"\0\7")))
    put("image", "good-png-two-parts", png(data=b"", after=chunk(b"IDAT", zlib.compress((b"\0" + bytes(15)) * 4))))
    put("image", "good-png-text", png(before=chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 24)))))
    put("image", "good-png-text-damaged", png(before=chunk(b"tEXt", b"text")[:-1] + b"x"))
    put("image", "bad-png-signature", image[:8])
    put("image", "bad-png-header-cut", image[:20])
    put("image", "bad-png-data-cut", image[:data_at + 5])
    put("image", "bad-png-end-missing", image[:-12])
    put("image", "bad-png-header-crc", flipped(image, 18))
    put("image", "bad-png-data-crc", flipped(image, data_at + 6))
    put("image", "bad-png-no-data", png(data=b""))
    put("image", "bad-png-data-short", png(data=zlib.compress(bytes(20))))
    put("image", "bad-png-data-not-deflated", png(data=b"pixels"))
    put("image", "bad-png-filter", png(2, 1, kind=0, data=zlib.compress(b"\x09\0\0")))
    put("image", "bad-png-width-zero", png(0, 4, data=zlib.compress(b"\0")))
    put("image", "bad-png-too-wide", png(65536, 1))
    put("image", "bad-png-too-many-pixels", png(65535, 65535, data=zlib.compress(bytes(100))))
    put("image", "bad-png-large-cut", png(13000, 13000, interlaced=1, data=zlib.compress(bytes(100))))
    put("image", "bad-png-size-huge", png(2**31 - 1, 2**31 - 1, data=b""))
    put("image", "bad-png-depth", png(depth=3, kind=0))
    put("image", "bad-png-kind", png(kind=5))
    put("image", "bad-png-no-palette", png(kind=3))
    put("image", "bad-png-chunk-length", image[:33] + struct.pack(">I", 2**32 - 1) + image[37:])
    put("image", "bad-png-chunk-unknown", png(before=chunk(b"ABCD", b"must be understood")))


def marker_at(jpeg, *kinds):
    """Where the first of these markers is, by the lengths of the segments before it."""
    at = 2
    while jpeg[at + 1] not in kinds:
        at += 2 + struct.unpack(">H", jpeg[at + 2:at + 4])[0]
    return at


def write_jpeg():
    """Pillow's files for the golden values, and those damaged."""
    images = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "image_files")
    files = {}
    for name in "rgb.jpg", "grey.jpeg", "progressive.jpg", "cmyk.jpg", "restarts.jpg":
        with open(os.path.join(images, name), "rb") as file:
            files[name] = file.read()
        put("image", "good-jpeg-" + name.split(".")[0], files[name])
    rgb, progressive, restarts = files["rgb.jpg"], files["progressive.jpg"], files["restarts.jpg"]
    size, scan, table = marker_at(rgb, 0xC0) + 5, marker_at(rgb, 0xDA), marker_at(rgb, 0xC4)

    def sized(data, height, width, at=size):
        return data[:at] + struct.pack(">HH", height, width) + data[at + 4:]

    put("image", "good-jpeg-end-missing", rgb[:-2])
    put("image", "good-jpeg-bytes-before-end", rgb[:-2] + b"abc" + rgb[-2:])
    put("image", "good-jpeg-bytes-after-end", rgb + b"abc")
    put("image", "good-jpeg-version", rgb.replace(b"JFIF\0\1", b"JFIF\0\7"))
    put("image", "bad-jpeg-start-only", rgb[:3])
    put("image", "bad-jpeg-header-cut", rgb[:size])
    put("image", "bad-jpeg-data-missing", rgb[:scan + 14])
    put("image", "bad-jpeg-data-cut", rgb[:(scan + len(rgb)) // 2])
    put("image", "bad-jpeg-data-ends", rgb[:(scan + len(rgb)) // 2] + b"\xff\xd9")
    put("image", "bad-jpeg-progressive-cut", progressive[:len(progressive) // 2])
    put("image", "bad-jpeg-progressive-end-missing", progressive[:-2])
    first = marker_at(progressive, 0xDA)
    second = progressive.index(b"\xff\xc4", first)
    put("image", "bad-jpeg-many-scans", progressive[:first] + progressive[first:second] * 500 + progressive[first:])
    put("image", "bad-jpeg-restart", restarts.replace(b"\xff\xd0", b"\xff\xd5", 1))
    put("image", "bad-jpeg-width-zero", sized(rgb, 17, 0))
    put("image", "bad-jpeg-height-zero", sized(rgb, 0, 23))
    put("image", "bad-jpeg-too-many-pixels", sized(rgb, 60000, 60000))
    put("image", "bad-jpeg-large-cut", sized(rgb, 13000, 13000))
    put("image", "bad-jpeg-large-progressive-cut", sized(progressive, 13000, 13000, marker_at(progressive, 0xC2) + 5))
    put("image", "bad-jpeg-12-bits", rgb[:size - 1] + b"\x0c" + rgb[size:])
    put("image", "good-jpeg-table-missing", rgb[:table] + rgb[scan:])  # then they are the usual ones
    quantization = marker_at(rgb, 0xDB)
    put("image", "bad-jpeg-quantization-missing", rgb[:quantization] + rgb[marker_at(rgb, 0xC0):])
    put("image", "bad-jpeg-segment-length", rgb[:quantization + 2] + b"\0\0" + rgb[quantization + 4:])
    put("image", "bad-empty", b"")
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
    put("image", "good-jpeg-turned", rgb[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + rgb[2:])
    for name, wrong in (("orientation", exif.replace(b"\0\6", b"\0\x63")), ("count", exif.replace(b"\x08\0\1", b"\x08\xff\xff")),
                        ("offset", exif.replace(b"\0\0\0\x08", b"\xff\xff\xff\xff")), ("cut", exif[:12])):
        put("image", "good-jpeg-exif-" + name, rgb[:2] + b"\xff\xe1" + struct.pack(">H", len(wrong) + 2) + wrong + rgb[2:])
    put("image", "bad-text", b"<html>404</html>")


def write_bmp():
    def bmp(width=3, height=2, bits=24, packing=0, data=bytes(24), size=40, extra=b""):
        head = struct.pack("<IiiHHIIiiII", size, width, height, 1, bits, packing, 0, 0, 0, 0, 0)
        return b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + len(extra)) + head + extra + data

    palette = bytes(range(64))
    put("image", "good-bmp", bmp())
    put("image", "good-bmp-top-down", bmp(height=-2))
    put("image", "good-bmp-palette", bmp(bits=4, extra=palette, data=b"\x12\x30\0\0" * 2))
    put("image", "good-bmp-bits", bmp(width=9, bits=1, extra=palette[:8], data=b"\xaa\x80\0\0" * 2))
    put("image", "good-bmp-masks", bmp(bits=32, packing=3, extra=struct.pack("<III", 1 << 31, 0x7FFFFFFF, 5)))
    put("image", "good-bmp-core", b"BM" + struct.pack("<IHHIIHHHH", 0, 0, 0, 26, 12, 3, 2, 1, 24) + bytes(24))
    put("image", "bad-bmp-start-only", b"BM")
    put("image", "bad-bmp-header-cut", bmp()[:40])
    put("image", "bad-bmp-header-size", bmp(size=39))
    put("image", "bad-bmp-palette-cut", bmp(bits=8, data=b"", extra=palette))
    put("image", "bad-bmp-data-cut", bmp(data=bytes(23)))
    put("image", "bad-bmp-bits", bmp(bits=2))
    put("image", "bad-bmp-packed", bmp(bits=8, packing=1, data=bytes(2000)))
    put("image", "bad-bmp-mask-missing", bmp(bits=32, packing=3, extra=bytes(12)))
    put("image", "bad-bmp-negative", bmp(width=-3))
    put("image", "bad-bmp-height-least", bmp(height=-2**31))
    put("image", "bad-bmp-large-cut", bmp(13000, 13000))


def image_libraries():
    """Formats that this build reads: in its folder tests run."""
    try:
        with open("config.h") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return []
    return [name for name in ("WEBP", "GIF", "TIFF") if f"#define HAVE_{name} 1" in lines]


def write_other_images():
    """Pillow's files, and those damaged. What a build lacks the library for is bad in all forms."""
    images = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "image_files")
    has = image_libraries()
    for kind, suffix, names in (("WEBP", ".webp", ("rgb", "lossless", "alpha", "turned")), ("GIF", ".gif", ("palette", "grey", "interlaced", "animated")),
                                ("TIFF", ".tiff", ("rgb", "grey", "palette", "bits-1", "rgb-tiff_lzw", "rgb-tiff_adobe_deflate"))):
        for name in names:
            with open(os.path.join(images, name + suffix), "rb") as file:
                data = file.read()
            put("image", f"{'good' if kind in has else 'bad'}-{kind.lower()}-{name}", data)
            put("image", f"bad-{kind.lower()}-{name}-cut", data[:len(data) // 3])
            put("image", f"bad-{kind.lower()}-{name}-start", data[:14])
    gif = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
    put("image", "good-gif-small" if "GIF" in has else "bad-gif-small", gif)
    put("image", "bad-gif-no-palette", gif.replace(b"\x80\0\0\0\0\0\xff\xff\xff", b"\0\0\0"))
    put("image", "bad-gif-no-picture", gif[:19] + b";")
    put("image", "bad-gif-outside", gif.replace(b",\0\0", b",\1\0"))
    put("image", "bad-gif-canvas-huge", gif.replace(b"89a\1\0\1\0", b"89a\xff\xff\xff\xff"))
    head = b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0"
    put("image", "bad-webp-animated", head + b"\2\0\0\0\0\0\0\0\0\0" + b"ANIM\6\0\0\0" + bytes(6))
    put("image", "bad-webp-huge", head + b"\0\0\0\0" + b"\xff" * 6)

    def tiff(tags, order="<", data=bytes(64)):
        head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
        return head + struct.pack(order + "H", len(tags)) + b"".join(
            struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in tags) + bytes(4) + data

    tags = [(256, 4), (257, 4), (258, 8), (259, 1), (262, 1), (273, 126), (277, 1), (278, 4), (279, 16)]
    put("image", "good-tiff-small" if "TIFF" in has else "bad-tiff-small", tiff(tags))
    for name, tag, value in (("huge", 256, 60000), ("wide", 256, 2**32 - 1), ("bits", 258, 7), ("packing", 259, 12345),
                             ("offset", 273, 2**32 - 1), ("samples", 277, 60000)):
        put("image", "bad-tiff-" + name, tiff([(t, value if t == tag else v) for t, v in tags], ">" if name == "bits" else "<"))
    put("image", "bad-tiff-no-directory", b"II*\0\xff\xff\xff\xff")
    put("image", "bad-tiff-loops", tiff(tags)[:118] + struct.pack("<I", 8))


def write_text():
    lines = ('{"text": "Once upon a time"}\n{"id": 7, "text": "two\\nlines", "meta": {"text": [1, 2.5e300, null]}}\n'
             '\n{"text": ""}\n{"text": "caf\\u00e9 \\ud83d\\ude00 \\u0000", "text": "the last one counts"}').encode()
    put("text", "good-lines", lines)
    put("text", "good-windows", b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n"))
    put("text", "good-nothing", b"")
    put("text", "good-blank", b"\n \t\r\n\n")
    put("text", "good-large-number", b'{"n": 123456789012345678901234567890, "text": "a"}')
    put("text", "good-gzip", packed(lines))
    put("text", "good-gzip-two-members", packed(lines + b"\n") + packed(lines))
    put("text", "bad-gzip-cut", packed(lines)[:-5])
    put("text", "bad-gzip-trailing", packed(lines) + b"x")
    put("text", "bad-gzip-flipped", flipped(packed(lines), 30))
    for name, line in (("list", b'["text"]'), ("string", b'"text"'), ("no-text", b'{"txt": "a"}'), ("number", b'{"text": 1}'),
                       ("null", b'{"text": null}'), ("cut", b'{"text": "a'), ("two-objects", b'{"text": "a"} {"text": "b"}'),
                       ("surrogate", b'{"text": "\\ud800"}'), ("not-utf8", b'{"text": "\xff"}'), ("zero", b'{"text": "a\0"}'),
                       ("deep", b'{"text": "a", "b":' + b"[" * 5000), ("over-two-lines", b'{"text":\n"a"}')):
        put("text", "bad-" + name, b'{"text": "good"}\n' + line + b"\n")


def write_jinja():
    loop = b"{% for m in messages %}{{ m.role + ': ' + m['content'] | trim }}{% endfor %}"
    put("jinja", "good-loop", loop)
    put("jinja", "good-data", loop + b'\0{"messages": [{"role": "a", "content": " b "}, {}]}')
    put("jinja", "good-macro", b"{% macro f(a, b=1) -%} {{ a ~ b }} {%- endmacro %}{{ f(2) }}{{ f(b=3, a=4) }}{{ f(*[5]) }}{% set x, y = 1, [2] %}")
    put("jinja", "good-set", b"{%- set ns = namespace(a=0) %}{% set ns.a = 1.5 %}{% set b %}{# no #}x{% endset %}{{ b[::-1] ~ ns.a }}{% generation %}{% endgeneration %}")
    put("jinja", "good-filters", b"{{ tools | default([]) | map('string') | join(',') }}{{ messages | tojson(indent=2) }}{{ messages[1].content.split('<')[-1] | replace('b', 'c') }}"
        b"{{ messages[1] | dictsort }}{{ 'a b' | capitalize | indent(2) }}{{ strftime_now('%d %b') }}{{ [3, 1] | sort | first }}{{ 'a' in 'ba' and 1 is not none }}")
    put("jinja", "good-endless", b"{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}")
    for name, text in (("if", b"{% if a %}"), ("string", b"{{ 'a }}"), ("escape", b"{{ '\\u12' }}"), ("tag", b"{{ a"), ("comment", b"{# a"), ("statement", b"{% include 'a' %}"),
                       ("loop", b"{% break %}"), ("deep", b"{{ " + b"(" * 5000), ("deep-bodies", b"{% if a %}" * 5000), ("number", b"{{ 12345678901234567890 }}"),
                       ("not-utf8", b"\xff"), ("end", b"{% endif %}"), ("target", b"{% set 1 = 2 %}"), ("minus", b"{{ " + b"-" * 5000 + b"1 }}")):
        put("jinja", "bad-" + name, text)


def write_record():
    def turn(role, content, **more):
        return {"role": role, "content": content, **more}

    hi, hello = turn("user", "Hi"), turn("assistant", "Hello \u00e9 \U0001f600")
    chats = [{"messages": [turn("system", ""), hi, hello, hi, turn("assistant", "", name="x")]}, {"messages": [hello], "id": 2.5e300}]
    lines = "\n".join(json.dumps(line) for line in (*chats, {"prompt": "Q: ", "completion": "A", "text": 5}, {"text": "a\0b"})).encode()
    others = ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}, {"prompt": [hi], "completion": [hello]},
              {"conversations": [{"from": "function_call", "value": json.dumps([{"name": "f", "arguments": {}}])}, {"from": "observation", "value": "4"}]},
              {"instruction": "Q", "input": "in\0", "output": "A", "system": "S", "history": [["a", "b"]], "tools": []},
              {"prompt": "2 + 2 =", "choices": ["3", "4"], "answer": 1, "text": "a question"})
    put("record", "good-others", "\n".join(map(json.dumps, others)).encode())
    put("record", "good-lines", lines)
    put("record", "good-windows", b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n"))
    put("record", "good-blank", b"\n \t\r\n\n" + lines + b"\n\n")
    put("record", "good-gzip", packed(lines))
    put("record", "bad-gzip-cut", packed(lines)[:-5])
    put("record", "bad-cut", lines[:-3])
    bad = {"empty": {}, "list": ["text"], "call": {"conversations": [{"from": "function_call", "value": "[{}]"}]}, "text-number": {"text": 1}, "prompt-alone": {"prompt": "Q"}, "completion-alone": {"completion": "A"},
           "completion-null": {"prompt": "Q", "completion": None}, "prompt-list": {"prompt": [hi], "completion": "Hello"},
           "tools": {"messages": [hello], "tools": {}}, "history": {"instruction": "Q", "output": "A", "history": [["a", "b"], 5]},
           "no-messages": {"messages": []}, "messages-text": {"messages": "Hi"}, "message-text": {"messages": ["Hi", hello]},
           "no-role": {"messages": [{"content": "Hi"}, hello]}, "role-number": {"messages": [turn(5, "Hi"), hello]},
           "no-content": {"messages": [{"role": "assistant"}]}, "content-parts": {"messages": [turn("assistant", [hi])]},
           "no-calls": {"messages": [hi, {"role": "assistant", "tool_calls": []}]}, "tools-of-text": {"text": "a", "tools": [{}]}, "no-assistant": {"messages": [hi]}}
    for name, line in bad.items():
        put("record", "bad-" + name, lines + b"\n" + json.dumps(line).encode() + b"\n")
    for name, line in (("not-utf8", b'{"text": "\xff"}'), ("surrogate", b'{"text": "\\ud800"}'), ("zero", b'{"text": "a\0"}'),
                       ("deep", b'{"messages": ' + b"[" * 5000), ("two-objects", b'{"text": "a"} {"text": "b"}')):
        put("record", "bad-" + name, lines + b"\n" + line)

def write_yaml():
    good = {"empty": "", "remarks": "# nothing\n", "flow": "{a: 1, b: [x, 'y'], c: \"\\x41\\L\"}", "document": "%YAML 1.1\n---\na: 1\n...\n",
            "block": "model: llama\nlora: [r=16, 'alpha=32']\ndata:\n- a.jsonl:2\n- b.jsonl:1\nlr: 2e-4 # a rate\neval: false\nstop: |\n  a\n  b\nsave:\n"}
    bad = {"list": "- a\n", "scalar": "a", "twice": "a: 1\nb: 2\na: 3\n", "anchor": "a: &x 1\nb: *x\n", "alias": "a: *x\n", "tag": "a: !!int 5\n", "mapping": "a: {b: 1}\n",
           "nested": "a: [[b]]\n", "no-elements": "a: []\n", "zero": 'a: "b\\0"\n', "documents": "a: 1\n---\nb: 2\n", "open": "a: [b", "tab": "a:\n\t- b\n", "key-list": "? [a]\n: b\n",
           "anchored-mapping": "&x\na: 1\n", "merge": "<<: {a: 1}\n", "control": "a: \x01\n", "deep": "a: " + "[" * 5000, "deep-key": "{" * 5000,
           "laughs": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"}
    for kind, texts in (("good-", good), ("bad-", bad)):
        for name, text in texts.items():
            put("yaml", kind + name, text.encode())
    put("yaml", "bad-not-utf8", b"a: \xff\n")


def write_link():
    hello_phase, proof_phase, join_phase, joined, waiting, running = range(6)

    def frame(kind, data=b"", size=None):
        return struct.pack("=II", len(data) if size is None else size, kind) + data

    def hello(magic=0x6b6e696c70726464, protocol=7, node=1, nodes=4, version=b"0.3.0"):
        return frame(1, struct.pack("=QIIIIQ32s32s32x", magic, protocol, 2, node, nodes, 7, bytes(range(32)), version))

    def join(version=b"0.3.0", host=b"node1", contact=b"10.0.0.2 29500", command=b"trainer\0--steps\0004", nproc=2):
        return frame(3, struct.pack("=IIIIQ32s256s80s1024s", nproc, 0, 1, 0, 9, version, host, contact, command))

    def member(nproc, name, contact=b"10.0.0.1 29500"):
        return frame(5, struct.pack("=I80s", nproc, contact) + name)

    def welcome(node=1, nodes=2, port=29500, restart=0):
        return frame(6, struct.pack("=IIIIIIQ", node, nodes, port, restart, 0, 3, 5))

    def text(kind, words):
        return frame(kind, struct.pack("=IiiiII", 0, 7, 1, 5, 1, 0) + words)

    def link(name, phase, data, piece=0):
        put("link", name, bytes([phase, piece]) + data)

    step = struct.pack("=IIq", 0, 1, 2)
    status = struct.pack("=Iiqqq16sII", 0, 2, 5, 6, 1000, b"backward", 1, 0)
    link("good-hello", hello_phase, hello())
    link("good-hello-bytes", hello_phase, hello(), 1)
    link("good-hello-other-protocol", hello_phase, hello(protocol=8, node=9, nodes=0, version=b"x" * 32))
    link("good-refused", hello_phase, frame(4, struct.pack("=II1000s", 3, 2, b"")))
    link("good-proof", proof_phase, frame(2, bytes(32)))
    link("good-proof-largest", proof_phase, frame(2, bytes(2048)), 255)
    link("good-join", join_phase, join())
    link("good-joined-pings", joined, frame(7, status) * 3 + frame(8), 7)
    link("good-welcome", waiting, frame(7, status) + member(3, b"node0\0") + member(1, b"node1\0") + welcome())
    link("good-welcome-again", running, member(4096, b"\0") + member(2, b"x" * 255 + b"\0") + welcome(restart=3))
    link("good-welcome-waits", running, welcome(node=2))
    link("good-id", running, frame(16, struct.pack("=III", 0, 63, 0) + b"x") + frame(16, struct.pack("=III", 0, 0, 1) + bytes(256)))
    link("good-id-empty", running, frame(16, bytes(12)))
    link("good-address", running, frame(16, struct.pack("=III", 0, 67, 0) + bytes(1016)), 100)
    link("good-steps", running, b"".join(frame(kind, step) for kind in (18, 19, 20, 21, 22, 25, 26, 27, 28)), 13)
    link("good-texts", running, text(23, b"what\nfailed\0") + text(24, b"\0") + text(24, b"x" * 16383 + b"\0"))
    link("good-lost", running, frame(9, b"node 1 is lost\0"))
    link("good-nothing", running, b"")
    for name, phase, data in (
            ("hello-magic", hello_phase, hello(magic=1)), ("hello-cut", hello_phase, hello()[:-1]),
            ("hello-node", hello_phase, hello(node=4)), ("hello-version", hello_phase, hello(version=b"x" * 32)),
            ("hello-again", proof_phase, hello()), ("hello-longer", hello_phase, frame(1, bytes(129))),
            ("http", hello_phase, b"GET / HTTP/1.0\r\n\r\n"), ("4-gigabytes", hello_phase, frame(1, bytes(4096), 2**32 - 1)),
            ("proof-early", hello_phase, frame(2, bytes(32))), ("proof-too-long", proof_phase, frame(2, bytes(2049))),
            ("join-early", hello_phase, join()), ("join-host", join_phase, join(host=b"x" * 256)),
            ("join-version", join_phase, join(version=b"x" * 32)), ("message-early", joined, frame(25, step)),
            ("member-no-end", waiting, member(1, b"node1")), ("member-none", waiting, frame(5)),
            ("member-no-workers", waiting, member(0, b"node1\0")), ("member-workers", running, member(4097, b"node1\0")),
            ("member-longer", waiting, member(1, bytes(257))), ("join-no-workers", join_phase, join(nproc=0)),
            ("port", waiting, welcome(port=65536)), ("port-zero", waiting, welcome(port=0)), ("welcome-0", running, welcome(node=0)),
            ("welcome-restart", running, welcome(restart=2**31)),
            ("join-command", join_phase, join(command=b"x" * 1024)), ("join-contact", join_phase, join(contact=b"1" * 80)),
            ("refused-text", hello_phase, frame(4, struct.pack("=II1000s", 3, 2, b"x" * 1000))),
            ("ping-phase", running, frame(7, status[:-24] + b"x" * 16 + status[-8:])), ("kind-unknown", running, frame(29, step)),
            ("kind-zero", running, frame(0)), ("kind-large", running, frame(2**32 - 1)), ("lost-no-end", running, frame(9, b"x")),
            ("address-longer", running, frame(16, bytes(12 + 1017))), ("kind-unused", running, frame(17, step)),
            ("step-shorter", running, frame(18, step[:-1])), ("step-longer", running, frame(18, step + b"x")),
            ("text-no-end", running, text(24, b"what")), ("text-two-ends", running, text(24, b"a\0b\0")),
            ("text-none", running, text(24, b"")), ("text-longer", running, text(23, b"x" * 16384 + b"\0")),
            ("header-cut", running, frame(25, step)[:5]), ("goodbye-longer", running, frame(8, b"x"))):
        link("bad-" + name, phase, data)
    put("link", "bad-no-phase", bytes([6, 0]))


def write_plan_text():
    plan = (b"model    gpt2, 3241472 parameters\ndata     book.txt, 1362 samples of 64 tokens, shuffled\n"
            b"workers  4 workers on 2 nodes x 1 cpu thread, mode ddp\nbatch    2 samples x 8 shards (2 a worker) = global batch 16\n"
            b"memory   weights 13.0 MB + gradients 38.9 MB + optimizer 25.9 MB + activations 13.6 MB a worker\n"
            b"compute  10.1 GFLOP a step, 1.27 GFLOP a sample\n")
    good = {"cpu": plan, "cut": plan[:-20], "gpu": plan.replace(b" x 1 cpu thread", b", on cuda: NVIDIA H100"),
            "replicas": plan.replace(b"4 workers on 2 nodes", b"2 replicas").replace(b"ddp", b"dp"),
            "small": plan.replace(b"10.1 GFLOP", b"101 FLOP"), "no-memory": plan.replace(b"memory", b"nemory"),
            "name": plan.replace(b"gpt2", b'"\\'), "zero": plan.replace(b"13.6", b"\0")}
    bad = {"empty": b"", "log": b'{"event":"run"}\n', "model": plan[:34], "no-compute": plan.replace(b"10.1 ", b""),
           "no-mode": plan.replace(b", mode ddp", b""), "no-workers": plan.replace(b"4 workers", b"0 workers"),
           "no-batch": plan.replace(b"2 samples", b"- samples"), "not-finite": plan.replace(b"10.1", b"nan"),
           "huge": plan.replace(b"2 samples", b"1e29 Esamples"), "not-utf8": plan.replace(b"gpt2", b"\xff")}
    for name, data in good.items():
        put("plan_text", "good-" + name, data)
    for name, data in bad.items():
        put("plan_text", "bad-" + name, data)


def write_run_log():
    def line(event, **members):
        return json.dumps({"event": event, **members}, separators=(",", ":")).encode() + b"\n"

    def run(first_step=1, seed=0, **members):
        config = {"model": "mlp", "parameters": 10, "data": "d", "mode": "ddp", "device": "cpu", "batch_size": 4,
                  "shards": 2, "global_batch": 8, "total_steps": 4, "seed": seed}
        memory = {"weights": 1, "gradients": 2, "optimizer": 3, "activations": 4}
        return line("run", **{"format": 1, "time": 1000.0, "first_step": first_step, "world_size": 2, "nodes": 1,
                              "replicas": 1, "config": config, "memory_bytes": memory, "exchange_bytes": 40.0, **members})

    def steps(first, last, **members):
        return b"".join(line("step", **{"step": i, "epoch": 1, "time": 1000.0 + i, "loss": 2.0 / i, "learning_rate": 0.1,
                                        "seconds": 0.5, "samples_per_second": 16.0, "waiting_for_data": 0.1,
                                        "gradient_norm": 1.0, **members}) for i in range(first, last + 1))

    end = line("end", time=1010.0, step=4, status="success", seconds=2.0, memory_peak_bytes=1e6)
    test = line("evaluation", step=2, epoch=1, time=1002.0, test_loss=0.5, test_accuracy=0.75, samples=8, seconds=0.1)
    good = {
        "whole": run() + steps(1, 2) + test + line("checkpoint", step=2, time=1003.0) + steps(3, 4) + end,
        "no-steps": run(),
        "old": run(format=None).replace(b'"format":null,', b"") + steps(1, 4),
        "restarted": run() + steps(1, 3) + run(first_step=3) + steps(3, 4) + end,
        "killed": run() + steps(1, 3)[:-20] + b"\n" + run(first_step=2) + steps(2, 4),
        "two": run() + steps(1, 4) + end + run() + steps(1, 4) + end,
        "cut": run() + steps(1, 4)[:-1 - 30],
        "null": run() + steps(1, 4, loss=None, gradient_norm=None),
        "tokens": run() + steps(1, 4, tokens_per_second=99.0),
        "noise": run() + steps(1, 4, gradient_noise_scale=9.5),
        "unknown": run(later=1) + line("later", step=1) + steps(1, 1, later=[1]),
        "large-step": run() + steps(2**53 - 1, 2**53 - 1),
        "resumed-complete": run() + steps(1, 4) + end + run(first_step=5) + end,
        "negative-time": run(time=-1e300) + steps(1, 2, seconds=-1e300, samples_per_second=1e300),
        "facts": run(host="a", versions={"ddprun": "1", "": 2.5, "deep": {"x": [1]}}, command=[
            "trainer", "--a", "1", "--a=2", "-b3", "-c", "--", "-", "--d_e", 5, None, "--" + "x" * 100, "y" * 300]) + steps(1, 2) +
        line("evaluation", step=2, test_loss=None, test_=1.0, test_a=2, test_b="c", **{f"test_{i}": i for i in range(70)}) +
        run(first_step=2, command="trainer") + steps(2, 3),
        "control": run(seed="18446744073709551615").replace(b'"mlp"', b'"\\u001b[2J"') + steps(1, 1),
    }
    bad = {
        "empty": b"", "newline": b"\n", "no-run": steps(1, 2), "text": b"epoch 1: loss 2\n", "list": b"[]\n",
        "format": run(format=2), "format-text": run(format="1"), "no-config": run(config=None),
        "no-first-step": run(first_step=None), "first-step-zero": run(first_step=0),
        "step-zero": run() + line("step", step=0),
        "step-text": run() + line("step", step="1"), "step-huge": run() + line("step", step=2**53),
        "back": run() + steps(1, 2) + steps(1, 2), "middle": run() + steps(1, 2)[:-9] + b"\n" + steps(2, 3),
        "twice": run() + b'{"event":"end","event":"end"}\n', "evaluation": run() + line("evaluation"),
        "checkpoint": run() + line("checkpoint", step=-1), "no-event": run() + b"{}\n",
        "not-utf8": run() + b'{"event":"\xff"}\n',
    }
    for name, data in good.items():
        put("run_log", "good-" + name, data)
    for name, data in bad.items():
        put("run_log", "bad-" + name, data)


def write_history():
    def chained(*objects):
        chain, lines = "", b""
        for item in objects:
            text = json.dumps(item, separators=(",", ":"))[:-1]
            chain = hashlib.sha256(((chain if item["event"] != "run" else "") + text).encode()).hexdigest()
            lines += f'{text},"chain":"{chain}"}}\n'.encode()
        return lines

    def run(first_step=1, config={}, **members):
        config = {"seed": 0, "shards": 2, "batch_size": 4, **config}
        return {"event": "run", "first_step": first_step, "world_size": 2, "config": config, "options": ["--steps=4", "--no-eval"],
                "run": {"shards": "2"}, "weights": "0" * 64, "tensors": ["0" * 16, "f" * 16], **members}

    def hashed(step, **members):
        return {"event": "hash", "step": step, "weights": "1" * 64, "tensors": ["1" * 16, "a" * 16], **members}

    step = {"event": "step", "step": 1, "loss": 2.0}
    plain = b'{"event":"run","first_step":1}\n{"event":"step","step":1}\n'
    whole = chained(run(), step, hashed(2), hashed(4), {"event": "end"})
    lines = whole.splitlines(True)
    good = {
        "whole": whole, "resumed": whole + chained(run(3), hashed(6)), "behind-another": plain + whole, "before-another": whole + plain,
        "cut": whole[:-20], "killed": whole[:-20] + b"\n" + chained(run(3), hashed(4)), "seed": chained(run(config={"seed": str(2**64 - 1)}), hashed(1)),
        "sign": whole.replace(b'"loss":2.0', b'"loss":3.0') + b"sign", "unknown": chained(run(later=1), {"event": "later"}, hashed(1)),
    }
    bad = {
        "empty": b"", "text": b"one\ntwo\n", "no-hashes": plain, "edited": whole.replace(b'"loss":2.0', b'"loss":3.0'),
        "edited-run": whole.replace(b"--steps=4", b"--steps=5"), "line-gone": b"".join(lines[:1] + lines[2:]),
        "order": b"".join([lines[0], lines[2], lines[1], *lines[3:]]), "unchained": whole + b'{"event":"hash","step":5}\n',
        "half-between": lines[0] + lines[1][:-20] + b"\n" + lines[2], "hash-before-run": lines[2] + whole, "no-options": chained(run(), hashed(1, weights=1)),
        "chain-alone": b"".join(lines[:2]) + b',"chain":"' + b"0" * 64 + b'"}\n' + b"".join(lines[2:]),
        "word": chained(run(options=["steps"]), hashed(1)), "words": chained(run(options=3), hashed(1)), "first-step": chained(run(0), hashed(1)),
        "tensor": chained(run(), hashed(1, tensors=["1"])), "weights-short": chained(run(weights="00"), hashed(1)), "step-zero": chained(run(), hashed(0)),
        "step-huge": chained(run(), hashed(10**16)), "facts": chained(run(run=[1]), hashed(1)), "seed": chained(run(config={"seed": -1}), hashed(1)),
        "upper-case": chained(run(), hashed(1, weights="A" * 64)), "not-utf8": lines[0] + b'{"event":"\xff"}\n' + lines[1],
    }
    for name, data in good.items():
        put("history", "good-" + name, data)
    for name, data in bad.items():
        put("history", "bad-" + name, data)


def write_trace():
    def event(**members):
        return json.dumps(members, separators=(",", ":")).encode() + b",\n"

    def span(name, ts, dur, pid=0, tid=0, **members):
        return event(name=name, ph="X", ts=ts, dur=dur, pid=pid, tid=tid, **members)

    def step(n, ts, pid=0):
        return (span("forward", ts + 1, 30, pid) + span("linear", ts + 2, 20, pid) + span("finish all-reduces", ts + 50, 40, pid) +
                span("wait", ts + 60, 25, pid) + span("step", ts, 100, pid, args={"step": n}))

    def bucket(phase, ts):
        return event(name="bucket", cat="bucket", ph=phase, id2={"local": "45"}, ts=ts, pid=0, tid=0)

    names = event(name="thread_name", ph="M", pid=0, tid=0, args={"name": "main"})
    whole = b"[\n" + names + step(1, 1000.5) + step(1, 1001, 1) + bucket("b", 1030) + bucket("e", 1070)
    good = {"whole": whole[:-2] + b"\n]\n", "open": whole, "cut": whole[:-15], "bucket-open": whole + bucket("b", 1080),
            "bucket-end-alone": whole + bucket("e", 1), "negative": whole + span("wait", -1e300, 1e308),
            "deep": whole + b"".join(span("x", 2000 + i, 1000 - 2 * i) for i in range(100)),
            "pid-huge": whole + span("x", 1, 1, pid=2**62), "no-name": whole + event(ph="X")}
    bad = {"empty": b"", "array": b"[\n]\n", "no-step": b"[\n" + names + span("x", 1, 1), "text": b"trace\n",
           "line": whole + b"x\n" + names, "one-line": json.dumps([{"name": "step"}]).encode()}
    for name, data in good.items():
        put("trace", "good-" + name, data)
    for name, data in bad.items():
        put("trace", "bad-" + name, data)


def write_tokenizer():
    def tokenizer(text="a b", added=(), **parts):
        model = dict(type="BPE", vocab={"a": 0, "b": 1, "ab": 2, "\u2581": 3, "\u2581a": 4, "<unk>": 5, "\u0120": 6}, merges=["a b", ["\u2581", "a"]])
        for key in list(parts):
            if key in ("vocab", "merges", "unk_token", "byte_fallback", "fuse_unk", "ignore_merges", "dropout", "kind"):
                model["type" if key == "kind" else key] = parts.pop(key)
        root = dict(added_tokens=list(added), normalizer=None, pre_tokenizer=dict(type="ByteLevel"), post_processor=None,
                    decoder=dict(type="ByteLevel"), model=model)
        root.update(parts)
        return (json.dumps(root) + "\n" + text).encode()

    def special(content, id, **more):
        return dict(dict(id=id, content=content, special=True, normalized=False), **more)

    def split(regex, **more):
        return dict(dict(type="Split", pattern=dict(Regex=regex), behavior="Isolated", invert=False), **more)

    def steps(*list_):
        return dict(type="Sequence", pretokenizers=list(list_))

    bytes_ = {"<0x%02X>" % b: 100 + b for b in range(256)}
    characters = dict(vocab={"<unk>": 0, "a": 1, "\u2581": 2, "\u2581a": 3, **bytes_}, merges=["\u2581 a"], unk_token="<unk>", byte_fallback=True, fuse_unk=True,
                      decoder=dict(type="Sequence", decoders=[dict(type="Replace", pattern=dict(String="\u2581"), content=" "), dict(type="ByteFallback"),
                                                             dict(type="Fuse"), dict(type="Strip", content=" ", start=1, stop=0)]))
    level = dict(type="ByteLevel", use_regex=False)
    good = {
        "gpt2": tokenizer("aabb a\u00e9 <s>", [special("<s>", 9, normalized=True)]),
        "qwen": tokenizer("e\u0301 ab", [special("<s>", 9)], normalizer=dict(type="NFC"), pre_tokenizer=steps(split(r"\p{L}+|[^\s]|\s+(?!\S)|\s+"), level), ignore_merges=True),
        "legacy": tokenizer("a a \u65e5", pre_tokenizer=None, **characters,
                            normalizer=dict(type="Sequence", normalizers=[dict(type="Prepend", prepend="\u2581"), dict(type="Replace", pattern=dict(String=" "), content="\u2581")])),
        "metaspace": tokenizer(" a a", [special("<s>", 9)], pre_tokenizer=dict(type="Metaspace", replacement="\u2581", prepend_scheme="first", split=False), **characters,
                               post_processor=dict(type="TemplateProcessing", single=[dict(SpecialToken=dict(id="<s>")), dict(Sequence=dict(id="A"))], special_tokens={"<s>": dict(ids=[9])})),
        "words": tokenizer(pre_tokenizer=dict(type="Metaspace", replacement="\u2581"), **characters),
        "digits": tokenizer("a12", pre_tokenizer=steps(dict(type="Digits", individual_digits=True), dict(type="ByteLevel"))),
        "slow": tokenizer("a" * 64, pre_tokenizer=steps(split("(a+)+b"), level)), "not-utf8": tokenizer() + b"\xff",
        "literal": tokenizer("a ab", pre_tokenizer=steps(split(None, pattern=dict(String="a ")), level)),
        "empty-text": tokenizer(""), "empty-token": tokenizer(vocab={"": 0, "a": 1}, merges=[]), "long": tokenizer("ab" * 500),
    }
    bad = {
        "empty": b"", "cut": tokenizer()[:200], "list": b"[]\n", "no-model": b"{}\n", "word-piece": tokenizer(kind="WordPiece"), "unigram": tokenizer(kind="Unigram"),
        "dropout": tokenizer(dropout=0.1), "id-huge": tokenizer(vocab={"a": 2**40}), "id-too-huge": tokenizer().replace(b'"a": 0', b'"a": 99999999999999999999'),
        "id-negative": tokenizer(vocab={"a": -1}), "id-twice": tokenizer(vocab={"a": 1, "b": 1}), "vocab-list": tokenizer(vocab=["a"]),
        "merge-unknown": tokenizer(merges=["a z"]), "merge-result": tokenizer(merges=["b a"]), "merge-twice": tokenizer(merges=["a b", "a b"]),
        "merge-empty": tokenizer(vocab={"": 0, "a": 1}, merges=[["", "a"]]), "merge-three": tokenizer(merges=["a b a"]), "merge-number": tokenizer(merges=[3]),
        "unknown": tokenizer(unk_token="zz"), "nfkc": tokenizer(normalizer=dict(type="NFKC")), "replace-empty": tokenizer(normalizer=dict(type="Replace", pattern=dict(String=""), content="x")),
        "punctuation": tokenizer(pre_tokenizer=dict(type="Punctuation")), "split-removed": tokenizer(pre_tokenizer=steps(split("a", behavior="Removed"), level)),
        "regex": tokenizer(pre_tokenizer=steps(split("(a"), level)), "regex-word": tokenizer(pre_tokenizer=steps(split("\\w+"), level)),
        "regex-anchor": tokenizer(pre_tokenizer=steps(split("^a"), level)), "regex-class": tokenizer(pre_tokenizer=steps(split("[a[b]]"), level)),
        "steps": tokenizer(pre_tokenizer=steps(*[split("a")] * 20, level)), "behind": tokenizer(pre_tokenizer=steps(level, split("a"))),
        "decoder": tokenizer(decoder=dict(type="CTC")), "template": tokenizer(post_processor=dict(type="TemplateProcessing", single=[3])),
        "template-id": tokenizer(post_processor=dict(type="TemplateProcessing", single=[dict(SpecialToken=dict(id="s"))], special_tokens=dict(s=dict(ids=[77])))),
        "added-other-id": tokenizer(added=[special("a", 9)]), "added-twice": tokenizer(added=[special("x", 0)]), "added-lstrip": tokenizer(added=[special("x", 9, lstrip=True)]),
        "added-empty": tokenizer(added=[special("", 9)]), "key-twice": tokenizer().replace(b'"b": 1', b'"a": 1'),
    }
    for name, data in good.items():
        put("tokenizer", "good-" + name, data)
    for name, data in bad.items():
        put("tokenizer", "bad-" + name, data)


def write_wordpiece():
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]

    def vocabulary(*tokens, text="", end="\n"):
        return ("".join(token + end for token in tokens) + text).encode()

    good = {
        "plain": vocabulary(*specials, "[MASK]", "a", "##b", text="ab A [MASK]b"),
        "returns": vocabulary(*specials, "a", text="a", end="\r\n"),
        "blank": vocabulary(*specials, "", "a", text="a"),
        "letters": vocabulary(*specials, "\u65e5", "e", "\u03c3", text="\u65e5\u672c \u00c9\u03a3\u0130 e\u0301\x00\ufffd"),
        "not-utf8-text": vocabulary(*specials, "a") + b"a\xff",
        "long": vocabulary(*specials, "a" * 300, "##a", text="a" * 500),
    }
    bad = {
        "empty": b"", "no-unk": vocabulary("[PAD]", "[CLS]", "[SEP]", "a"), "no-pad": vocabulary(*specials[1:], "a"),
        "twice": vocabulary(*specials, "a", "a"), "not-utf8": vocabulary(*specials) + b"\xff\n",
        "json": b'{"model": {"type": "WordPiece"}}\n',
    }
    for name, data in good.items():
        put("wordpiece", "good-" + name, data)
    for name, data in bad.items():
        put("wordpiece", "bad-" + name, data)


def write_table():
    good = {
        "numbers": b"a,b,y\n1,2,0.5\n2,1.5e3,1\n-3,+4,7\n",
        "quotes": b'"a, b","say ""so""",y\r\n"1",x,"two\nlines"\r\n2," x ","it, ""too"""\r\n',
        "missing": b"a,b,y\n1,,yes\nNA,u,no\n?,u,yes",
        "mark": b"\xef\xbb\xbfa,y\n1,0\n2,1\n",
        "blank-lines": b"\n\na,y\n\n1,0\n\r\n2,1\n\n",
        "utf8": "größe,y\n1,süß\n2,sauer\n".encode(),
        "classes": b"a,y\n1,10\n2,9.0\n3,09\n",
        "gzip": packed(b"a,y\n1,2.5\n2,3\n"),
        "quote-inside": b'a,y\n5" pipe,1\n6" pipe,2\n',
    }
    bad = {
        "empty": b"", "header-alone": b"a,y\n", "one-column": b"y\n1\n2\n", "short-row": b"a,b,y\n1,2,3\n1,2\n", "long-row": b"a,y\n1,2\n1,2,3\n",
        "quote-open": b'a,y\n1,"2\n3,4\n', "quote-followed": b'a,y\n"1"2,3\n', "utf16": "a,y\n1,2\n".encode("utf-16"), "latin1": "a,y\n1,süß\n".encode("latin-1"),
        "zero": b"a,y\n1,2\0\n", "name-twice": b"a,a,y\n1,2,3\n", "dates": b"day,y\n2024-01-31,1\n2024-02-29,2\n", "target-same": b"a,y\n1,2\n2,2\n",
        "target-missing": b"a,y\n1,2\n2,\n", "target-nan": b"a,y\n1,2\n2,nan\n", "many-words": b"a,y\n" + b"".join(b"w%d,%d\n" % (i, i) for i in range(70)),
        "mixed": b"a,y\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(70)) + b"x,1\n", "no-values": b"a,y\n,1\n,2\n", "long-word": b"a,y\n" + b"w" * 300 + b",1\nv,2\n",
        "columns": packed(b"c," * 65537 + b"y\n1\n"), "gzip-cut": packed(b"a,y\n1,2\n2,3\n")[:-9], "many-classes": b"a,y\n" + b"".join(b"%d,w%d\n" % (i, i) for i in range(1030)),
    }
    for name, data in good.items():
        put("table", "good-" + name, data)
    for name, data in bad.items():
        put("table", "bad-" + name, data)


write_tokenizer()
write_wordpiece()
write_table()
write_idx()
write_plan_text()
write_run_log()
write_yaml()
write_history()
write_trace()
write_link()
write_safetensors()
write_options()
write_place()
write_llmc()
write_hf_config()
write_hf_llama()
write_bnb()
write_peft()
write_gguf()
write_index()
write_checkpoint()
write_description()
write_choices()
write_text()
write_record()
write_jinja()
write_png()
write_jpeg()
write_bmp()
write_other_images()
