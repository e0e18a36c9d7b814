# SPDX-License-Identifier: MIT
"""Steps of a model whose weights PyTorch's FSDP2 splits over gloo's ranks on CPUs, for bench/cluster.

usage: cluster_fsdp.py 124M|smollm2-135m STEPS BATCH LENGTH

Blocks are wrapped one by one, and made where they are split: no rank ever has all weights. Rank 0 prints one JSON object: seconds
of each step; KiB at the peak of the largest rank, before its model was made, and when it was."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

from llama_torch import peak_kib, smollm2  # beside this file


def main():
    name, steps, batch, length = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    before = peak_kib()
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)) if name == "124M" else smollm2()
    for block in model.transformer.h if name == "124M" else model.model.layers:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cpu")
    model.init_weights()
    model.train()
    made = peak_kib()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    seconds = []
    for _ in range(steps):
        tokens = torch.randint(model.config.vocab_size, (batch, length))
        dist.barrier()
        start = time.monotonic()
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.monotonic() - start)
    peaks = torch.tensor([peak_kib(), before, made])
    dist.all_reduce(peaks, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(json.dumps({"seconds": seconds, "peak": int(peaks[0]), "before": int(peaks[1]), "made": int(peaks[2])}), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
