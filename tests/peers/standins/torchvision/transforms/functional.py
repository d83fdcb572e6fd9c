from __future__ import annotations

import numpy as np
import torch  # noqa: TID251 - as that package does


def to_tensor(image):
    pixels = np.array(image)
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1) / 255).float()
