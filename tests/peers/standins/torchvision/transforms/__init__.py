from __future__ import annotations

import torch  # noqa: TID251 - as that package does

from torchvision.transforms.functional import to_tensor


class Compose:
    def __init__(self, transforms):
        self._transforms = transforms

    def __call__(self, value):
        for each in self._transforms:
            value = each(value)
        return value


class ToTensor:
    def __call__(self, image):
        return to_tensor(image)


class Normalize:
    def __init__(self, mean, std):
        self._mean, self._std = (torch.tensor(x)[:, None, None] for x in (mean, std))

    def __call__(self, tensor):
        return (tensor - self._mean) / self._std


class Resize:
    def __init__(self, size):
        self._size = size

    def __call__(self, image):
        return image.resize(self._size[::-1])
