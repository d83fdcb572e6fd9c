from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from streamplug import __version__
from streamplug.cli import app, main
from streamplug.errors import ConfigError


@pytest.fixture
def failing(monkeypatch):
    @click.command()
    def fail():
        raise ConfigError("the value 3 has no meaning")

    @click.command()
    def crash():
        raise ZeroDivisionError

    for name, command in (("fail", fail), ("crash", crash)):
        monkeypatch.setitem(app.COMMANDS, name, f"{__name__}:{name}")
        monkeypatch.setattr(sys.modules[__name__], name, command, raising=False)
    yield
    main.commands.pop("fail", None)
    main.commands.pop("crash", None)


def test_an_error_of_ours_is_one_line(failing):
    result = CliRunner().invoke(main, ["fail"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: the value 3 has no meaning\n"


@pytest.mark.parametrize("arguments", [["--traceback", "fail"], ["fail", "--traceback"]])
def test_the_traceback_is_shown_on_demand(failing, arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert "ConfigError: the value 3 has no meaning" in result.stderr


def test_other_exceptions_are_bugs_and_pass(failing):
    assert isinstance(CliRunner().invoke(main, ["crash"]).exception, ZeroDivisionError)


def test_help_lists_every_command():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in app.COMMANDS:
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", app.COMMANDS)
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


def test_a_misspelt_command_is_told_with_the_one_that_was_meant():
    for wrong, meant in (("convrt", "convert"), ("verfiy", "verify"), ("newplugin", "new-plugin")):
        result = CliRunner().invoke(main, [wrong, "set", "out"])
        assert result.exit_code == 2
        assert f"No such command '{wrong}'. Did you mean '{meant}'?" in result.stderr
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).stderr


def test_the_installed_command_imports_only_what_it_runs():
    code = (
        "import sys; from streamplug.cli import main; main(['plugins', '--json'], "
        "standalone_mode=False); print('streamplug.cli.quickstart' in sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == "False\n"
