from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from streamplug import __version__
from streamplug.cli import app, main
from streamplug.errors import ConfigError
from streamplug.plugin.catalog import load_catalog


@pytest.fixture
def failing(monkeypatch):
    @click.command()
    def fail():
        raise ConfigError("the value 3 has no meaning")

    @click.command()
    def crash():
        raise ZeroDivisionError

    @click.command()
    def overflow():
        raise OSError(errno.ENOSPC, "No space left on device")

    loaded = {"fail": fail, "crash": crash, "overflow": overflow}
    load = app.load_command
    monkeypatch.setattr(
        "streamplug.cli.app.load_command", lambda name: loaded.get(name) or load(name)
    )
    yield
    main.commands.pop("fail", None)
    main.commands.pop("crash", None)
    main.commands.pop("overflow", None)


def test_an_error_is_json_too_if_the_result_is_to_be(failing):
    @click.command()
    @click.option("--json", is_flag=True)
    @click.argument("words", nargs=-1)
    def fail(json, words):
        raise ConfigError("the value 3 has no meaning" if "x" not in words else "x")

    main.commands["fail"] = fail
    result = CliRunner().invoke(main, ["fail", "--json"])
    assert (result.exit_code, result.stderr) == (2, "error: the value 3 has no meaning\n")
    assert json.loads(result.stdout) == {"error": "the value 3 has no meaning"}
    wrong = CliRunner().invoke(main, ["fail", "--json", "--nonsense"])
    assert wrong.exit_code == 2
    assert json.loads(wrong.stdout)["error"].startswith("No such option")
    assert CliRunner().invoke(main, ["fail", "--", "--json"]).stdout == ""
    assert CliRunner().invoke(main, ["fail"]).stdout == ""


def test_an_interrupt_is_json_too(failing):
    @click.command()
    @click.option("--json", is_flag=True)
    def fail(json):
        raise KeyboardInterrupt("run it again")

    main.commands["fail"] = fail
    result = CliRunner().invoke(main, ["fail", "--json"])
    assert result.exit_code == 130
    assert json.loads(result.stdout) == {"error": "interrupted; run it again"}


@pytest.mark.parametrize("command", ["streamplug plugins", "streamplug plugins --json"])
def test_a_reader_that_has_enough_is_no_error(command):
    pytest.importorskip("streamplug_tools")
    command = f"'{sys.executable}' -m {command}"
    # The reader ends before anything is written.
    script = f"{{ {command}; echo $? >&2; }} | true"
    done = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True)
    assert done.stderr == "0\n"


def test_a_full_disk_is_one_line_too(failing):
    result = CliRunner().invoke(main, ["overflow"])
    assert (result.exit_code, result.output) == (
        2,
        "error: standard output: No space left on device; make room there, or write to another disk\n",
    )


