# SPDX-License-Identifier: MIT
# A PyTorch DDP script as people write them for torchrun; rank 0 writes the final weights to the file argv[1].
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = torch.Generator().manual_seed(1)
for step in range(10):
    batch = torch.rand(world * 4, 8, generator=data)[rank * 4:rank * 4 + 4]
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
if rank == 0:
    with open(sys.argv[1], "w") as out:
        print([value.hex() for value in model.module.weight.detach().flatten().tolist()], file=out)
dist.destroy_process_group()
