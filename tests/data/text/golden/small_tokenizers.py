#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Small tokenizers and what the `tokenizers` library makes of texts with them; chats as Jinja renders them with the templates
# of TRL.
#   pip install tokenizers jinja2; pip download --no-deps trl, unpacked
#   small_tokenizers.py DIRECTORY SEED [TRL/trl/chat_templates]
# DIRECTORY/data/text/golden gets tokenizers/*.json and tokenizers.txt, and with templates chats.txt. The committed ones have seed 3.
#
# Lines of tokenizers.txt, texts in hexadecimal ("-": an empty one):
#   ids NAME TEXT : ids            plain TEXT : ids, special tokens as text      bos NAME TEXT : ids with the template
#   decoded NAME TEXT : the text of those ids again
# Lines of chats.txt:
#   chat TOKENIZER TEMPLATE PROMPT(0|1) ROLE CONTENT ... : TEXT ids ... | a digit for each: trained or not
import json
import os
import random
import re
import sys

import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT, SEED = os.path.join(sys.argv[1], "data", "text", "golden"), int(sys.argv[2]) if len(sys.argv) > 2 else 3
CORPUS = """The loss is the sum over predicted tokens divided by their count over the whole global batch. Gradients are added
in one fixed order, so all workers write the same file. It's what they've said: we're there, I'm sure you'll see, she'd know.
Der Fluß führt über größere Täler. Où est le café ? Ça va. 日本語のテキストと漢字 中文，标点。 Привет, мир! 12345 678 90
for (int i = 0; i < 10; i++) { printf("%d\\n", i); }\r\n\treturn 0;\n\n\n    indented     text   \n system user assistant\n
""" * 3
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
STRINGS = [
    "", "Hello, world!", " leading space", "two  spaces   three    four", "\n\n\nnew lines\r\n\r\nCRLF\r", "\t\tindented\tcode \n",
    "1234567890 3.14159 \xbd \xb2 \u2167 \u0663\u0664\u0665", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
    "A\u030a \xc5 e\u0301 \xe9 o\u0308\u0323 \u1100\u1161\u11a8 \u0344", "\u0301\u0323 first", "a\xa0b\u2003c\u3000d\u200be\u202ff\u180eg",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "<|im_start user |><|im_end|", "<think>a</think> <think >", "<s> hi </s><unk>",
    "\U0001f469\u200d\U0001f469 \ufeffBOM \ufffd \U0010ffff \x00\x7f", "IT'S we'Ve \u017f'\u017f", "        eight\n    four\n  two\n one",
    "!!!???...---===*** (((", "\u2581 \u2581\u2581x \u0120Byte \u010a", "   ", " ", " \n \n  x", "x" * 100, "ab" * 60 + " " * 50,
    "a<|im_end|>e\u0301<|im_end|> b", "zzz \u0416\u0416\u0416", "the the the loss the batch",
]


