"""Small stand-ins for what mosaicml-streaming and datasets import but that no test of ours reaches.

torchvision and transformers are large, and bind the environment to their versions of torch.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

_NEEDED = {
    "torchvision": (),
    "torchvision.datasets": ("VisionDataset",),
    "torchvision.transforms": (),
    "torchvision.transforms.functional": ("to_tensor",),
    "transformers": ("PreTrainedTokenizerBase",),
    "transformers.feature_extraction_utils": ("BatchFeature",),
    "transformers.models": (),
    "transformers.models.auto": (),
    "transformers.models.auto.tokenization_auto": ("AutoTokenizer",),
    "transformers.tokenization_utils_base": ("BatchEncoding",),
}


def install() -> None:
    """Make the stand-ins importable, before the first import of mosaicml-streaming."""
    for name, attributes in _NEEDED.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)  # others look whether it is there
        for attribute in attributes:
            setattr(module, attribute, type(attribute, (), {}))
        sys.modules.setdefault(name, module)
