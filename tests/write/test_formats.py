"""What a writer does with formats besides the built-in one."""

from __future__ import annotations

import json

import pytest

from streamplug import StreamingDataset, Writer, register_format
from streamplug.builtin.encodings.plain import Str
from streamplug.builtin.mds import MDS
from streamplug.errors import ConfigError, UnknownNameError
from streamplug.plugin.registry import unregister


class OwnWords(MDS):
    """MDS, but for what it calls text."""

    encodings = {"words": Str()}  # noqa: RUF012 - as the interface has it


@pytest.fixture(autouse=True)
def registered():
    register_format("mds-own", OwnWords)
    yield
    unregister("format", "mds-own")


def test_a_format_is_as_good_as_its_name(tmp_path):
    for folder, format_ in (("name", "mds"), ("format", MDS())):
        with Writer(out=tmp_path / folder, columns={"n": "int"}, format=format_) as out:
            out.write({"n": 7})
    for file in ("index.json", "shard.00000.mds"):
        assert (tmp_path / "name" / file).read_bytes() == (tmp_path / "format" / file).read_bytes()


def test_a_format_with_encodings_of_its_own_is_written_and_read_with_them(tmp_path):
    with Writer(out=tmp_path, columns={"text": "words"}, format=OwnWords()) as out:
        out.write({"text": "some"})
    index = json.loads((tmp_path / "index.json").read_text())
    index["shards"][0]["format"] = "mds-own"
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert StreamingDataset(local=str(tmp_path))[0] == {"text": "some"}
    index["shards"][0]["column_encodings"] = ["str"]
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(UnknownNameError, match=r"shard 0: column 'text': .*'str'; it has words"):
        StreamingDataset(local=str(tmp_path))


def test_a_format_with_encodings_of_its_own_has_no_others(tmp_path):
    with pytest.raises(UnknownNameError, match=r"column 'text': .*'str'; it has words"):
        Writer(out=tmp_path, columns={"text": "str"}, format="mds-own")
    with pytest.raises(UnknownNameError, match="unknown encoding 'words'"):
        Writer(out=tmp_path, columns={"text": "words"}, format="mds")


def test_what_is_no_format_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="format=7"):
        Writer(out=tmp_path, columns={"n": "int"}, format=7)
