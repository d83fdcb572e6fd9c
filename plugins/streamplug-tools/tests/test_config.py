"""``streamplug config check`` validates what a constructor would refuse."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from click.testing import CliRunner
from streamplug_tools.config_names import check_writer

import streamplug
from streamplug.cli import main
from streamplug.errors import ConfigError


@pytest.fixture
def check(tmp_path):
    """Return a function that checks a config, and returns the exit code and the output."""

    def check(config):
        path = tmp_path / "train.json"
        path.write_text(json.dumps(config))
        result = CliRunner().invoke(main, ["config", "check", str(path)])
        return result.exit_code, result.output

    return check


def test_rows_of_tokens_need_their_distribution(check, monkeypatch):
    monkeypatch.setattr(
        streamplug,
        "find_spec",
        lambda name: None if name == "streamplug_tokens" else find_spec(name),
    )
    monkeypatch.delitem(vars(streamplug), "TokenDataset", raising=False)
    code, output = check({"dataset": {"local": "set", "tokens": {"column": "tokens"}}})
    assert code == 1
    assert output == (
        "error: tokens: TokenDataset is in streamplug-tokens, which is not installed: "
        "pip install streamplug-tokens\n"
    )


def test_hashes_given_as_text_are_refused_as_by_the_writer(tmp_path):
    writer = {"out": str(tmp_path / "new"), "columns": {"n": "int"}}
    with pytest.raises(ConfigError, match=r"^writer\.hashes: hashes='sha1': expected a list of"):
        check_writer({**writer, "hashes": "sha1"}, "writer")
    check_writer({**writer, "hashes": ["sha1"]}, "writer")
