"""``streamplug config check`` validates what a constructor would refuse."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from streamplug_testing import isolated_plugins
from streamplug_tools.config_names import check_writer

from streamplug.cli import main
from streamplug.errors import ConfigError
from streamplug.plugin import Provider, hookimpl


@pytest.fixture
def check(tmp_path):
    """Return a function that checks a config, and returns the exit code and the output without its path."""

    def check(config):
        path = tmp_path / "train.json"
        path.write_text(json.dumps(config))
        result = CliRunner().invoke(main, ["config", "check", str(path)])
        return result.exit_code, result.output.replace(f"error: config {path}: ", "error: ")

    return check


def test_rows_of_tokens_need_their_distribution(check, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    section = {"local": "set", "tokens": {"column": "tokens"}}
    for config, path in (({"dataset": section}, "dataset.tokens"), (section, "tokens")):
        code, output = check(config)
        assert code == 2
        assert output == (
            f"error: {path} is in streamplug-tokens, which is not installed: "
            "pip install streamplug-tokens\n"
        )


def test_packs_have_keys_of_their_own(check, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("streamplug_packing")
    loader = {"length": 8, "size": "tokens", "num_workers": 2}
    assert check({"dataset": {"local": "set"}, "loader": loader})[0] == 0
    code, output = check({"dataset": {"local": "set"}, "loader": {**loader, "open_bin": 8}})
    assert (code, output) == (
        2,
        "error: loader.open_bin: no such key. Did you mean 'open_bins'?\n",
    )
    code, output = check({"dataset": {"local": "set"}, "loader": {**loader, "size": 8}})
    assert (code, output) == (2, "error: loader.size=8: expected text\n")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    assert "pip install streamplug-packing" in check({"loader": loader})[1]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"compression": "gz:99"}, "compression 'gz' takes levels 0 to 9, got 99"),
        ({"columns": None}, "columns=None: expected a mapping from names to encodings"),
        ({"extra_keys": "ignor"}, "extra_keys='ignor': choose one of error, ignore"),
        ({"max_samples_per_shard": 0}, "max_samples_per_shard=0: must be a whole number of at"),
        ({"max_workers": "${env:N:-0}"}, "max_workers=0: must be a whole number of at least 1"),
        ({"retry": -1}, "retry=-1: must be a whole number of at least 0"),
        ({"size_limit": 0}, "size_limit=0 leaves no room for a sample"),
        ({"append": True, "exist_ok": True}, "append=True adds to what exist_ok=True would"),
        ({"append": True, "compression": "gz:99"}, "compression 'gz' takes levels 0 to 9, got"),
    ],
)
def test_values_that_a_writer_refuses_are_found(check, tmp_path, change, error):
    writer = {"out": str(tmp_path / "new"), "columns": {"n": "int"}}
    for valid in ({}, {"append": True}, {"append": True, "columns": None}):
        assert check({"writer": {**writer, **valid}})[0] == 0
    code, output = check({"writer": {**writer, **change}})
    assert code == 2
    assert output.startswith(f"error: writer: {error}")
    assert not (tmp_path / "new").exists()


def test_names_with_their_distribution_are_valid(check, tmp_path):
    module = SimpleNamespace(
        streamplug_plugins=hookimpl(
            lambda: [
                Provider("compression", "packed", "streamplug.builtin.compressions.gzip:Gzip"),
                Provider("callback", "told", "streamplug.builtin.log:Log"),
            ]
        ),
        __name__="acme",
    )
    writer = {"out": str(tmp_path / "new"), "columns": {"n": "int"}}
    with isolated_plugins(module):
        for name in ("packed:3", "acme:packed", "acme:packed:3"):
            assert check({"writer": {**writer, "compression": name}})[0] == 0
        for name in ("told", "acme:told", "acme:told:debug"):
            assert check({"dataset": {"local": "set", "callbacks": [name]}})[0] == 0
        assert check({"writer": {**writer, "compression": "acme:other:3"}})[0] == 2
        assert check({"dataset": {"local": "set", "callbacks": ["acme:other"]}})[0] == 2


def test_a_config_without_a_data_set_cannot_be_opened(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"writer": {"out": "new", "columns": {"n": "int"}}}))
    result = CliRunner().invoke(main, ["config", "check", str(path), "--open"])
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: config {path}: dataset: no such section, which --open opens\n",
    )


def test_the_schema_takes_rows_of_tokens_and_packs(check):
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("torch")
    pytest.importorskip("streamplug_packing")
    pytest.importorskip("streamplug_tokens")
    schema = json.loads(CliRunner().invoke(main, ["config", "schema"]).stdout)
    tokens = {"column": "tokens", "length": 8}
    for dataset in ({}, {"tokens": tokens}, {"tokens": {**tokens, "documents_per_group": 4}}):
        for loader in ({}, {"num_workers": 2}, {"length": 8, "size": "tokens", "open_bins": 4}):
            config = {"dataset": {"local": "set", **dataset}, "loader": loader}
            assert check(config)[0] == 0
            jsonschema.validate(config, schema)
    for wrong in ({"dataset": {"tokens": {"column": 3}}}, {"loader": {"length": "8"}}):
        assert check(wrong)[0] == 2
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_hashes_given_as_text_are_refused_as_by_the_writer(tmp_path):
    writer = {"out": str(tmp_path / "new"), "columns": {"n": "int"}}
    with pytest.raises(ConfigError, match=r"^writer\.hashes: hashes='sha1': expected a list of"):
        check_writer({**writer, "hashes": "sha1"}, "writer")
    check_writer({**writer, "hashes": ["sha1"]}, "writer")
