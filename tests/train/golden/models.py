# SPDX-License-Identifier: MIT
"""The trainer's models as PyTorch modules that draw the same initial weights from the same seed: the draws happen in the
order in which the parameters are made."""
import math

import torch
from torch import nn
from torch.nn import functional


class Cnn(nn.Module):
    def __init__(self, channels, side, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * (side // 4) ** 2, 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.downsample = None
        if stride != 1 or before != channels:
            self.downsample = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    """CIFAR's: three stages of 16, 32 and 64 channels, (depth - 2) / 6 blocks each."""

    def __init__(self, depth, image_channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(image_channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        before = 16
        for stage, channels in enumerate((16, 32, 64)):
            blocks = []
            for i in range((depth - 2) // 6):
                blocks.append(Block(before, channels, 2 if stage and i == 0 else 1))
                before = channels
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def normal_linear(inputs, outputs, std):
    """nn.Linear draws its own values first; here only those that stay are drawn."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    nn.init.normal_(layer.weight, 0.0, std)
    nn.init.zeros_(layer.bias)
    return layer


def normal_embedding(count, channels):
    layer = nn.utils.skip_init(nn.Embedding, count, channels)
    nn.init.normal_(layer.weight, 0.0, 0.02)
    return layer


class Attention(nn.Module):
    def __init__(self, channels, heads, layers):
        super().__init__()
        self.heads = heads
        self.c_attn = normal_linear(channels, 3 * channels, 0.02)
        self.c_proj = normal_linear(channels, channels, 0.02 / math.sqrt(2 * layers))

    def forward(self, x):
        batch, length, channels = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(channels, 2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).masked_fill(
            torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
        y = scores.softmax(3) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, channels))


class Mlp(nn.Module):
    def __init__(self, channels, layers):
        super().__init__()
        self.c_fc = normal_linear(channels, 4 * channels, 0.02)
        self.c_proj = normal_linear(4 * channels, channels, 0.02 / math.sqrt(2 * layers))

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class GptBlock(nn.Module):
    def __init__(self, channels, heads, layers):
        super().__init__()
        self.ln_1 = nn.LayerNorm(channels)
        self.attn = Attention(channels, heads, layers)
        self.ln_2 = nn.LayerNorm(channels)
        self.mlp = Mlp(channels, layers)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, channels):
        super().__init__()
        self.wte = normal_embedding(vocabulary, channels)
        self.wpe = normal_embedding(context, channels)
        self.h = nn.ModuleList(GptBlock(channels, heads, layers) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T
