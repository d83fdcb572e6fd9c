"""Every encoding stores any value in the bytes that mosaicml-streaming stores it in."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from streamplug.index.hashes import digests
from streamplug.interfaces import Encoding
from streamplug.plugin import make

INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
MODES = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}
JPEG_MODES = ("L", "RGB", "CMYK")


def integers(name: str) -> st.SearchStrategy[Any]:
    info = np.iinfo(name)
    plain = st.integers(int(info.min), int(info.max))
    return plain | st.booleans() | plain.map(np.dtype(name).type)


def floats(name: str) -> st.SearchStrategy[Any]:
    scalars = [hnp.from_dtype(np.dtype(kind)) for kind in (*FLOATS, *INTEGERS)]
    numbers = st.floats() | st.integers(-(2**70), 2**70) | st.booleans() | st.one_of(scalars)
    limit = float(np.finfo(name).max)
    # Other numbers it makes infinite, and streamplug refuses.
    return numbers.filter(lambda number: not limit < abs(float(number)) < np.inf)


def arrays(dtype: str, shape: Any = None) -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(max_dims=5, max_side=4) | st.tuples(st.integers(250, 300))
    made = hnp.arrays(dtype, shapes if shape is None else shape)
    # The values count in C order, however they lie in memory.
    return made | (made.map(np.asfortranarray) if shape else made.map(np.transpose))


@st.composite
def images(draw: st.DrawFn, modes: tuple[str, ...] = tuple(MODES)) -> Image.Image:
    mode = draw(st.sampled_from(modes))
    width, height = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    size = width * height * MODES[mode]
    return Image.frombytes(mode, (width, height), draw(st.binary(min_size=size, max_size=size)))


def jsonable() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    inside = st.recursive(
        leaves, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=8
    )
    return inside | arrays("float32") | arrays("int16")


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "str": st.text(),
    "int": st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    **{name: integers(name) for name in INTEGERS},
    **{name: floats(name) for name in FLOATS},
    "str_int": st.integers(),
    "str_float": st.floats() | st.floats().map(np.float64),
    "str_decimal": st.decimals(),
    "ndarray": st.one_of([arrays(dtype) for dtype in (*INTEGERS, *FLOATS)]),
    **{f"ndarray:{dtype}": arrays(dtype) for dtype in (*INTEGERS, *FLOATS)},
    **{f"ndarray:{dtype}:2,3": arrays(dtype, (2, 3)) for dtype in (*INTEGERS, *FLOATS)},
    "pil": images(),
    "jpeg": images(JPEG_MODES),
    "png": images(("L", "RGB", "RGBA")),
    "list[pil]": st.lists(images(), max_size=3),
    "list[jpeg]": st.lists(images(JPEG_MODES), max_size=3),
    "list[png]": st.lists(images(("L", "RGB", "RGBA")), max_size=3),
    # It stores bytes as they are in any column; those in a pkl column it cannot read again.
    "pkl": st.recursive(
        st.none() | st.integers() | st.text() | st.tuples(st.binary()),
        lambda some: st.lists(some) | st.tuples(some) | st.dictionaries(st.text(), some),
        max_leaves=8,
    ),
    "json": jsonable(),
}


def form(value: Any) -> Any:
    """Describe a value so that equal descriptions mean equal type and content."""
    if isinstance(value, Image.Image):
        return (value.mode, value.size, value.tobytes())
    if isinstance(value, (np.ndarray, np.generic)):
        return (type(value), value.dtype, value.shape, value.tobytes())
    if isinstance(value, (list, tuple)):
        return [type(value), *map(form, value)]
    if isinstance(value, dict):
        return [(key, form(item)) for key, item in value.items()]
    return (type(value), repr(value))  # NaN is not equal to itself


@pytest.mark.parametrize("spec", VALUES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_same_bytes(spec: str, data: st.DataObject, mosaic: ModuleType) -> None:
    theirs = mosaic.base.format.mds.encodings
    ours: Encoding = make("encoding", spec)
    values = data.draw(st.lists(VALUES[spec], min_size=1, max_size=3))
    stored = [theirs.mds_encode(spec, value) for value in values]
    assert [ours.encode(value) for value in values] == stored
    batch = ours.encode_batch(values)
    joined = b"".join(batch) if isinstance(batch, list) else batch.tobytes()
    assert joined == b"".join(stored)
    assert ours.size == theirs.get_mds_encoded_size(spec)
    for one in stored:
        assert form(ours.decode(memoryview(one))) == form(theirs.mds_decode(spec, one))


@pytest.mark.parametrize("spec", ["jpeg_array", "jpegarray"])
@settings(max_examples=30, deadline=None)
@given(pictures=st.lists(images(JPEG_MODES), min_size=1, max_size=3))
def test_same_bytes_of_jpeg_arrays(
    spec: str, pictures: list[Image.Image], mosaic: ModuleType
) -> None:
    theirs = mosaic.base.format.mds.encodings
    ours: Encoding = make("encoding", spec)
    # Its own takes encoded images only.
    stored = theirs.mds_encode(spec, [theirs.mds_encode("jpeg", one) for one in pictures])
    assert ours.encode(pictures) == stored
    assert form(ours.decode(memoryview(stored))) == form(theirs.mds_decode(spec, stored))


@pytest.mark.parametrize("spec", ["jpeg", "png"])
@given(picture=images(("L", "RGB")))
def test_same_bytes_of_image_files(spec: str, picture: Image.Image, mosaic: ModuleType) -> None:
    theirs = mosaic.base.format.mds.encodings
    file = theirs.mds_encode(spec, picture)
    assert make("encoding", spec).encode(file) == theirs.mds_encode(spec, file) == file


def test_every_encoding_is_compared(mosaic: ModuleType) -> None:
    compared = {spec.partition(":")[0] for spec in VALUES} | {"jpeg_array", "jpegarray"}
    assert compared == mosaic.base.format.mds.encodings.get_mds_encodings()


def test_every_compression_is_known(mosaic: ModuleType) -> None:
    for name in sorted(mosaic.base.compression.get_compressions()):
        packed = make("compression", name).compress(b"streamplug" * 9)
        assert mosaic.base.compression.decompress(name, packed) == b"streamplug" * 9
        packed = mosaic.base.compression.compress(name, b"streamplug" * 9)
        assert make("compression", name).decompress(packed, max_size=90) == b"streamplug" * 9


def test_every_hash_is_known(mosaic: ModuleType) -> None:
    for name in sorted(mosaic.base.hashing.get_hashes()):
        theirs = mosaic.base.hashing.get_hash(name, b"streamplug")
        assert digests([name], [b"stream", b"plug"]) == {name: theirs}
