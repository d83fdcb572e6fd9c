"""Imports torchvision's transforms, also where torchvision was built for another torch."""

from __future__ import annotations

import sys
from typing import Any


def import_transforms() -> Any:
    """Return ``torchvision.transforms.v2``.

    Raises:
        ImportError: If torchvision is not installed.
    """
    import torch  # noqa: TID251

    try:
        import torchvision
    except RuntimeError:  # its compiled part does not load; the transforms do not need it
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

        torchvision.defined_operators = library  # they go when it goes
    from torchvision.transforms import v2

    return v2
