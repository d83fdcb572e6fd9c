"""Configs of rows of tokens, read by the classes of the core."""

from __future__ import annotations

import numpy as np
import pytest
from streamplug_tokens.options import TokenBlocks, TokenPacks

import streamplug
from streamplug import MDSWriter, TokenDataset, config
from streamplug.errors import ConfigError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return the directory of 200 documents in many shards."""
    out, rng = tmp_path_factory.mktemp("tokens") / "corpus", np.random.default_rng(3)
    with MDSWriter(out=out, columns={"tokens": "ndarray:uint16"}, size_limit=4096) as writer:
        for length in rng.integers(1, 90, 200):
            writer.write({"tokens": rng.integers(1, 1000, length).astype(np.uint16)})
    return str(out)


OPTIONS = {
    "blocks": ({"column": "tokens", "length": 32, "separator": 0}, TokenBlocks),
    "packs": ({"column": "tokens", "length": 64, "documents_per_group": 16}, TokenPacks),
}


@pytest.fixture(params=OPTIONS.values(), ids=OPTIONS)
def described(request, corpus):
    """Return a config, and the options that it describes."""
    keys, cls = request.param
    section = {"local": corpus, "batch_size": 4, "shuffle": True, "tokens": keys}
    return {"dataset": section}, cls(**keys)


def rows_of(dataset):
    return [row["tokens"].tolist() for row in dataset]


def test_a_data_set_has_the_rows_that_its_config_describes(described, corpus):
    whole, options = described
    expected = rows_of(TokenDataset(local=corpus, batch_size=4, shuffle=True, tokens=options))
    for given in (whole, whole["dataset"]):
        found = streamplug.StreamingDataset.from_config(given)
        assert type(found) is TokenDataset
        assert found.tokens == options
        assert rows_of(found) == expected
    streamplug.StreamingDataset.check_config(whole)


def test_options_may_be_passed_beside_a_config(corpus):
    options = TokenBlocks(column="tokens", length=16)
    found = streamplug.StreamingDataset.from_config({"local": corpus}, tokens=options)
    assert rows_of(found) == rows_of(TokenDataset(local=corpus, tokens=options))


def test_a_loader_has_the_rows_that_its_config_describes(described):
    pytest.importorskip("torch")
    whole, _ = described
    loader = streamplug.StreamingDataLoader.from_config({**whole, "loader": {"num_workers": 0}})
    assert type(loader.dataset) is TokenDataset
    expected = streamplug.StreamingDataset.from_config(whole)
    batches = [batch["tokens"].tolist() for batch in loader]
    assert [row for batch in batches for row in batch] == rows_of(expected)
    loader = streamplug.StreamingDataLoader.from_config(
        whole, dataset={"tokens": TokenBlocks(column="tokens", length=8)}
    )
    assert next(iter(loader))["tokens"].shape == (4, 8)


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ({"column": "tokens"}, "dataset.tokens.length: missing. It is: Tokens of a row."),
        ({"column": "tokens", "length": "8"}, "dataset.tokens.length='8': expected a whole number"),
        ({"column": "tokens", "lenght": 8}, "dataset.tokens.lenght: no such key. Did you mean"),
        ({"column": "tokens", "length": 0}, "dataset.tokens: length=0: must be a whole number"),
    ],
)
def test_mistakes_are_found_by_their_path(corpus, tokens, error):
    whole = {"dataset": {"local": corpus, "tokens": tokens}}
    for read in (
        streamplug.StreamingDataset.from_config,
        streamplug.StreamingDataset.check_config,
    ):
        with pytest.raises(ConfigError) as caught:
            read(whole)
        assert str(caught.value).startswith(error)


def test_what_is_not_installed_is_named(corpus, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    whole = {"dataset": {"local": corpus, "tokens": {"column": "tokens", "length": 8}}}
    with pytest.raises(ConfigError) as caught:
        streamplug.StreamingDataset.from_config(whole)
    assert str(caught.value) == (
        "dataset.tokens is in streamplug-tokens, which is not installed: pip install streamplug-tokens"
    )


def test_what_is_disabled_is_named(corpus, monkeypatch):
    monkeypatch.setenv("STREAMPLUG_DISABLE_PLUGINS", "streamplug-tokens")
    with pytest.raises(ConfigError, match=r"^tokens is in streamplug-tokens, which is disabled"):
        streamplug.StreamingDataset.from_config({"local": corpus, "tokens": {"column": "tokens"}})


def test_a_class_that_has_no_rows_of_tokens_refuses_them(corpus):
    class Own(streamplug.StreamingDataset):
        """A data set of a user."""

    section = {"local": corpus, "tokens": {"column": "tokens", "length": 8}}
    with pytest.raises(ConfigError, match=r"^dataset\.tokens: a key of TokenDataset, which Own is"):
        Own.from_config({"dataset": section})
    assert config.configured_class(TokenDataset, {"dataset": section}) is TokenDataset
