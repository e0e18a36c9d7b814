# SPDX-License-Identifier: MIT
"""What TRL learns from preferences: losses and metrics of the steps of small trainings.

   preferences.py DIRECTORY [STEPS] >preferences.txt

DIRECTORY has what preferences.py of tests/train makes, and weights by hf_llama_tool. Each row is a run, a name in its log, and a
value of each step. One batch has all pairs; AdamW without decay and clipping. TRL 1.16.
"""
import os
import sys
import tempfile
import warnings

import torch
import transformers
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

warnings.filterwarnings("ignore")
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)

# name: (trainer, adapters, TRL's arguments, --objective)
RUNS = {
    "dpo": ("dpo", False, dict(beta=0.1), "dpo"),
    "lora": ("dpo", True, dict(beta=0.1), "dpo"),
    "ipo": ("dpo", False, dict(beta=0.1, loss_type=["ipo"]), "ipo"),
    "orpo": ("orpo", False, dict(beta=0.1, max_length=64), "orpo"),
    "simpo": ("cpo", False, dict(beta=2.0, simpo_gamma=0.5, loss_type="simpo", cpo_alpha=0.0, max_length=64), "simpo,beta=2,gamma=0.5"),
    "kto": ("kto", False, dict(beta=0.1), "kto"),
    "kto-weights": ("kto", False, dict(beta=0.2, desirable_weight=1.5), "kto,beta=0.2,desirable=1.5"),
}
NAMES = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected", "kl")


def classes(kind):
    if kind == "dpo":
        from trl import DPOConfig, DPOTrainer
        return DPOTrainer, DPOConfig
    if kind == "kto":
        from trl import KTOConfig, KTOTrainer
        return KTOTrainer, KTOConfig
    if kind == "orpo":
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer
        return ORPOTrainer, ORPOConfig
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    return CPOTrainer, CPOConfig


def load(directory):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)


def train(directory, name, steps):
    """The values of each step, by name."""
    kind, adapted, own, _ = RUNS[name]
    trainer, config = classes(kind)
    losses = []

    class Recorded(trainer):
        def compute_loss(self, *arguments, **named):
            result = super().compute_loss(*arguments, **named)
            losses.append(float(result[0] if isinstance(result, tuple) else result))
            return result

    model, more = load(directory), {}
    if adapted:
        import peft
        model = peft.PeftModel.from_pretrained(model, os.path.join(directory, "adapters"), is_trainable=True)
    elif kind in ("dpo", "kto"):
        more["ref_model"] = load(directory)
    if kind == "kto":
        own = dict(own, train_sampling_strategy="sequential")
    data = load_dataset("json", data_files=os.path.join(directory, "rated.jsonl" if kind == "kto" else "pairs.jsonl"), split="train",
                        cache_dir=tempfile.mkdtemp(dir=directory))
    arguments = config(output_dir=tempfile.mkdtemp(dir=directory), per_device_train_batch_size=8, max_steps=steps,
                       learning_rate=1e-2 if adapted else 1e-3, lr_scheduler_type="constant", max_grad_norm=0.0, logging_steps=1,
                       bf16=False, use_cpu=True, gradient_checkpointing=False, report_to=[], save_strategy="no", seed=0,
                       disable_tqdm=True, weight_decay=0.0, adam_beta2=0.999, **own)
    run = Recorded(model=model, args=arguments, train_dataset=data, processing_class=AutoTokenizer.from_pretrained(directory), **more)
    run.remove_callback(transformers.PrinterCallback)
    run.train()
    values = dict(loss=losses)
    for metric in NAMES:
        found = [line[metric] for line in run.state.log_history if metric in line]
        if found and not (kind == "kto" and metric.startswith("logps")):
            values[metric] = found
    return values


if __name__ == "__main__":
    for name in RUNS:
        for metric, values in train(sys.argv[1], name, int(sys.argv[2]) if len(sys.argv) > 2 else 5).items():
            print(name, metric, *(f"{value:.9g}" for value in values))
