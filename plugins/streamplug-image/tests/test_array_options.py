from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps, features
from streamplug_image import ImageArrays, RandomResizedCrop
from streamplug_image.orientation import stored_box

from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import GatherBuffer
from streamplug.plugin import make

CLOSE = 0 if features.check("libjpeg_turbo") else 3


def picture(size=(50, 30), seed=0):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def file_of(image, kind="JPEG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def read(data, **options):
    return ImageArrays(**options)(make("encoding", "bytes")).decode(memoryview(data))


def differ(array, image):
    return np.abs(array.astype(int) - np.asarray(image).reshape(array.shape)).max()


# -- orientation ------------------------------------------------------------------------


def turned(image, orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return file_of(image, kind, exif=exif)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(10))
def test_images_are_turned_on_request(kind, orientation):
    data = turned(picture(), orientation, kind)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert differ(read(data, orient=True), expected.convert("RGB")) <= CLOSE
    assert differ(read(data), picture()) <= (0 if kind in ("PNG", "TIFF") else 60)
    assert read(data).shape == (30, 50, 3)
    for options in ({"fit": "crop"}, {"fit": "pad"}, {"fit": "crop", "shorter_side": 64}, {}):
        upright = read(file_of(expected, "PNG"), size=(60, 55), **options)
        assert differ(read(data, size=(60, 55), orient=True, **options), upright) <= 1 + CLOSE


def test_orientation_is_found_behind_large_segments():
    data = turned(picture(), 6, "JPEG")
    begin, profile = (
        data.index(b"\xff\xe1"),
        b"\xff\xe2" + (60_002).to_bytes(2, "big") + bytes(60_000),
    )
    assert read(data[:begin] + 3 * profile + data[begin:], orient=True).shape == (50, 30, 3)
    filled = data[:begin] + b"\xff" + data[begin:]  # any marker may follow more of these bytes
    assert read(filled, orient=True).shape == (50, 30, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_random_crops_are_those_of_the_turned_image(orientation):
    pytest.importorskip("torch")
    data = turned(picture((90, 60)), orientation, "JPEG")
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    crop = RandomResizedCrop((70, 60), scale=(0.5, 1), orient=True)
    for seed in range(6):
        array = crop.decode(data, np.random.default_rng(seed))
        expected = crop.decode(upright, np.random.default_rng(seed))
        assert differ(array, expected) <= 1 + CLOSE


@given(st.integers(1, 8), st.tuples(*[st.integers(0, 20)] * 4))
def test_boxes_are_found_where_they_are_stored(orientation, edges):
    box = (edges[0], edges[1], edges[0] + edges[2] + 1, edges[1] + edges[3] + 1)
    size = (50, 60)
    image = Image.fromarray(np.arange(3000, dtype=np.int32).reshape(size))
    exif = image.getexif()
    exif[0x0112] = orientation
    shown = set(np.asarray(ImageOps.exif_transpose(image).crop(box)).ravel())
    assert shown == set(np.asarray(image.crop(stored_box(box, size, orientation))).ravel())


# -- modes and files --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_images_of_16_bits(kind):
    values = np.random.default_rng(0).integers(0, 65536, (30, 40), np.uint16)
    data = file_of(Image.fromarray(values), kind)
    array = read(data, mode="I;16")
    assert array.dtype == np.uint16
    assert (array[..., 0] == values).all()
    halved = read(data, mode="I;16", size=(15, 20))
    expected = np.asarray(
        Image.fromarray(values.astype(np.float32)).resize((20, 15), Image.Resampling.BILINEAR)
    )
    assert np.abs(halved[..., 0] - expected).max() <= 0.5
    floats = read(data, mode="I;16", mean=[0.5], std=[0.25], size=(15, 20))
    assert np.allclose(floats, (halved / 65535 - 0.5) / 0.25, atol=1e-4)
    batch = ImageArrays(size=(15, 20), mode="I;16")(make("encoding", "bytes")).decode_batch(
        GatherBuffer(np.frombuffer(data, np.uint8)), np.array([0]), np.array([len(data)])
    )
    assert (batch[0] == halved).all()


def test_images_of_8_bits_become_16():
    data = file_of(picture())
    grey = np.asarray(Image.open(io.BytesIO(data)).convert("L"), np.uint16)
    assert (read(data, mode="I;16")[..., 0] == grey * 257).all()


def test_values_beyond_16_bits_are_refused():
    for image in (Image.new("I", (3, 3), 70000), Image.new("F", (3, 3), 0.5)):
        with pytest.raises(DecodeError, match="not of 16 bits"):
            read(file_of(image, "TIFF"), mode="I;16")


@pytest.mark.skipif(not features.check_module("webp"), reason="Pillow without WebP")
def test_webp():
    data = file_of(picture(), "WEBP", lossless=True)
    assert differ(read(data), picture()) == 0


@pytest.mark.skipif(
    "avif" not in features.modules or not features.check("avif"), reason="Pillow without AVIF"
)
def test_avif():
    data = file_of(picture(), "AVIF")
    assert differ(read(data), Image.open(io.BytesIO(data))) == 0


def test_palettes_grey_and_cmyk_become_colours():
    for image in (picture().quantize(9), picture().convert("L"), picture().convert("CMYK")):
        kind = "TIFF" if image.mode == "CMYK" else "PNG"
        assert differ(read(file_of(image, kind)), image.convert("RGB")) == 0


# -- evaluation -------------------------------------------------------------------------


@given(st.tuples(st.integers(20, 400), st.integers(20, 400)), st.sampled_from([40, 48, 64]))
def test_the_center_is_that_of_an_image_with_a_shorter_side(size, shorter_side):
    image = picture(size)
    data = file_of(image, "PNG")
    array = read(data, size=(40, 40), fit="crop", shorter_side=shorter_side)
    scale = shorter_side / min(size)
    to = [max(round(side * scale), shorter_side) for side in size]
    left, top = ((side - 40) / 2 for side in to)
    resized = image.resize(to, Image.Resampling.BILINEAR)
    expected = resized.crop((round(left), round(top), round(left) + 40, round(top) + 40))
    # Both are rounded to whole pixels there, and not here.
    assert np.abs(array.astype(int) - np.asarray(expected)).mean() < 4


@given(
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from(["stretch", "pad", "crop"]),
    st.sampled_from(["L", "RGB", "RGBA"]),
)
def test_torch_resizes_as_pillow_does(size, to, fit, mode):
    pytest.importorskip("torch")
    data = file_of(picture(size), "PNG")
    options = {"size": to, "fit": fit, "mode": mode}
    one, other = (read(data, **options, resampler=name) for name in ("torch", "pillow"))
    assert one.shape == other.shape == (*to, len(mode))
    assert differ(one, other) <= 1


def test_floats_are_normalised_and_padded_with_zeros():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    encoding = ImageArrays(size=(30, 30), fit="pad", mean=mean, std=std, layout="NCHW")(
        make("encoding", "jpeg")
    )
    data = file_of(picture((60, 20)))
    batch = encoding.decode_batch(
        GatherBuffer(np.frombuffer(data, np.uint8)), np.array([0]), np.array([len(data)])
    )
    assert batch.shape == (1, 3, 30, 30)
    assert batch.dtype == np.float32
    assert encoding.decoded_bytes == batch.nbytes
    assert not batch[:, :, :10].any()
    plain = read(data, size=(30, 30), fit="pad")[10:20]
    shown = np.moveaxis(batch[0], 0, 2)[10:20]
    assert np.allclose(shown, (plain / 255 - mean) / std, atol=1e-5)
    assert (encoding.decode(memoryview(data)) == batch[0]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shorter_side": 256}, "shorter_side=256 needs fit='crop' and a size="),
        ({"size": (9, 9), "shorter_side": 256}, "shorter_side=256 needs fit='crop'"),
        ({"size": (9, 7), "fit": "crop", "shorter_side": 8}, "at least 9, the longer"),
        ({"size": (9, 7), "fit": "crop", "shorter_side": 9.5}, "shorter_side=9.5"),
        ({"mean": (1, 2), "std": (1, 2)}, "expected 3 numbers"),
        ({"std": (1, 2, 3)}, "mean=None: expected 3 numbers"),
        (
            {"mean": (124, 116, 104), "std": (0.2, 0.2, 0.2)},
            "mean=.* divide those of pixels of 8 bits",
        ),
        (
            {"mean": (0.5, 0.5, 0.5), "std": (58, 57, 57)},
            "std=.* divide those of pixels of 8 bits by 255",
        ),
        ({"orient": "yes"}, "orient='yes'"),
        ({"resampler": "lanczos"}, "expected one of pillow, torch"),
    ],
)
def test_options_without_a_meaning_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ImageArrays(**options)
