# SPDX-License-Identifier: MIT
"""usage: bert_live.py TRAINER DIRECTORY

Losses of 50 steps of a small encoder with random weights beside transformers (classes, numbers) and sentence-transformers (pairs
with a negative): the largest difference is at most 1e-5. What is exported gives their losses too, and --predict the vectors that
encode() gives, as they are and normalised; exported adapters give with PEFT what the merged model gives; and those that PEFT made
are read, trained on and give what PEFT computes with them."""
import json
import os
import random
import subprocess
import sys

import numpy
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Pooling, Transformer
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

trainer, work = os.path.abspath(sys.argv[1]), sys.argv[2]
STEPS, BATCH, LENGTH = 50, 6, 64
RATES = {"classes": 3e-4, "numbers": 1e-3, "pairs": 1e-4}
TEXTS = {"classes": ("text",), "numbers": ("sentence1", "sentence2"), "pairs": ("anchor", "positive", "negative")}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
torch.set_num_threads(1)
random.seed(1)
torch.manual_seed(1)
words = ["".join(random.choice(LETTERS) for _ in range(random.randint(3, 9))) for _ in range(400)]


def sentence():
    return " ".join(random.choice(words) for _ in range(random.randint(3, 20)))


def make(kind, path):
    """The model's directory, and the rows of its data."""
    os.makedirs(path)
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(LETTERS) + ["##" + letter for letter in LETTERS] + words[:200]
    with open(f"{path}/vocab.txt", "w") as file:
        file.write("\n".join(dict.fromkeys(known)) + "\n")
    config = BertConfig(vocab_size=len(dict.fromkeys(known)), num_hidden_layers=2, hidden_size=64, num_attention_heads=2,
                        intermediate_size=128, num_labels=1 if kind == "numbers" else 3, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0)
    if kind == "numbers":
        config.problem_type = "regression"
    (BertModel if kind == "pairs" else BertForSequenceClassification)(config).save_pretrained(path)
    with open(f"{path}/tokenizer_config.json", "w") as file:
        json.dump({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}, file)
    rows = []
    for i in range(STEPS * BATCH):
        row = {name: sentence() for name in TEXTS[kind]}
        if kind == "classes":
            row = {"text": words[i % 3] + " " + row["text"], "label": i % 3}
        elif kind == "numbers":
            row["label"] = round(random.random() * 5, 2)
        rows.append(row)
    with open(f"{path}/data.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return rows


def theirs(kind, path, rows, steps, adapters=None):
    """Losses, of training or with steps 0 of the first batch alone. With adapters PEFT puts them into the model, and these are trained."""
    tokens = BertTokenizerFast(f"{path}/vocab.txt", do_lower_case=True)
    options = {"padding": True, "truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
    if kind == "pairs":
        body = Transformer(path)
        model = SentenceTransformer(modules=[body, Pooling(64)], device="cpu")
        loss_of = MultipleNegativesRankingLoss(model)
    else:
        model = BertForSequenceClassification.from_pretrained(path)
    if adapters:
        from peft import PeftModel
        PeftModel.from_pretrained(body.auto_model if kind == "pairs" else model, adapters, is_trainable=True)
    model.train()
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=RATES[kind] * (10 if adapters else 1), weight_decay=0.0)
    losses = []
    for step in range(max(steps, 1)):
        batch = rows[step * BATCH:(step + 1) * BATCH]
        texts = [[row[name] for row in batch] for name in TEXTS[kind]]
        if kind == "pairs":
            loss = loss_of([dict(tokens(some, **options)) for some in texts], None)
        else:
            labels = torch.tensor([row["label"] for row in batch], dtype=torch.long if kind == "classes" else torch.float32)
            loss = model(**tokens(*texts, **options), labels=labels).loss
        losses.append(loss.item())
        if steps:
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learned, 1.0)
            optimizer.step()
    return losses


