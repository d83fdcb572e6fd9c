"""A small GPT and a ResNet-50, for the benchmark of devices."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn  # noqa: TID251
from torch.nn import functional  # noqa: TID251


@dataclass(frozen=True)
class GPTOptions:
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50_304
    length: int = 1024


class Block(nn.Module):
    def __init__(self, options: GPTOptions) -> None:
        super().__init__()
        self.heads, width = options.heads, options.width
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        size, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(size, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(size, length, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Returns the loss of rows of `length + 1` tokens."""

    def __init__(self, options: GPTOptions) -> None:
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        self.places = nn.Embedding(options.length, options.width)
        self.blocks = nn.Sequential(*(Block(options) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.width)

    def forward(self, batch):
        rows = batch["tokens"].long()
        x = self.tokens(rows[:, :-1]) + self.places.weight
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.T
        return functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU(True)),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        self.short = nn.Sequential()
        if stride > 1 or inputs != 4 * width:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        return functional.relu(self.path(x) + self.short(x), inplace=True)


class ResNet50(nn.Module):
    """Returns the loss of uint8 images of shape `[n, height, width, 3]`."""

    def __init__(self, width: int = 64, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            *(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)),
            nn.MaxPool2d(3, 2, 1),
        ]
        inputs = width
        for stage, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if stage and not number else 1
                layers.append(Bottleneck(inputs, width << stage, stride))
                inputs = 4 * (width << stage)
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(inputs, 1000)

    def forward(self, batch):
        images = batch["image"].permute(0, 3, 1, 2).float().div_(255)  # strides as channels_last
        return functional.cross_entropy(self.head(self.layers(images)).float(), batch["label"])