def test_an_error_of_ours_is_one_line(failing):
    result = CliRunner().invoke(main, ["fail"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: the value 3 has no meaning\n"


@pytest.mark.parametrize("arguments", [["--traceback", "fail"], ["fail", "--traceback"]])
def test_the_traceback_is_shown_on_demand(failing, arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert "ConfigError: the value 3 has no meaning" in result.stderr


def test_other_exceptions_are_bugs_and_pass(failing):
    assert isinstance(CliRunner().invoke(main, ["crash"]).exception, ZeroDivisionError)


def test_help_lists_every_command():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in app.command_names():
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", app.command_names())
def test_every_command_has_help_and_a_traceback_option(name):
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert result.stdout.count("--traceback") == 1


def test_version():
    assert CliRunner().invoke(main, ["--version"]).stdout == f"streamplug, version {__version__}\n"


def test_an_unknown_command_is_refused():
    result = CliRunner().invoke(main, ["plugin"])
    assert result.exit_code == 2
    assert "No such command 'plugin'" in result.stderr


def test_a_misspelt_command_is_refused_with_the_one_that_was_meant():
    for wrong, meant in (
        ("simulat", "simulate"),
        ("verfiy", "verify"),
        ("newplugin", "new-plugin"),
    ):
        result = CliRunner().invoke(main, [wrong, "set", "out"])
        assert result.exit_code == 2
        assert f"No such command '{wrong}'. Did you mean '{meant}'?" in result.stderr
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).stderr


def test_the_installed_command_imports_only_what_it_runs():
    pytest.importorskip("streamplug_tools")
    code = (
        "import sys; from streamplug.cli import main; main(['plugins', '--json'], "
        "standalone_mode=False); "
        "print('streamplug_tools.commands.quickstart' in sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == "False\n"


# -- commands of other distributions --------------------------------------------------


@click.command()
def hello():
    """Say hello."""
    click.echo("hello")


@pytest.fixture
def install(monkeypatch):
    """Return a function that replaces the installed commands: distribution, name and target of each."""

    def install(*points):
        found = []
        for distribution, name, target in points:
            point = EntryPoint(name, target, app.GROUP)
            vars(point)["dist"] = SimpleNamespace(metadata={"Name": distribution})
            found.append(point)
        monkeypatch.setattr(app, "entry_points", lambda group: found)
        app._entry_points.cache_clear()

    monkeypatch.setattr(main, "commands", {})
    monkeypatch.setitem(sys.modules, "hello_command", SimpleNamespace(hello=hello, text="hello"))
    yield install
    app._entry_points.cache_clear()


def test_a_distribution_adds_a_command(install):
    install(("hello-dist", "hello", "hello_command:hello"))
    assert CliRunner().invoke(main, ["hello"]).stdout == "hello\n"
    listed = CliRunner().invoke(main, ["--help"]).stdout
    assert re.search(r"^  hello +Say hello\.$", listed, re.MULTILINE)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module:hello", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("hello_command:missing", "AttributeError: "),
        ("hello_command:text", "hello_command:text is no click command"),
    ],
)
def test_a_broken_command_fails_alone(install, target, reason):
    install(("a-dist", "bad", target), ("hello-dist", "hello", "hello_command:hello"))
    assert CliRunner().invoke(main, ["hello"]).stdout == "hello\n"
    failed = CliRunner().invoke(main, ["bad", "--option", "argument"])
    assert failed.exit_code == 2
    assert failed.stderr.startswith(f"error: the command bad cannot be loaded: a-dist: {reason}")
    listed = CliRunner().invoke(main, ["--help"])
    assert listed.exit_code == 0
    assert re.search(r"^  bad +Broken: a-dist:", listed.stdout, re.MULTILINE)


def test_a_command_of_two_distributions_is_refused(install):
    install(("b", "hello", "hello_command:hello"), ("a", "hello", "hello_command:hello"))
    failed = CliRunner().invoke(main, ["hello"])
    assert failed.exit_code == 2
    assert "provided by a and by b: uninstall one" in failed.stderr


def test_a_command_that_is_not_installed_names_its_distribution(install):
    install()
    for name, distribution in load_catalog()["command"].items():
        failed = CliRunner().invoke(main, [name, "set"])
        assert failed.exit_code == 2
        assert f"{name} is in {distribution}: pip install {distribution}\n" in failed.stderr
        assert f"\n  {name} " not in CliRunner().invoke(main, ["--help"]).stdout


def test_a_disabled_distribution_has_no_commands(install, monkeypatch):
    install(("streamplug-simulate", "simulate", "hello_command:hello"))
    monkeypatch.setenv("STREAMPLUG_DISABLE_PLUGINS", "streamplug-simulate")
    failed = CliRunner().invoke(main, ["simulate"])
    assert failed.exit_code == 2
    assert "is disabled: in STREAMPLUG_DISABLE_PLUGINS" in failed.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", "x"]])
def test_a_malformed_list_of_distributions_is_one_line(install, monkeypatch, arguments):
    install(("hello-dist", "hello", "hello_command:hello"))
    monkeypatch.setenv("STREAMPLUG_DISABLE_PLUGINS", "a;b")
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "error: environment variable STREAMPLUG_DISABLE_PLUGINS: 'a;b' is"
    )
