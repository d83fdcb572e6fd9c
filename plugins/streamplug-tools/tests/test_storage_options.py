"""``--storage-options`` reaches the storage from every command that opens a location, and is never shown."""

from __future__ import annotations

import json
import shutil

import click
import numpy as np
import pytest
from click.testing import CliRunner

from streamplug import MDSWriter, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.cli import main
from streamplug.cli.app import command_names
from streamplug.errors import AccessDenied
from streamplug.plugin.registry import unregister

SECRET = "hush-7531"
TOKEN = f"token={SECRET}"
SOURCE, OUT, OTHER = "guarded://{}/set", "guarded://{}/out", "guarded://{}/other"
COMMANDS = {
    "append": ["append", SOURCE, OUT, "--processes", "0"],
    "cat": ["cat", SOURCE],
    "convert": ["convert", SOURCE, OUT, "--processes", "0"],
    "copy": ["copy", SOURCE, OUT],
    "dedup": ["dedup", SOURCE, OUT, "--by", "n", "--processes", "0"],
    "delete": ["delete", SOURCE],
    "diff": ["diff", SOURCE, OTHER],
    "explain": ["explain", SOURCE, "--step", "0"],
    "index scan": ["index", "scan", "guarded://{}/lines", "--format", "jsonl"],
    "inspect": ["inspect", SOURCE],
    "join": ["join", SOURCE, "guarded://{}/keys", "--by", "n", "--out", OUT, "--processes", "0"],
    "merge": ["merge", "guarded://{}/whole"],
    "proc": ["proc", SOURCE, OUT, "--set", "n=n + 1", "--processes", "0"],
    "select": ["select", SOURCE, OUT, "--where", "n > 3", "--processes", "0"],
    "shuffle": ["shuffle", SOURCE, OUT, "--processes", "0"],
    "simulate": ["simulate", SOURCE, "--batch-size", "2"],
    "sort": ["sort", SOURCE, OUT, "--by", "-n", "--processes", "0"],
    "split": ["split", SOURCE, OUT, "--samples", "10", "--processes", "0"],
    "verify": ["verify", SOURCE],
}
NO_LOCATION = {"config", "new-plugin", "plugins", "quickstart"}


class Guarded(LocalStorage):
    """Directories of this machine behind a token."""

    def __init__(self, url: str, **options) -> None:
        if options.pop("token", None) != SECRET:
            raise AccessDenied(f"{url}: no token, or a wrong one")
        super().__init__(url.replace("guarded://", "file://"), **options)


@pytest.fixture
def home(tmp_path):
    register_storage("guarded", Guarded, replace=True)
    for name in ("set", "other", "whole/a", "whole/b"):
        with MDSWriter(out=tmp_path / name, columns={"n": "int", "m": "int"}) as out:
            out.write_batch({"n": np.arange(20), "m": np.arange(20)})
    with MDSWriter(out=tmp_path / "keys", columns={"n": "int", "k": "int"}) as out:
        out.write_batch({"n": np.arange(20), "k": np.arange(20)})
    (tmp_path / "lines").mkdir()
    yield tmp_path
    unregister("storage", "guarded")


def run(home, command, *more):
    arguments = [each.format(home) for each in COMMANDS[command]]
    result = CliRunner().invoke(main, [*arguments, *more])
    assert SECRET not in result.output
    return result


def test_every_command_that_opens_a_location_has_the_option():
    with click.Context(main) as context:
        having = {
            name
            for name in command_names()
            if any(
                "--storage-options" in each.opts for each in main.get_command(context, name).params
            )
        }
    # The commands of a group have it, where its distribution tests it.
    assert having == set(command_names()) - NO_LOCATION - {"view"}
    assert having <= {name.split()[0] for name in COMMANDS}


@pytest.mark.parametrize("given", [TOKEN, json.dumps({"token": SECRET}), "token=${env:TOKEN}"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_option_reaches_the_storage(home, command, given, monkeypatch):
    if command.split()[0] not in command_names():
        pytest.skip("the command is not installed")
    if command == "index scan":
        pytest.importorskip("streamplug_text")
        (home / "lines" / "a.jsonl").write_text('{"n": 1}\n')
    monkeypatch.setenv("TOKEN", SECRET)
    refused = run(home, command)
    assert refused.exit_code == 2
    assert "no token, or a wrong one" in refused.output
    result = run(home, command, "--storage-options", given)
    assert result.exit_code == 0, result.output


def test_a_second_location_may_have_options_of_its_own(home):
    plain = str(home / "set")
    result = CliRunner().invoke(
        main, ["diff", plain, OTHER.format(home), "--other-storage-options", TOKEN]
    )
    assert result.exit_code == 0, result.output
    command = ["convert", plain, OUT.format(home), "--out-storage-options", TOKEN]
    result = CliRunner().invoke(main, [*command, "--processes", "0"])
    assert result.exit_code == 0, result.output
    shutil.rmtree(home / "out")
    result = CliRunner().invoke(
        main,
        [
            "diff",
            SOURCE.format(home),
            plain,
            "--storage-options",
            TOKEN,
            "--other-storage-options",
            "{}",
        ],
    )
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            SECRET,
            "--storage-options: expected a JSON object, such as '{\"anon\": true}', or KEY=VALUE",
        ),
        (f"={SECRET}", "--storage-options: expected a JSON object"),
        (f"{{{SECRET}", "--storage-options: not JSON"),
        (f'["{SECRET}"]', "--storage-options: expected a JSON object"),
        (
            "token=${env:NO_SUCH}",
            "--storage-options: token: the environment variable NO_SUCH is not",
        ),
    ],
)
@pytest.mark.parametrize("command", ["verify", "convert"])
def test_what_means_nothing_is_refused_and_not_shown(home, command, given, message):
    result = run(home, command, "--storage-options", given)
    assert result.exit_code == 2
    assert result.output.startswith(f"error: {message}")


def test_settings_add_up_and_have_types(home):
    given = ["auto_mkdir=true", '{"token": "wrong"}', TOKEN]
    more = [text for each in given for text in ("--storage-options", each)]
    assert run(home, "verify", *more).exit_code == 0
    result = run(home, "verify", *more[:-2])
    assert "no token, or a wrong one" in result.output
