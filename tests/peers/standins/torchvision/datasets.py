from __future__ import annotations

import numpy as np
from PIL import Image


class VisionDataset:
    """Stands for a base class."""


class CIFAR10:
    """Images of random pixels: there is nothing to be downloaded from."""

    def __init__(self, root, *, train, download):
        draw = np.random.default_rng(train)
        self._pixels = draw.integers(0, 256, (160 if train else 64, 32, 32, 3), np.uint8)
        self._classes = draw.integers(0, 10, len(self._pixels)).tolist()

    def __len__(self):
        return len(self._classes)

    def __getitem__(self, at):
        return Image.fromarray(self._pixels[at]), self._classes[at]
