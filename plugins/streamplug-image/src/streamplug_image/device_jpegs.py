"""Decoding of JPEG files on a device, through torchvision, which calls nvJPEG."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch.nn.functional import interpolate

from streamplug.adapters import find_device
from streamplug.errors import ConfigError, DecodeError
from streamplug.plugin_kit import describe_start
from streamplug_image.checks import check_choice, check_size

MODES = {"RGB": "RGB", "L": "GRAY"}
"""Modes of images, and torchvision's names of them."""

_JPEG_BEGIN = b"\xff\xd8\xff"


def decode_jpegs(
    files: Sequence[bytes],
    *,
    size: tuple[int, int] | None = None,
    mode: str = "RGB",
    device: str | torch.device = "cuda",
) -> Any:
    """Decode the JPEG files of a batch on a device, in the process that trains.

    Pixels are nvJPEG's, which differ a little from those that `ImageArrays` reads.

    Args:
        files: JPEG files, such as a column that `ImageFiles` reads.
        size: Height and width to which images are resized, bilinear with antialiasing; None keeps those of
            each image.
        mode: ``"RGB"``, or ``"L"`` for grayscale.
        device: CUDA device.

    Returns:
        uint8 tensors on the device: with `size` one of shape ``[n, channels, height, width]``, else a list of
        shape ``[channels, height, width]`` each.

    Raises:
        ConfigError: If an argument is invalid, or torchvision is missing or has no nvJPEG.
        DecodeError: If a file is no JPEG file, or cannot be decoded; it gives its place in the batch.
    """
    place = find_device(device)
    if place is None or place.type != "cuda":
        raise ConfigError(
            f"device={device!r}: decode_jpegs decodes on a CUDA device; use ImageArrays on the CPU"
        )
    check_choice("mode", mode, MODES)
    to = None if size is None else check_size(size)
    try:
        torchvision = import_module("torchvision.io")
    except ImportError as error:
        raise ConfigError(f"decode_jpegs needs torchvision: {error}") from error
    if not files:
        raise ConfigError("decode_jpegs: expected one file or more")
    for number, file in enumerate(files):
        if bytes(file[:3]) != _JPEG_BEGIN:
            raise DecodeError(
                f"image {number} of the batch is not a JPEG file: {describe_start(file)}"
            )
    encoded = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
    read_mode = torchvision.ImageReadMode[MODES[mode]]
    try:
        images = torchvision.decode_jpeg(encoded, mode=read_mode, device=place)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if "not compiled" in str(error):
            raise ConfigError(
                f"decode_jpegs: {error}; install a torchvision that is built for CUDA"
            ) from error
        raise _error_of_one(torchvision, encoded, read_mode, place, error) from error
    if to is None:
        return images
    return torch.stack([_resize(image, to) for image in images])


def _error_of_one(
    torchvision: Any,
    encoded: list[torch.Tensor],
    read_mode: Any,
    place: torch.device,
    error: RuntimeError,
) -> DecodeError:
    """Return the error of the first file that fails by itself; torchvision does not say which one does."""
    for number, file in enumerate(encoded):
        try:
            torchvision.decode_jpeg([file], mode=read_mode, device=place)
        except RuntimeError as own:
            return DecodeError(f"image {number} of the batch: {own}")
    return DecodeError(f"a batch of {len(encoded)} images, each of which can be decoded: {error}")


def _resize(image: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    if image.shape[1:] == size:
        return image
    # CUDA has no kernel of this for uint8.
    pixels = interpolate(image[None].float(), size, mode="bilinear", antialias=True)
    return pixels[0].round_().clamp_(0, 255).byte()
