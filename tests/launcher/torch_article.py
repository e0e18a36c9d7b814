# SPDX-License-Identifier: MIT
# The article's DDP run as a PyTorch script for torchrun: rank 0 prints the final weights.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.rand(8, 8))
model = torch.nn.Linear(8, 1, bias=False)
torch.nn.init.ones_(model.weight)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
sampler = DistributedSampler(data, shuffle=False)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
if dist.get_rank() == 0:
    print("Model weights:", [round(value, 4) for value in model.module.weight.detach().flatten().tolist()])
dist.destroy_process_group()
