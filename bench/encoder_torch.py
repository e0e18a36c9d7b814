#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of an encoder of MiniLM-L6's shape beside transformers and sentence-transformers of this Python, by turns.

usage: encoder_torch.py TRAINER [--kind classes|pairs] [--words N] [--spread X] [--batch N] [--steps N] [--rounds N] [--threads N]

classes: BertForSequenceClassification; pairs: anchors, positives and negatives with MultipleNegativesRankingLoss.
Texts have N words in the middle, and their logarithm a deviation of X, 0.5 as in texts that people write; 0: all are as long. Theirs
are padded to the longest of a batch, and their tokens are made before the clock runs. Both sides have the same weights, batches and
AdamW; a turn's first 2 steps are not counted, nor what a run costs before them. Prints processor seconds a step of each turn, of all
threads; the median of the ratios; and how far the losses are apart.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

TEXTS = {"classes": ("text",), "pairs": ("anchor", "positive", "negative")}
RATE, LENGTH, WARM = 5e-5, 256, 2


def write(path, args):
    from transformers import BertConfig, BertForSequenceClassification, BertModel
    torch.manual_seed(1)
    random.seed(1)
    config = BertConfig(vocab_size=30522, num_hidden_layers=6, hidden_size=384, num_attention_heads=12, intermediate_size=1536,
                        num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (BertModel if args.kind == "pairs" else BertForSequenceClassification)(config).save_pretrained(path)
    with open(f"{path}/vocab.txt", "w") as file:
        file.writelines(word + "\n" for word in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(5, 30522)])
    with open(f"{path}/data.jsonl", "w") as file:
        for i in range(args.batch * args.steps):
            row = {name: " ".join(f"w{random.randint(5, 30521)}" for _ in range(max(1, round(random.lognormvariate(0, args.spread) * args.words))))
                   for name in TEXTS[args.kind]}
            if args.kind == "classes":
                row["label"] = i % 3
            file.write(json.dumps(row) + "\n")


def used(process):
    """Processor seconds of a process that was not waited for, of all its threads."""
    with open(f"/proc/{process.pid}/stat") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def ours(path, args):
    """Processor seconds of a step, from the end of step WARM to that of the last; losses."""
    begin, losses = 0.0, []
    log, end = os.pipe()
    with subprocess.Popen([args.trainer, "--load", path, "--data", f"{path}/data.jsonl", "--batch-size", str(args.batch), "--seq-len",
                           str(LENGTH), "--steps", str(args.steps), "--lr", str(RATE), "--schedule", "constant", "--weight-decay", "0",
                           "--clip-grad-norm", "1", "--no-shuffle", "--no-eval", "--quiet", "--threads", str(args.threads),
                           "--log", f"/dev/fd/{end}"], pass_fds=[end]) as process:
        os.close(end)
        with open(log) as file:
            for row in map(json.loads, file):
                if row["event"] == "step":
                    losses.append(row["loss"])
                    now = used(process)
                    begin = now if row["step"] == WARM else begin
    return (now - begin) / (args.steps - WARM), losses


def batches(path, args):
    from transformers import BertTokenizerFast
    tokens = BertTokenizerFast(f"{path}/vocab.txt", do_lower_case=True)
    with open(f"{path}/data.jsonl") as file:
        rows = [json.loads(line) for line in file]
    for i in range(args.steps):
        some = rows[i * args.batch:(i + 1) * args.batch]
        texts = [dict(tokens([row[name] for row in some], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"))
                 for name in TEXTS[args.kind]]
        yield texts, torch.tensor([row["label"] for row in some]) if args.kind == "classes" else None


def theirs(path, args):
    from transformers import BertForSequenceClassification
    torch.set_num_threads(args.threads)
    if args.kind == "pairs":
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.losses import MultipleNegativesRankingLoss
        from sentence_transformers.models import Pooling, Transformer
        model = SentenceTransformer(modules=[Transformer(path), Pooling(384)], device="cpu")
        loss_of = MultipleNegativesRankingLoss(model)
    else:
        model = BertForSequenceClassification.from_pretrained(path)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses, begin = [], 0.0
    for step, (texts, labels) in enumerate(list(batches(path, args))):
        begin = time.process_time() if step == WARM else begin
        loss = loss_of(texts, None) if args.kind == "pairs" else model(**texts[0], labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return (time.process_time() - begin) / (args.steps - WARM), losses


def main():
    global torch
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("trainer")
    parser.add_argument("--kind", choices=TEXTS, default="classes")
    for name, default in (("words", 24), ("batch", 32), ("steps", 8), ("rounds", 3), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--spread", type=float, default=0.5)
    args = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="")
    import torch
    import transformers
    with tempfile.TemporaryDirectory() as path:
        write(path, args)
        texts = [text for some, _ in batches(path, args) for text in some]
        real = sum(int(text["attention_mask"].sum()) for text in texts)
        padded = sum(text["attention_mask"].numel() for text in texts)
        print(f"{args.kind}, {args.batch} a step, {args.threads} threads, {real / len(texts) / args.batch:.1f} tokens a text; "
              f"{100 * real / padded:.0f} % of theirs are no padding; PyTorch {torch.__version__}, transformers {transformers.__version__}")
        ratios = []
        for _ in range(args.rounds):
            (mine, a), (other, b) = ours(path, args), theirs(path, args)
            ratios.append(other / mine)
            print(f"ours {mine:.3f} s, theirs {other:.3f} s: {ratios[-1]:.2f}; losses {max(abs(x - y) for x, y in zip(a, b)):.1e} apart",
                  flush=True)
        print(f"median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    sys.exit(main())
