# SPDX-License-Identifier: MIT
"""Questions with choices, and how often a model is right, by transformers; for choices.sh and choices_live.sh.

   choices.py make DIRECTORY                   questions.jsonl, train.jsonl; the standard library suffices
   choices.py golden MODEL QUESTIONS >choices.txt
"""
import json
import os
import sys

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ.,"
state = 5


def draw(count):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % count


def word(longest):
    return "".join(LETTERS[draw(len(LETTERS))] for _ in range(1 + draw(longest)))


def question(number):
    prompt = " ".join(word(4) for _ in range(1 + draw(3))) + (" ", "", "", "")[number % 4]
    choices = [(" " if number % 5 == 0 else "") + word(8) for _ in range(2 + draw(4))]
    return dict(prompt=prompt, choices=choices, answer=draw(len(choices)), subject="words")


def make(directory):
    os.makedirs(directory, exist_ok=True)
    for name, lines in (("questions", [question(i) for i in range(200)]),
                        ("train", [dict(prompt=word(4), completion=" " + word(8)) for _ in range(24)])):
        with open(os.path.join(directory, name + ".jsonl"), "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def log_probability(model, tokenizer, prompt, answer):
    """As lm-evaluation-harness has it: the tokens beyond as many as the prompt has without spaces at its end."""
    import torch

    apart = "" if prompt[-1].isspace() or answer[0].isspace() else " "
    begin = len(tokenizer(prompt.rstrip(), add_special_tokens=False).input_ids)
    ids = tokenizer(prompt + apart + answer, add_special_tokens=False).input_ids
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    return sum(torch.log_softmax(logits[i - 1], -1)[ids[i]].item() for i in range(begin, len(ids)))


def golden(directory, path):
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(directory, "tokenizer.json"))
    right, by_length, loss = 0, 0, 0.0
    questions = [json.loads(line) for line in open(path)]
    for q in questions:
        scores = [log_probability(model, tokenizer, q["prompt"], answer) for answer in q["choices"]]
        each = [score / len(answer.encode()) for score, answer in zip(scores, q["choices"])]
        right += scores.index(max(scores)) == q["answer"]
        by_length += each.index(max(each)) == q["answer"]
        loss -= scores[q["answer"]]
    count = len(questions)
    print(f"test accuracy {100 * right / count:.2f} %, by length {100 * by_length / count:.2f} %, test loss {loss / count:.4f}")


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    golden(sys.argv[2], sys.argv[3])
