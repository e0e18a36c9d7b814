# SPDX-License-Identifier: MIT
"""Directories of the Llama kind against transformers and PEFT, through our tool and the trainer:

   hf_llama_live.py TOOL TRAINER WORK

Each family is built with weights by a formula. What transformers saves is read and written by the tool, and what the tool
writes has the same logits to the bit when transformers loads it: whole, in shards, in bf16, with a config of its own.
The trainer's losses are those of the same training in PyTorch, in full and with adapters, and what it exports has the loss that
it says in transformers and PEFT.
"""
import json
import os
import subprocess
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

try:
    import peft
except ImportError:
    peft = None

tool, trainer, work = sys.argv[1:]
failed = 0
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()

BASE = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
            hidden_act="silu", max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1,
            eos_token_id=2, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
MODELS = {  # in the form of transformers 4
    "llama2": dict(model_type="llama", rope_theta=10000.0),
    "llama3": dict(model_type="llama", num_key_value_heads=2, head_dim=16, hidden_size=48, tie_word_embeddings=True, rope_theta=500000.0,
                   rope_scaling=LLAMA3),
    "llama_bias": dict(model_type="llama", num_key_value_heads=2, attention_bias=True, mlp_bias=True, rope_theta=10000.0,
                       rope_scaling=dict(type="linear", factor=2.0)),
    "qwen2": dict(model_type="qwen2", num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1000000.0, use_sliding_window=True,
                  sliding_window=8, max_window_layers=1),
    "qwen3": dict(model_type="qwen3", num_key_value_heads=2, head_dim=16, hidden_size=40, rope_theta=1000000.0,
                  rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "mistral": dict(model_type="mistral", num_attention_heads=8, num_key_value_heads=2, head_dim=8, hidden_size=48, rope_theta=10000.0,
                    sliding_window=5),
    "smollm3": dict(model_type="smollm3", num_hidden_layers=4, num_key_value_heads=1, tie_word_embeddings=True, rope_theta=5000000.0,
                    no_rope_layers=[1, 1, 1, 0]),
    "phi3": dict(model_type="phi3", num_key_value_heads=2, rope_theta=10000.0, partial_rotary_factor=0.5,
                 original_max_position_embeddings=64, rope_scaling=None, sliding_window=None),
}
MASK = (1 << 64) - 1


def formula(name, count):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    scale = 8 if name.endswith(".bias") else 2 if name.endswith(("embed_tokens.weight", "lm_head.weight")) else 4
    values = []
    for i in range(count):
        z = (h + (i + 1) * 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        values.append(((z >> 48) - 32768) / 32768 / scale + (1 if name.endswith("norm.weight") else 0))
    return torch.tensor(values, dtype=torch.float32)


def check(what, good):
    global failed
    if not good:
        failed += 1
        print("FAIL:", what)


def run(*arguments, program=tool):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode:
        print(f"FAIL: {' '.join(arguments)}: {done.stderr}")
        sys.exit(1)


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


def load(directory, dtype="auto"):
    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager", dtype=dtype)


def same_config(what, directory, own):
    """Both forms of the keys say what the model was made with."""
    with open(os.path.join(directory, "config.json")) as file:
        written = json.load(file)
    parameters, scaling = written["rope_parameters"], own.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    old = written["rope_scaling"] or {}
    check(f"{what}: theta", written["rope_theta"] == parameters["rope_theta"] == own["rope_theta"])
    check(f"{what}: rope kind", old.get("rope_type", old.get("type", "default")) == parameters["rope_type"] == kind)
    check(f"{what}: dtype", written["dtype"] == written["torch_dtype"])


def same_files(what, source, target):
    for name in os.listdir(source):
        if name == "config.json" or ".safetensors" in name:
            continue
        with open(os.path.join(source, name), "rb") as a, open(os.path.join(target, name), "rb") as b:
            check(f"{what}: {name} is the same", a.read() == b.read())


# --- training ---

LENGTH, STEPS, RATE = 24, 20, 3e-3
TOKENS = [(31 * i + 5 * i * i + i * i * i) % 96 for i in range(2 * LENGTH + 1)]  # two samples, which are the batch of each step
BATCH = torch.tensor([TOKENS[r * LENGTH : r * LENGTH + LENGTH + 1] for r in range(2)])


def loss_of(model):
    return model(input_ids=BATCH, labels=BATCH).loss


def train_in_torch(model):
    """The losses of all steps; the model is in evaluation mode, without dropout."""
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in learned if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model.eval())
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
    return losses


def trainer_events(*arguments):
    data, log = os.path.join(work, "tokens.bin"), os.path.join(work, "log")
    with open(data, "wb") as file:
        file.write(b"".join(t.to_bytes(2, "little") for t in TOKENS))
    if os.path.exists(log):
        os.remove(log)
    run("--data", data, "--val", data, "--seq-len", str(LENGTH), "--quiet", "--log", log, *arguments, program=trainer)
    with open(log) as file:
        return [json.loads(line) for line in file]


def trainer_loss(*arguments):
    return [e["test_loss"] for e in trainer_events("--eval-only", *arguments) if "test_loss" in e][-1]


def train(*arguments):
    """The losses of all steps, and that of the evaluation after them."""
    events = trainer_events("--batch-size", "1", "--global-batch", "2", "--steps", str(STEPS), "--no-shuffle", "--lr", str(RATE),
                            "--schedule", "constant", "--log-every", "1", *arguments)
    return [e["loss"] for e in events if e["event"] == "step"], [e["test_loss"] for e in events if "test_loss" in e][-1]


def close(what, ours, theirs, bound):
    check(f"{what}: {ours} and {theirs}", abs(ours - theirs) <= bound)


def follow(what, ours, theirs):
    check(f"{what}: {len(ours)} steps", len(ours) == STEPS)
    for step, (one, other) in enumerate(zip(ours, theirs)):
        close(f"{what}, step {step + 1}", one, other, 2e-5)
    return max(abs(one - other) for one, other in zip(ours, theirs))


def same_logits(what, one, other):
    a, b = logits(one, BATCH), logits(other, BATCH)
    check(f"{what}: logits are {(a - b).abs().max():.1e} apart", (a - b).abs().max() < 1e-4)


def check_training(name, model, base):
    """In full: transformers and the trainer begin with the same directory."""
    tuned = os.path.join(work, name, "tuned")
    losses = train_in_torch(model)
    ours, after = train("--load", base, "--export", tuned)
    worst = follow(f"{name}, full", ours, losses)
    loaded = load(tuned)
    close(f"{name}: loss of the export", after, loss_of(loaded).item(), 1e-5)
    close(f"{name}: loss of the export, loaded by the trainer", trainer_loss("--load", tuned), after, 1e-6)
    same_logits(f"{name}: export", loaded, model)
    return worst


def check_adapters(name, base, options):
    """PEFT's adapters go on in the trainer; the trainer's adapters, and merged models, are the same in PEFT."""
    place = os.path.join(work, name, "lora")
    begun, tuned, own, merged = (os.path.join(place, d) for d in ("begun", "tuned", "own", "merged"))
    model = peft.get_peft_model(load(base), peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, **options))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_A" in key:
                parameter.copy_(formula(key, parameter.numel()).reshape(parameter.shape))
    model.save_pretrained(begun)
    losses = train_in_torch(model)
    ours, after = train("--load", base, "--adapters", begun, "--export", tuned)
    worst = follow(f"{name}, adapters", ours, losses)
    loaded = peft.PeftModel.from_pretrained(load(base), tuned)
    close(f"{name}: loss of the adapters", after, loss_of(loaded.eval()).item(), 1e-5)
    same_logits(f"{name}: adapters", loaded, model)

    # New adapters, with dropout, and what they are merged.
    targets = options["target_modules"]
    spec = "r=3,alpha=12,dropout=0.1,targets=" + (targets if isinstance(targets, str) else ",".join(targets))
    spec += ",rslora" if options.get("use_rslora") else ""
    _, after = train("--load", base, "--lora", spec, "--export", own)
    loaded = peft.PeftModel.from_pretrained(load(base), own)
    close(f"{name}: loss of new adapters", after, loss_of(loaded.eval()).item(), 1e-5)
    train("--load", base, "--lora", spec, "--export", merged + ",merge")
    close(f"{name}: loss of the merged model", after, loss_of(load(merged)).item(), 1e-5)
    return worst