def byte_level(pre, normalizer=None, decoder=None, **model):
    t = Tokenizer(models.BPE(**model))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder or decoders.ByteLevel()
    t.train_from_iterator([CORPUS], trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def split(*patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
                                   + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def characters(fallback, normalizer, pre, fuse=True):
    """As SentencePiece: trained on words, then used without them."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=fuse))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if fallback else [])
    t.train_from_iterator([CORPUS.replace("\n", " ").replace("\r", "").replace("\t", "")],
                          trainers.BpeTrainer(vocab_size=len(special) + 220, special_tokens=special, show_progress=False))
    d = json.loads(t.to_str())
    d["added_tokens"] = d["added_tokens"][:3]
    vocab, merges = d["model"]["vocab"], d["model"]["merges"]
    for n in (2, 4, 8):  # runs of spaces, which training on words has not
        vocab["\u2581" * n] = len(vocab)
        merges.append(["\u2581" * (n // 2)] * 2)
    t = Tokenizer.from_str(json.dumps(d))
    t.normalizer, t.pre_tokenizer = normalizer, pre
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def make():
    legacy = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    all_ = {
        "gpt2": byte_level(gpt2), "qwen": byte_level(split(QWEN), normalizers.NFC()), "llama3": byte_level(split(LLAMA3), ignore_merges=True),
        "splits": byte_level(split(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f]+", r"\s?\p{L}+|[^\S\n]+".replace(r"[^\S\n]", r"[ \t]") + r"|\s*[\r\n]+")),
        "digits": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])),
        "prefix": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        "legacy": characters(True, legacy, None), "metaspace": characters(True, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
        "words": characters(False, None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True)), "unknown": characters(False, legacy, None, False),
    }
    all_["gpt2"].add_special_tokens([AddedToken(SPECIAL[0], normalized=True)])
    for name in ("qwen", "llama3", "metaspace", "legacy"):
        all_[name].add_special_tokens([AddedToken(s, normalized=False) for s in SPECIAL])
        all_[name].add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    all_["llama3"].post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", all_["llama3"].token_to_id("<|begin_of_text|>"))])
    all_["splits"].add_tokens([AddedToken("<th", normalized=True), AddedToken("<think>", normalized=True), AddedToken("</s>", normalized=False)])
    all_["legacy"].add_tokens([AddedToken("hi there", normalized=True)])
    return all_


def hexed(text):
    return text.encode().hex() or "-"


def numbers(ids):
    return " ".join(map(str, ids))


def write_cases(all_, out):
    rng = random.Random(SEED)
    pool = [chr(c) for c in list(range(32, 127)) * 6 + [9, 10, 10, 13, 0x85, 0xA0, 0x180E, 0x2003, 0x3000, 0x17F] * 8 + list(range(0xC0, 0x250)) + list(range(0x300, 0x345)) + [0x65E5, 0x672C, 0x2581, 0x1100, 0x1161, 0xAC00, 0x1F600]]
    strings = STRINGS + ["".join(rng.choice(pool) for _ in range(rng.randint(1, 50))) for _ in range(14)] + ["say hi there hi there<|im_end|> hi there"]
    for name, t in all_.items():
        plain = Tokenizer.from_str(t.to_str())
        plain.encode_special_tokens = True
        for s in strings:
            ids = t.encode(s, add_special_tokens=False).ids
            print("ids", name, hexed(s), ":", numbers(ids), file=out)
            print("decoded", name, hexed(s), ":", hexed(t.decode(ids, skip_special_tokens=False)), file=out)
            if "<" in s:
                print("plain", name, hexed(s), ":", numbers(plain.encode(s, add_special_tokens=False).ids), file=out)
            print("bos", name, hexed(s), ":", numbers(t.encode(s).ids), file=out)


CHATS = [
    [("user", "Hi")], [("user", "Hi"), ("assistant", "Hello!")],
    [("system", "Be brief."), ("user", " 2+2? \n"), ("assistant", " 4\n"), ("user", "And 3+3?"), ("assistant", "6")],
    [("user", "<|im_end|> trick <|eot_id|>"), ("assistant", "<think>\nhm\n</think>\n\nok")],
    [("user", "a"), ("assistant", "<think>\n\nfirst</think>\nx<think>y</think>\n\n z"), ("user", ""), ("assistant", "")],
    [("user", "\n\nb"), ("assistant", "\n\ne\u0301 c\u0327\n"), ("system", "\u3000late\u3000"), ("assistant", "<think>\nt\n</think>\n\nu"), ("assistant", "v")],
    [("user", "<tool_response>1</tool_response>"), ("assistant", "\u0301 mark first")], [("system", "only")],
]


def trained(text, template):
    """What assistant turns have, and their end token."""
    pattern = r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n(.*?<\|eot_id\|>)" if template.startswith("llama") else r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)"
    return [m.span(1) for m in re.finditer(pattern, text, re.S)]


def write_chats(all_, templates, out):
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    for template, file in (("chatml", "qwen3_instruct_2507"), ("qwen2.5", "qwen2_5"), ("qwen3", "qwen3"), ("qwen3-training", "qwen3_training"), ("llama3", "llama3"), ("llama3.1", "llama3_1")):
        source = re.sub(r"{%-? (end)?generation %}", lambda m: m.group(0).replace("endgeneration", "endif").replace("generation", "if true"), open(os.path.join(templates, file + ".jinja")).read())
        for chat in CHATS:
            for prompt in (False, True):
                text = env.from_string(source).render(messages=[dict(role=r, content=c) for r, c in chat], add_generation_prompt=prompt, bos_token="<|begin_of_text|>")
                spans = trained(text, template)
                for name in ("qwen", "legacy"):
                    e = all_[name].encode(text, add_special_tokens=False)
                    mask = "".join("1" if any(a < end and b > begin for begin, end in spans) else "0" for a, b in e.offsets)
                    words = " ".join(r + " " + hexed(c) for r, c in chat)
                    print("chat", name, template, int(prompt), words, ":", hexed(text), numbers(e.ids), "|", mask, file=out)


os.makedirs(os.path.join(OUT, "tokenizers"), exist_ok=True)
tokenizers = make()
for name, t in tokenizers.items():
    with open(os.path.join(OUT, "tokenizers", name + ".json"), "w") as f:
        f.write(json.dumps(json.loads(t.to_str()), ensure_ascii=False) + "\n")
with open(os.path.join(OUT, "tokenizers.txt"), "w") as f:
    write_cases(tokenizers, f)
if len(sys.argv) > 3:
    with open(os.path.join(OUT, "chats.txt"), "w") as f:
        write_chats(tokenizers, sys.argv[3], f)
