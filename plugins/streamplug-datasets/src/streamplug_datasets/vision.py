"""Data sets of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from streamplug.errors import ConfigError
from streamplug_datasets.transform import TransformedDataset


def as_array(image: Image.Image) -> NDArray[Any]:
    """Return an image as an array of shape ``[channels, height, width]``, as torchvision does.

    Images of 8 bits become float32 between 0 and 1, others keep their type. A loader makes tensors of arrays.
    """
    pixels: NDArray[Any] = np.array(image)
    channels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if pixels.dtype == np.uint8:
        channels = np.divide(channels, 255, dtype=np.float32)
    return channels.astype(np.float32) if pixels.dtype == bool else np.ascontiguousarray(channels)


class ClassifiedImages(TransformedDataset):
    """Pairs of an image and its class.

    Args:
        transforms: Called with image and class, returns both; instead of the others.
        transform: Called with the image; None makes an array of it, see `as_array`.
        target_transform: Called with the class.
        **kwargs: As for `streamplug.StreamingDataset`.

    Raises:
        ConfigError: If `transforms` comes with one of the others.
    """

    def __init__(
        self,
        *,
        transforms: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if transforms is not None and (transform or target_transform) is not None:
            raise ConfigError("give either transforms=, or transform= and target_transform=")
        super().__init__(**kwargs)
        self.transforms = transforms
        self.transform, self.target_transform = transform, target_transform

    def change(self, sample: dict[str, Any]) -> Any:
        """Return image and class."""
        x, y = sample["x"], sample["y"]
        if self.transforms is not None:
            return self.transforms(x, y)
        x = (self.transform or as_array)(x)
        return x, y if self.target_transform is None else self.target_transform(y)


class StreamingCIFAR10(ClassifiedImages):  # noqa: D101 - below
    __doc__ = f"CIFAR-10. {ClassifiedImages.__doc__}"


class StreamingImageNet(ClassifiedImages):  # noqa: D101 - below
    __doc__ = f"ImageNet (ILSVRC 2012). {ClassifiedImages.__doc__}"


class StreamingADE20K(TransformedDataset):
    """ADE20K: pairs of an image and the image of its classes.

    Args:
        joint_transform: Called with a pair of both, before the others; returns a pair.
        transform: Called with the image.
        target_transform: Called with the image of classes.
        **kwargs: As for `streamplug.StreamingDataset`.
    """

    def __init__(
        self,
        *,
        joint_transform: Callable[[tuple[Any, Any]], tuple[Any, Any]] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.joint_transform = joint_transform
        self.transform, self.target_transform = transform, target_transform

    def change(self, sample: dict[str, Any]) -> tuple[Any, Any]:
        """Return image and classes."""
        x, y = sample["x"], sample["y"]
        if self.joint_transform is not None:
            x, y = self.joint_transform((x, y))
        if self.transform is not None:
            x = self.transform(x)
        return x, y if self.target_transform is None else self.target_transform(y)


class StreamingCOCO(TransformedDataset):
    """COCO detection: image (RGB), its number, (height, width), boxes, and the class of each box.

    A box is left, top, right and bottom, as parts of width and height; classes count from 1.

    Args:
        transform: Called with image, (height, width), boxes and classes, returns these four.
        **kwargs: As for `streamplug.StreamingDataset`.
    """

    def __init__(
        self, *, transform: Callable[[Any, Any, Any, Any], Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.transform = transform

    def change(self, sample: dict[str, Any]) -> tuple[Any, ...]:
        """Return what is in the image, and where."""
        image, size = sample["img"].convert("RGB"), (sample["htot"], sample["wtot"])
        boxes, labels = sample["bbox_sizes"], sample["bbox_labels"]
        if self.transform is not None:
            image, size, boxes, labels = self.transform(image, size, boxes, labels)
        return image, sample["img_id"], size, boxes, labels
