from __future__ import annotations

import numpy as np


def imshow(image):
    print("shown", np.shape(image))
