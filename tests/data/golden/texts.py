#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes texts/, the directory of a tiny tokenizer for the tests of chats: bytes, a few merges, ChatML's tokens."""
import json
import os

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "texts")
MERGES = ["h e", "t he", "\u0120 a", "l l", "he ll", "hell o", "e r"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters():
    """GPT-2's letters of the 256 bytes, in the order of its vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) for byte in shown] + [chr(256 + i) for i in range(len(hidden))]


def main():
    letters = byte_letters() + [merge.replace(" ", "") for merge in MERGES]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    added = [{"id": len(vocabulary) + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, text in enumerate(SPECIALS)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": level, "post_processor": level, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "vocab": vocabulary, "merges": [merge.split(" ") for merge in MERGES]}}
    os.makedirs(HERE, exist_ok=True)
    for name, data in (("tokenizer.json", tokenizer), ("tokenizer_config.json", {"eos_token": SPECIALS[0]})):
        with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
            json.dump(data, file, ensure_ascii=True, separators=(",", ":"))
            file.write("\n")


main()
