"""Every ``--help`` ends with two examples, which can be run."""

import shlex
import shutil
import tarfile
from io import BytesIO

import click
import pytest
from click.testing import CliRunner

from streamplug.cli import main
from streamplug.write import MDSWriter

_SLOW = {"quickstart", "plugins"}
"""Commands whose examples have tests of their own."""


def commands(group, path=()):
    """Yield every command and its path; groups, too."""
    yield path, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            yield from commands(group.get_command(context, name), (*path, name))


def help_of(path):
    return CliRunner().invoke(main, [*path, "--help"], terminal_width=80).stdout


def examples_of(path):
    """Return the arguments of the lines below the heading, which must be the last ones."""
    text = help_of(path).partition("\n  Examples:\n")[2]
    return [shlex.split(line) for line in text.splitlines()]


EVERY = [path for path, _ in commands(main)]
EXAMPLES = [words for path in EVERY for words in examples_of(path)]


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_ends_with_two_examples_of_the_command(path):
    examples = examples_of(path)
    assert len(examples) == 2
    assert all(words[: 1 + len(path)] == ["streamplug", *path] for words in examples)
    assert max(map(len, help_of(path).partition("Examples:")[2].splitlines())) <= 80


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_examples_parse(words):
    command, words = main, words[1:]
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words[0])
        words = words[1:]
    command.make_context("", words)


def test_lists_of_commands_are_not_cut_off():
    assert "..." not in help_of(()).partition("Commands:")[2]
    assert "..." not in help_of(("view",)).partition("Commands:")[2]


@pytest.mark.parametrize(("path", "command"), list(commands(main)), ids=str)
def test_options_say_what_they_are_and_what_they_take(path, command):
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, (path, parameter.name)
            untyped = parameter.type is click.STRING and parameter.metavar is None
            assert not untyped or parameter.is_flag, (path, parameter.name)
            if isinstance(parameter.default, (int, str)) and parameter.default != "":
                assert parameter.is_flag or parameter.show_default, (path, parameter.name)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folder with what the examples on this machine read."""
    home = tmp_path_factory.mktemp("examples")
    rows = [{"id": n, "text": "a cat " * (10 + 10 * (n % 3)), "label": "cat"} for n in range(40)]
    columns = {"id": "int", "text": "str", "label": "str"}
    for name in ("data", "copy", "years/2025", "years/2026"):
        with MDSWriter(out=str(home / name), columns=columns) as out:
            for row in rows:
                out.write(row)
    with MDSWriter(out=str(home / "scores"), columns={"id": "int", "score": "float64"}) as out:
        for n in range(40):
            out.write({"id": n, "score": n / 40})
    (home / "tars").mkdir()
    with tarfile.open(home / "tars" / "0.tar", "w") as tar:
        for n in range(3):
            member = tarfile.TarInfo(f"{n}.txt")
            member.size = 4
            tar.addfile(member, BytesIO(b"text"))
    (home / "run.toml").write_text('[dataset]\nremote = "data"\nbatch_size = 1\n', encoding="utf-8")
    return home


def runnable():
    """Return the examples that need no cloud, those of one command together."""
    local = [words for words in EXAMPLES if "://" not in " ".join(words)]
    firsts = {words[1]: [] for words in local}
    for words in local:
        firsts[words[1]].append(words)
    return [group for name, group in firsts.items() if name not in _SLOW]


@pytest.mark.parametrize("group", runnable(), ids=lambda group: group[0][1])
def test_examples_run(group, data, tmp_path, monkeypatch):
    folder = shutil.copytree(data, tmp_path / "home")
    monkeypatch.chdir(folder)
    order = ["create", "log", "show", "diff", "tag", "expire", "compact"]  # of views
    for words in sorted(group, key=lambda words: (*order, words[2]).index(words[2])):
        result = CliRunner().invoke(main, words[1:])
        assert result.exit_code == 0, (words, result.output, result.exception)
