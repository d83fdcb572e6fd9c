"""Plugins that raise what is no error of ours, or return what they must not, are named."""

from __future__ import annotations

import sys

import pytest

from streamplug import Encoding, MDSWriter, StreamingDataset
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import DecompressError, EncodeTypeError, PluginError
from streamplug.interfaces import Compression
from streamplug.plugin import register
from streamplug.plugin.registry import unregister


class Digits(Encoding):
    def encode(self, value):
        return b"%d" % value

    def decode(self, data):
        return int(bytes(data))


class Copy(Compression):
    suffix = "copy"

    def compress(self, data):
        return bytes(data)

    def decompress(self, data, *, max_size):
        return bytes(data)


class Files(LocalStorage):
    def __init__(self, url, **options):
        super().__init__(url.removeprefix("odd:/"), **options)


def fails(*_, **__):
    raise ZeroDivisionError("division by zero")


def returns(value):
    return lambda *_, **__: value


@pytest.fixture
def changed(monkeypatch):
    """Return a function that registers a class with some attributes changed, as ``odd``."""
    kinds = []

    def change(kind, cls, **attributes):
        for name, value in attributes.items():
            monkeypatch.setattr(cls, name, value, raising=False)
        register(kind, "odd", cls)
        kinds.append(kind)

    yield change
    for kind in kinds:
        unregister(kind, "odd")


def write(folder, **options):
    with MDSWriter(out=folder, **{"columns": {"n": "odd"}, **options}) as out:
        for n in range(3):
            out.write({"n": n})


def test_an_encoding_that_raises_is_named_with_its_column(changed, tmp_path):
    changed("encoding", Digits, encode=fails)
    message = "column 'n': cannot encode int: ZeroDivisionError: division by zero"
    with pytest.raises(EncodeTypeError, match=message):
        write(tmp_path / "set")
    with (
        pytest.raises(EncodeTypeError, match=rf"{message} \(value 0 of the batch\)$"),
        MDSWriter(out=tmp_path / "batch", columns={"n": "odd"}) as out,
    ):
        out.write_batch({"n": [1, 2]})


@pytest.mark.parametrize(("kind", "cls"), [("encoding", Digits), ("compression", Copy)])
def test_a_class_that_makes_no_object_is_named(changed, tmp_path, kind, cls):
    options = {"columns": {"n": "int"}, "compression": "odd"} if kind == "compression" else {}
    changed(kind, cls, from_spec=fails)
    message = rf"{kind} 'odd': .*{cls.__name__}\.from_spec raised ZeroDivisionError"
    with pytest.raises(PluginError, match=message):
        write(tmp_path / "set", **options)
    for value in (None, "text"):
        changed(kind, cls, from_spec=returns(value))
        message = rf"{kind} 'odd': .*{cls.__name__}\.from_spec returned {type(value).__name__}: "
        with pytest.raises(PluginError, match=message):
            write(tmp_path / "set", **options)


def test_a_compression_that_fails_is_named_with_its_file(changed, tmp_path):
    options = {"columns": {"n": "int"}, "compression": "odd"}
    changed("compression", Copy, compress=fails)
    with pytest.raises(PluginError, match=r"shard\.00000\.mds: .*Copy\.compress raised ZeroDiv"):
        write(tmp_path / "raises", **options)
    for value in (None, "text"):
        changed("compression", Copy, compress=returns(value))
        message = rf"Copy\.compress returned {type(value).__name__}; expected bytes"
        with pytest.raises(PluginError, match=message):
            write(tmp_path / f"{value}", **options)
    changed("compression", Copy, compress=returns(bytes(100)))
    write(tmp_path / "set", **options)
    for decompress, name in ((fails, "ZeroDivisionError"), (returns(None), "TypeError")):
        changed("compression", Copy, decompress=decompress)
        message = rf"shard\.00000\.mds\.copy: .*Copy raised {name}"
        with pytest.raises(DecompressError, match=message):
            StreamingDataset(local=str(tmp_path / "set"), batch_size=1)[0]


def test_a_compression_without_a_suffix_is_refused():
    class NoSuffix(Compression):
        def compress(self, data):
            return bytes(data)

        def decompress(self, data, *, max_size):
            return bytes(data)

    with pytest.raises(PluginError, match=r"compression 'no-suffix' from .* lacks suffix"):
        register("compression", "no-suffix", NoSuffix)


def test_a_storage_that_fails_is_named_with_its_url(changed, tmp_path):
    write(tmp_path / "set", columns={"n": "int"})
    url = f"odd:/{tmp_path / 'set'}"

    def read(**attributes):
        changed("storage", Files, **attributes)
        folder = str(tmp_path / f"local {len(list(tmp_path.iterdir()))}")
        return StreamingDataset(remote=url, local=folder, batch_size=1, download_retry=0)[0]

    assert read() == {"n": 0}
    for value in (None, "text"):
        with pytest.raises(
            PluginError, match=rf"Files returned {type(value).__name__} for a range"
        ):
            read(read_range=returns(value))
    with pytest.raises(ZeroDivisionError) as info:
        read(read_range=fails)
    if sys.version_info >= (3, 11):  # errors have notes from then on
        assert info.value.__notes__[0].startswith("raised by the storage of ")
    with pytest.raises(PluginError, match=r"00000\.mds: its storage wrote no file, and raised no"):
        read(read_range=LocalStorage.read_range, download=returns(None))
