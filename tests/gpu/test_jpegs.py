"""JPEG files decoded on a CUDA device: pixels close to those of the CPU, and errors that say which file."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from PIL import Image  # noqa: E402
from streamplug_image import ImageFiles, decode_jpegs  # noqa: E402

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.errors import DecodeError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = [(64, 48), (33, 97), (200, 120), (64, 48)]
MEAN_DIFFERENCE = 3.0  # of 255: chroma is upsampled in other ways


def jpeg(height: int, width: int, mode: str = "RGB") -> bytes:
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    pixels = np.stack([x, y, (x + y) / 2], 2) * 255
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(file, "JPEG", quality=95)
    return file.getvalue()


def difference(image: Any, file: bytes, mode: str = "RGB") -> float:
    expected = np.asarray(Image.open(io.BytesIO(file)).convert(mode), np.float32)
    expected = expected.reshape(*expected.shape[:2], -1).transpose(2, 0, 1)
    found = image.cpu().numpy().astype(np.float32)
    assert found.shape == expected.shape
    return float(np.abs(found - expected).mean())


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("stored", ["RGB", "L"])
def test_pixels_are_close_to_those_of_the_cpu(mode, stored):
    files = [jpeg(*size, stored) for size in SIZES]
    images = decode_jpegs(files, mode=mode)
    assert all(image.is_cuda and image.dtype == torch.uint8 for image in images)
    assert all(difference(*pair, mode) < MEAN_DIFFERENCE for pair in zip(images, files))


def test_images_of_one_size_are_one_tensor():
    images = decode_jpegs([jpeg(*size) for size in SIZES], size=(32, 24))
    assert images.is_cuda
    assert images.shape == (len(SIZES), 3, 32, 24)
    # Its image looks the same at each size of one aspect ratio.
    assert difference(images[0], jpeg(32, 24)) < 2 * MEAN_DIFFERENCE


def test_an_error_says_which_file_is_damaged():
    files = [jpeg(*size) for size in SIZES]
    files[2] = files[2][:40]
    with pytest.raises(DecodeError, match="image 2 of the batch"):
        decode_jpegs(files)
    assert len(decode_jpegs(files[:2])) == 2  # the device still works


def test_batches_of_a_loader_are_decoded(tmp_path):
    files = [jpeg(40 + n, 60) for n in range(32)]
    with MDSWriter(out=str(tmp_path / "set"), columns={"image": "bytes"}) as writer:
        for file in files:
            writer.write({"image": file})
    data = StreamingDataset(
        local=str(tmp_path / "set"), batch_size=8, decoders={"image": ImageFiles()}
    )
    seen = 0
    for batch in StreamingDataLoader(data, num_workers=2, device="cuda"):
        for image in decode_jpegs(batch["image"]):
            assert difference(image, files[seen]) < MEAN_DIFFERENCE
            seen += 1
    assert seen == len(files)
