"""Names of options in errors."""

import click
import pytest

from streamplug.cli.option_names import use_option_names


@click.command()
@click.argument("out")
@click.option("--split")
@click.option("--step-time", "step_seconds")
@click.option("--bytes", "bytes_")
@click.option("-m", "--message", "text")
def command(**options):
    """Do nothing."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("split='a': no such", "--split='a': no such"),
        ("step_seconds=-1: must be 0 or more", "--step-time=-1: must be 0 or more"),
        ("give split= or bytes=, of at least 1", "give --split or --bytes, of at least 1"),
        ("out=['a']: text=\"b\"", "OUT=['a']: --message=\"b\""),
        ("--split=1, s.split=2, ssplit=3, 'split=4'", "--split=1, s.split=2, ssplit=3, 'split=4'"),
        ("batch_size=0", "batch_size=0"),
    ],
)
def test_arguments_of_a_command_are_named_by_its_options(text, expected):
    assert use_option_names(text, command) == expected
    group = click.Group("group", {"command": command})
    assert use_option_names(text, group) == expected


def test_errors_before_a_command_stay():
    assert use_option_names("split=1", None) == "split=1"
