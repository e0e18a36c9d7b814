#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes wordpiece/vocab.txt and wordpiece/cases.jsonl: texts with the ids that Hugging Face's
tokenizers gives them, with small letters and with letters as they are. Needs tokenizers."""
import json
import os
import random
import sys

from tokenizers import BertWordPieceTokenizer

FOLDER = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "wordpiece")
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789éñüßæøçşαβγδσςжшя日本語中文字한국어ไทย"
WORDS = ["hello", "world", "un", "##aff", "##able", "the", "Hello", "straße", "naive", "naïve", "##ing", "play", "cafe", "café",
         "東京", "##ver", "##VER", "résumé", "resume", "istanbul"]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»“”‘’—–…¿¡。、「」！？"
SPACES = " \t\n\r\u00a0\u2003\u3000\u1680\u2028\u0085\u000b"
ODD = ("\u0000\u0001\u007f\u0080\u200b\u200d\u200e\ufeff\ufffd\ue000\u00ad\u0301\u0308\u0323\u0e31\u093e\u20dd"
       "\u0130\u0131\u01c5\ufb01\u212b\uac00\u1100\u1161\u3400\u4dbf\u4e00\u9fff\uf900\U00020000\U0002b820\U0002ceb0\U0002f800"
       "\U0001f600\u2126\u1e9e\u03a3\u0390\u00c5\u1ea4\uff21\u2160\u24b6")
FIXED = ["", " ", "Hello, World!", "unaffable playing", "ÉCOLE naïve café Straße", "中文字 and 日本語", "x" * 100, "x" * 101,
         "[MASK] is [UNK] and [SEP][CLS]", "[mask] [ MASK] [MASK", "a\u0000b\ufffdc", "e\u0301 e\u0323\u0301", "İstanbul", "don't stop-me.now"]


def vocabulary():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for token in [*LETTERS, *("##" + letter for letter in LETTERS if letter < "語"), *PUNCTUATION, *WORDS]:
        if token not in tokens:
            tokens.append(token)
    return tokens


def texts():
    draw = random.Random(7)
    yield from FIXED
    pieces = [*LETTERS, *PUNCTUATION, *SPACES, *ODD, *ODD, *[word.lstrip("#") for word in WORDS]]
    for _ in range(400):
        yield "".join(draw.choice(pieces) for _ in range(draw.randint(1, 24)))


os.makedirs(FOLDER, exist_ok=True)
with open(os.path.join(FOLDER, "vocab.txt"), "w", encoding="utf-8", newline="\n") as out:
    out.write("".join(token + "\n" for token in vocabulary()))
small = BertWordPieceTokenizer(os.path.join(FOLDER, "vocab.txt"), lowercase=True)
whole = BertWordPieceTokenizer(os.path.join(FOLDER, "vocab.txt"), lowercase=False)
with open(os.path.join(FOLDER, "cases.jsonl"), "w", encoding="utf-8", newline="\n") as out:
    for text in texts():
        out.write(json.dumps({"text": text, "small": small.encode(text, add_special_tokens=False).ids,
                              "whole": whole.encode(text, add_special_tokens=False).ids}, separators=(",", ":")) + "\n")
