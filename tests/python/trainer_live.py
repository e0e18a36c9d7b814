# SPDX-License-Identifier: MIT
"""What each rank of tests/python/trainer_live.sh does: accelerate's loop and transformers' Trainer, as their
guides write them, in a group of the backend ddp that is there before them."""

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

ROWS, BATCH = 24, 4


def data():
    inputs = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def network():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def same(model, alone, what):
    for ours, theirs in zip(model.state_dict().values(), alone.state_dict().values()):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6), what


def with_accelerate(size):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == size
    alone, model = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data(), batch_size=BATCH)
    )
    assert type(model) is torch.nn.parallel.DistributedDataParallel
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = model(inputs)
        accelerator.backward(torch.nn.functional.cross_entropy(outputs, targets))
        optimizer.step()
    everyones = accelerator.gather_for_metrics(targets)
    assert len(everyones) == BATCH * size
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for inputs, targets in DataLoader(data(), batch_size=BATCH * size):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(alone(inputs), targets).backward()
        optimizer.step()
    same(accelerator.unwrap_model(model), alone, "accelerate")


def with_trainer(size, folder):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    config = GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    rows = torch.randint(50, (ROWS, 16), generator=torch.Generator().manual_seed(3))
    samples = [{"input_ids": row, "labels": row} for row in rows]
    set_seed(4)
    model = GPT2LMHeadModel(config)
    before = sum(p.double().sum() for p in model.parameters())
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, per_device_train_batch_size=BATCH, max_steps=3,
        learning_rate=0.01, save_strategy="steps", save_steps=3, report_to=[], disable_tqdm=True,
        logging_steps=1,
    )  # fmt: skip
    assert arguments.world_size == size
    trainer = Trainer(model=model, args=arguments, train_dataset=samples, eval_dataset=samples)
    trainer.train()
    assert type(trainer.model_wrapped) is torch.nn.parallel.DistributedDataParallel
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == 3 and trainer.evaluate()["eval_loss"] < losses[0], losses
    sums = [None] * size
    dist.all_gather_object(sums, sum(p.double().sum() for p in model.parameters()).item())
    assert len(set(sums)) == 1 and sums[0] != before, sums
    dist.barrier()
    assert os.path.exists(f"{folder}/checkpoint-3/model.safetensors")


def main():
    import ddprun.torch

    dist.init_process_group("ddp")
    rank, size = dist.get_rank(), dist.get_world_size()
    with_accelerate(size)
    with_trainer(size, sys.argv[1])
    print(f"rank {rank}: ok", flush=True)
    dist.destroy_process_group()


main()