def apart_from_encode(path):
    """The largest difference of embeddings from encode(), as they are and with a module Normalize."""
    texts = [sentence() for _ in range(40)]
    with open(f"{path}/texts.jsonl", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    apart = 0.0
    for normalised in (False, True):
        if normalised:
            with open(f"{path}/out/modules.json") as file:
                modules = json.load(file)
            modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
            os.makedirs(f"{path}/out/2_Normalize")
            with open(f"{path}/out/modules.json", "w") as file:
                json.dump(modules, file)
        subprocess.run([trainer, "--load", f"{path}/out", "--data", f"{path}/texts.jsonl", "--predict", f"{path}/texts.npy", "--quiet"],
                       check=True)
        expected = SentenceTransformer(f"{path}/out", device="cpu").encode(texts)
        ours = numpy.load(f"{path}/texts.npy")
        apart = max(apart, abs(ours - expected).max()) if ours.shape == expected.shape else numpy.inf
    return apart


def apart_from_peft(kind, path, rows):
    """The largest difference of what PEFT computes with our adapters from the model that has them merged."""
    from peft import PeftModel
    outs = [f"{path}/adapters", f"{path}/merged"]
    for out in (outs[0], outs[1] + ",merge"):
        subprocess.run([trainer, "--load", path, "--data", f"{path}/data.jsonl", "--batch-size", str(BATCH), "--seq-len", str(LENGTH),
                        "--steps", "5", "--lr", "1e-2", "--lora", "r=4,alpha=16,targets=query,key,value", "--no-shuffle", "--no-eval", "--quiet",
                        "--threads", "1", "--export", out], check=True)
    of = BertModel if kind == "pairs" else BertForSequenceClassification
    tokens = BertTokenizerFast(f"{path}/vocab.txt", do_lower_case=True)
    texts = tokens([row[TEXTS[kind][0]] for row in rows[:BATCH]], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
    models = [of.from_pretrained(path), PeftModel.from_pretrained(of.from_pretrained(path), outs[0]), of.from_pretrained(outs[1])]
    with torch.inference_mode():
        base, adapted, merged = (model.eval()(**texts)[0] * texts["attention_mask"].unsqueeze(-1) if kind == "pairs"
                                 else model.eval()(**texts).logits for model in models)
    assert (base - merged).abs().max() > 1e-3, "the adapters change nothing"
    return (adapted - merged).abs().max().item()


def apart_from_adapters(kind, path, rows):
    """The largest difference of the losses of training adapters that PEFT made from PEFT's, and of what is predicted with these and
    with the trained ones from what PEFT computes with each."""
    from peft import LoraConfig, PeftModel, get_peft_model
    of = BertModel if kind == "pairs" else BertForSequenceClassification
    made, trained = f"{path}/made", f"{path}/trained"
    get_peft_model(of.from_pretrained(path), LoraConfig(
        r=4, lora_alpha=12, target_modules=["query", "value"], init_lora_weights=False,
        task_type="FEATURE_EXTRACTION" if kind == "pairs" else "SEQ_CLS")).save_pretrained(made)
    ours = losses_of(path, made, RATES[kind] * 10, trained)
    losses = max(abs(a - b) for a, b in zip(ours, theirs(kind, path, rows, STEPS, made)))
    assert len(ours) == STEPS and ours[-1] < ours[0], ours
    tokens = BertTokenizerFast(f"{path}/vocab.txt", do_lower_case=True)
    names = TEXTS[kind][:1] if kind == "pairs" else TEXTS[kind]
    texts = tokens(*[[row[name] for row in rows[:BATCH]] for name in names], padding=True, truncation=True, max_length=LENGTH,
                   return_tensors="pt")
    with open(f"{path}/some.jsonl", "w") as file:
        file.writelines(json.dumps({"text" if kind == "pairs" else name: row[name] for name in names}) + "\n" for row in rows[:BATCH])
    apart, results = 0.0, []
    for load in (["--load", made], ["--load", path, "--adapters", trained]):
        subprocess.run([trainer, *load, "--data", f"{path}/some.jsonl", "--predict", f"{path}/some.npy", "--seq-len", str(LENGTH),
                        "--quiet"], check=True)
        ours = torch.from_numpy(numpy.load(f"{path}/some.npy")).reshape(BATCH, -1)
        model = PeftModel.from_pretrained(of.from_pretrained(path), load[-1]).eval()
        with torch.inference_mode():
            out = model(**texts)
        if kind == "pairs":
            mask = texts["attention_mask"].unsqueeze(-1)
            expected = (out[0] * mask).sum(1) / mask.sum(1)
        else:
            expected = out.logits.softmax(1) if kind == "classes" else out.logits
        apart = max(apart, (ours - expected).abs().max().item()) if ours.shape == expected.shape else numpy.inf
        results.append(expected)
    assert (results[0] - results[1]).abs().max() > 1e-3, "training changes nothing"
    return losses, apart


def losses_of(path, load, rate, export):
    """Ours."""
    log = f"{export}.log"
    subprocess.run([trainer, "--load", load, "--data", f"{path}/data.jsonl", "--batch-size", str(BATCH), "--seq-len", str(LENGTH),
                    "--steps", str(STEPS), "--lr", str(rate), "--schedule", "constant", "--weight-decay", "0", "--clip-grad-norm", "1",
                    "--no-shuffle", "--no-eval", "--quiet", "--threads", "1", "--log", log, "--export", export], check=True)
    with open(log) as file:
        return [row["loss"] for row in map(json.loads, file) if row["event"] == "step"]


failed = 0
for kind in TEXTS:
    path = f"{work}/{kind}"
    rows = make(kind, path)
    ours = losses_of(path, path, RATES[kind], f"{path}/out")
    expected = theirs(kind, path, rows, STEPS)
    apart = max(abs(a - b) for a, b in zip(ours, expected))
    again = theirs(kind, f"{path}/out", rows, 0)[0]
    print(f"{kind}: {len(ours)} losses, from {ours[0]:.4f} to {ours[-1]:.4f}, largest difference {apart:.1e}; "
          f"exported {again:.4f}")
    failed += len(ours) != STEPS or not apart <= 1e-5 or not again < ours[0]
    apart = apart_from_peft(kind, path, rows)
    print(f"{kind}: PEFT with the exported adapters, largest difference from the merged model {apart:.1e}")
    failed += not apart <= 1e-5
    losses, apart = apart_from_adapters(kind, path, rows)
    print(f"{kind}: adapters of PEFT's, {STEPS} losses, largest difference {losses:.1e}; of predictions {apart:.1e}")
    failed += not max(losses, apart) <= 1e-5
    if kind == "pairs":
        apart = apart_from_encode(path)
        print(f"embeddings: largest difference from encode() {apart:.1e}")
        failed += not apart <= 1e-5
sys.exit(failed > 0)
