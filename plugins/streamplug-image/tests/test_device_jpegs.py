"""Decoding of JPEG files on a device; torchvision is a stand-in, as most machines have no nvJPEG."""

from __future__ import annotations

import io
import sys
from enum import Enum
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from streamplug_image import decode_jpegs  # noqa: E402

from streamplug.errors import ConfigError, DecodeError  # noqa: E402


class ImageReadMode(Enum):
    GRAY = 1
    RGB = 3


@pytest.fixture
def torchvision(monkeypatch):
    """torchvision.io with a device that decodes by Pillow, and fails as a whole for one damaged file."""
    module = ModuleType("torchvision.io")
    module.ImageReadMode, module.calls, module.missing = ImageReadMode, [], False

    def decode_jpeg(files, mode, device):
        module.calls.append((len(files), device))
        if module.missing:
            raise RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support")
        try:
            images = [
                Image.open(io.BytesIO(bytes(file.numpy()))).convert(
                    "RGB" if mode is ImageReadMode.RGB else "L"
                )
                for file in files
            ]
            arrays = [np.atleast_3d(np.array(image)) for image in images]
        except OSError as error:
            raise RuntimeError("nvjpegGetImageInfo failed: 3") from error
        return [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]

    module.decode_jpeg = decode_jpeg
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.io", module)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return module


def jpeg(width: int, height: int) -> bytes:
    file, rng = io.BytesIO(), np.random.default_rng(width)
    Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


FILES = [jpeg(40, 30), jpeg(20, 30)]


def test_a_batch_is_decoded_by_one_call(torchvision):
    images = decode_jpegs(FILES)
    assert torchvision.calls == [(2, torch.device("cuda"))]
    assert [tuple(image.shape) for image in images] == [(3, 30, 40), (3, 30, 20)]
    whole = np.array(Image.open(io.BytesIO(FILES[0])))
    assert (images[0].permute(1, 2, 0).numpy() == whole).all()


def test_images_are_resized_to_one_tensor(torchvision):
    images = decode_jpegs(FILES, size=(30, 20), mode="L", device="cuda:0")
    assert images.dtype == torch.uint8
    assert images.shape == (2, 1, 30, 20)
    same = np.array(Image.open(io.BytesIO(FILES[1])).convert("L"))
    assert (images[1, 0].numpy() == same).all()
    smaller = Image.open(io.BytesIO(FILES[0])).convert("L").resize((20, 30), Image.BILINEAR)
    assert np.abs(images[0, 0].numpy().astype(int) - np.array(smaller)).max() <= 1


@pytest.mark.parametrize("damaged", [FILES[0][:30], b"\x89PNG\r\n\x1a\n"])
def test_a_damaged_file_is_named_by_its_place(torchvision, damaged):
    with pytest.raises(DecodeError, match="image 1 of the batch"):
        decode_jpegs([FILES[0], damaged, FILES[1]])


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"device": "cpu"}, "device='cpu': decode_jpegs decodes on a CUDA device; use ImageArrays"),
        ({"device": "cuda:3"}, "torch finds 1 CUDA devices"),
        ({"mode": "RGBA"}, "mode='RGBA': expected one of RGB, L"),
        ({"size": 224}, "size=224: expected a height and a width"),
        ({"files": []}, "expected one file or more"),
    ],
)
def test_arguments_are_checked(torchvision, wrong, error):
    with pytest.raises(ConfigError, match=error):
        decode_jpegs(**{"files": FILES, **wrong})
    assert not torchvision.calls


def test_a_machine_without_nvjpeg_is_told_what_to_install(torchvision, monkeypatch):
    torchvision.missing = True
    with pytest.raises(ConfigError, match="nvJPEG support; install a torchvision that is built"):
        decode_jpegs(FILES)
    monkeypatch.setitem(sys.modules, "torchvision.io", None)
    with pytest.raises(ConfigError, match="decode_jpegs needs torchvision"):
        decode_jpegs(FILES)