worst = {}
for name, own in MODELS.items():
    place = os.path.join(work, name)
    filled, saved, again, anew, narrow, narrow_again = (os.path.join(place, d) for d in ("filled", "saved", "again", "anew", "bf16", "f32"))
    config = AutoConfig.for_model(**json.loads(json.dumps({**BASE, **own})))
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(formula(key, parameter.numel()).reshape(parameter.shape))
    ids = torch.tensor([[(31 * b + 17 * t + 5 * t * t) % 96 for t in range(24)] for b in range(2)])
    wanted = logits(model, ids)

    # Our formula, and a config in the form of version 4.
    os.makedirs(os.path.join(place, "old"))
    with open(os.path.join(place, "old", "config.json"), "w") as file:
        json.dump({**BASE, **own}, file, indent=2)
    run("fill", os.path.join(place, "old"), filled, "f32", "0")
    check(f"{name}: the tool's weights", torch.equal(logits(load(filled), ids), wanted))
    same_config(f"{name}, filled", filled, own)

    # What transformers saves, in shards.
    model.save_pretrained(saved, max_shard_size="20KB")
    check(f"{name}: there are shards", os.path.exists(os.path.join(saved, "model.safetensors.index.json")))
    run("copy", saved, again, "f32", "0")
    check(f"{name}: copied", torch.equal(logits(load(again), ids), wanted))
    check(f"{name}: one file", os.path.exists(os.path.join(again, "model.safetensors")))
    same_config(f"{name}, copied", again, own)
    same_files(name, saved, again)
    run("copy", again, again, "f32", "9000")
    check(f"{name}: copied onto itself, in shards", torch.equal(logits(load(again), ids), wanted))
    check(f"{name}: no stale file", not os.path.exists(os.path.join(again, "model.safetensors")))
    run("anew", saved, anew, "f32", "0")
    check(f"{name}: with a new config", torch.equal(logits(load(anew), ids), wanted))
    same_config(f"{name}, anew", anew, own)

    worst[name] = check_training(name, load(saved), saved)
    if peft and name != "phi3":
        everything = {"target_modules": "all-linear", "use_rslora": True}
        worst[name + " LoRA"] = check_adapters(name, saved, everything if len(worst) % 2 else {"target_modules": ["q_proj", "v_proj"]})

    # bf16, as the config says, against what transformers saves in it; and float32 of that.
    theirs = os.path.join(place, "theirs")
    model.to(torch.bfloat16).save_pretrained(theirs)
    run("copy", saved, narrow, "bf16", "7000")
    loaded = load(narrow)
    check(f"{name}: bf16 is what is loaded", loaded.dtype == torch.bfloat16)
    check(f"{name}: bf16", torch.equal(logits(loaded, ids), logits(load(theirs), ids)))
    run("copy", theirs, narrow_again, "f32", "0")
    check(f"{name}: float32 of bf16", torch.equal(logits(load(narrow_again), ids), logits(load(theirs, dtype=torch.float32), ids)))
for name, distance in worst.items():
    print(f"{name}: {STEPS} losses, largest difference {distance:.1e}")
print(f"transformers {transformers.__version__}: {len(MODELS)} models, {failed} failures")
if not peft:
    print("NOT RUN: adapters: there is no PEFT")
sys.exit(1 if failed else 0 if peft else 77)
