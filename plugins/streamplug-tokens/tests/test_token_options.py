"""Options of rows of tokens are checked as those of any data set are, wherever they come from."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_tokens.dataset import TokenDataset

import streamplug
from streamplug import MDSWriter, Stream, TokenBlocks, TokenPacks, register_storage
from streamplug.builtin.encodings.array import NDArrayEncoding
from streamplug.builtin.local_storage import LocalStorage
from streamplug.cli import main
from streamplug.errors import ConfigError, PluginError, UnknownKeywordError
from streamplug.plugin.registry import unregister

BLOCKS = TokenBlocks(column="tokens", length=4)
CALLS = [
    (lambda: TokenBlocks(column="tokens", lenght=4), "TokenBlocks(lenght", "length"),
    (
        lambda: TokenPacks(column="tokens", length=4, document_per_group=9),
        "TokenPacks(document_per_group",
        "documents_per_group",
    ),
    (lambda: TokenDataset(token=BLOCKS), "TokenDataset(token", "tokens"),
    (lambda: TokenDataset(tokens=BLOCKS, locl="set"), "TokenDataset(locl", "local"),
]


@pytest.mark.parametrize(("call", "named", "meant"), CALLS, ids=[named for _, named, _ in CALLS])
def test_a_misspelt_keyword_is_told_with_the_one_that_was_meant(call, named, meant):
    with pytest.raises(UnknownKeywordError) as caught:
        call()
    assert str(caught.value) == f"{named}=…): no such argument. Did you mean {meant!r}?"


def test_the_data_set_of_torch_knows_the_same_keywords():
    torch = pytest.importorskip("torch")
    assert issubclass(streamplug.TokenDataset, torch.utils.data.IterableDataset)
    assert streamplug.TokenDataset.__doc__ == TokenDataset.__doc__
    with pytest.raises(UnknownKeywordError, match=r"^TokenDataset.*'local'"):
        streamplug.TokenDataset(tokens=BLOCKS, locl="set")


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": None},
        {"length": 0},
        {"length": 2**31},
        {"separator": ""},
        {"separator": 0.5},
        {"padding": None},
        {"extras": 0},
        {"extras": "targets"},
        {"extras": [[]]},
    ],
)
def test_what_has_no_meaning_is_refused(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ConfigError, match=re.escape(f"{name}={value!r}")):
        TokenBlocks(**{"column": "text", "length": 4, **wrong})


def test_signatures_and_copies():
    assert inspect.signature(TokenBlocks).parameters["length"].kind.name == "KEYWORD_ONLY"
    assert pickle.loads(pickle.dumps(BLOCKS)) == BLOCKS


def test_without_torch_the_class_is_no_torch_dataset(monkeypatch):
    import streamplug_tokens

    monkeypatch.setattr(streamplug_tokens, "find_spec", lambda name: None)
    assert streamplug_tokens.TokenDataset is TokenDataset
    with pytest.raises(AttributeError, match="'streamplug_tokens' has no attribute 'nothing'"):
        _ = streamplug_tokens.nothing


class Watched(LocalStorage):
    """A storage that notes that it was opened."""

    opened: ClassVar[Counter[str]] = Counter()

    def __init__(self, url: str, **options: Any) -> None:
        self.opened[url] += 1
        super().__init__(url.replace("watched://", "file://"), **options)


def test_a_misspelt_option_is_refused_before_anything_is_opened(tmp_path):
    register_storage("watched", Watched)
    place = {"remote": "watched:///nowhere/at/all", "local": str(tmp_path / "cache")}
    try:
        with pytest.raises(PluginError, match=r"'windwo'.*window"):
            TokenDataset(tokens=BLOCKS, shuffle_algo="windwo", **place)
    finally:
        unregister("storage", "watched")
    assert not Watched.opened
    assert not (tmp_path / "cache").exists()


def test_configs_are_checked_without_opening_anything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.json"

    def checked(**changes):
        view = {"column": "tokens", "length": 8, "documents_per_group": 4, **changes}
        section = {"remote": "memory://nowhere/set", "local": "never-made", "tokens": view}
        path.write_text(json.dumps({"dataset": section}))
        return CliRunner().invoke(main, ["config", "check", str(path)])

    result = checked()
    assert result.exit_code == 0, result.stderr
    message = f"error: config {path}: dataset.tokens.lenght: no such key. Did you mean 'length'?\n"
    assert checked(lenght=8).stderr == message
    assert [each.name for each in tmp_path.iterdir()] == ["train.json"]


def test_the_split_of_a_data_set_reaches_rows_of_tokens(tmp_path):
    for place in "cd":
        with MDSWriter(out=tmp_path / place / "val", columns={"tokens": "ndarray:int32"}) as out:
            out.write({"tokens": np.arange(64, dtype=np.int32)})
    streams = [Stream(remote=str(tmp_path / place)) for place in "cd"]
    view = TokenBlocks(column="tokens", length=8)
    rows = TokenDataset(tokens=view, streams=streams, split="val", batch_size=1)
    assert len(rows) == 16


class Shifted(NDArrayEncoding):
    """Tokens that are decoded to others."""

    def decode(self, data: memoryview) -> Any:
        return super().decode(data) + np.int32(1)


@pytest.mark.parametrize("spec", ["ndarray:int32", "ndarray:int32:8"])
def test_decoders_that_change_tokens_are_refused(tmp_path, spec):
    with MDSWriter(out=tmp_path, columns={"tokens": spec}) as out:
        out.write({"tokens": np.arange(8, dtype=np.int32)})
    options = {"tokens": BLOCKS, "local": str(tmp_path), "batch_size": 1}
    decoders: dict[str, Any] = {"tokens": lambda _: Shifted.from_spec(spec.partition(":")[2])}
    with pytest.raises(ConfigError, match=r"Shifted has a decode\(\) of its own; leave it out"):
        TokenDataset(decoders=decoders, **options)
    same = {"tokens": lambda encoding: encoding}
    assert TokenDataset(decoders=same, **options)[1]["tokens"].tolist() == [4, 5, 6, 7]
