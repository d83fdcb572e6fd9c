"""Names of options in errors."""

import ast
from pathlib import Path

import click
import pytest

from streamplug.cli import command_group
from streamplug.cli.command_group import use_option_names

ROOT = Path(__file__).parents[2]


@click.command()
@click.argument("out")
@click.option("--split")
@click.option("--step-time", "step_seconds")
@click.option("--bytes", "bytes_")
@click.option("-m", "--message", "text")
@click.option("--force", "exist_ok", is_flag=True)
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
        ("/data/split=a/x: no file", "/data/split=a/x: no file"),
        ("pass exist_ok=True, or split=True", "pass --force, or --split=True"),
        ("pass exist_ok=True (--force) to", "pass --force to"),
        ("exist_ok=False, exist_ok=Truely", "--force=False, --force=Truely"),
        ("leave it out with columns=", "leave it out with columns="),
    ],
)
def test_arguments_of_a_command_are_named_by_its_options(text, expected):
    assert use_option_names(text, command) == expected
    group = click.Group("group", {"command": command})
    assert use_option_names(text, group) == expected


def test_errors_before_a_command_stay():
    assert use_option_names("split=1", None) == "split=1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "no index; check remote=, local= and split=, and region",
            "no index; check the location, and region",
        ),
        ("no file; pass remote= if the set lies elsewhere", "no file; check the location"),
        (
            "unsafe; pass allow_unsafe_types=True, or leave the column out with columns=",
            "unsafe; pass allow_unsafe_types=True",
        ),
        ("bad; read only others, with columns=, or convert it", "bad; convert it"),
        (
            "nothing arrived; check the network, or raise download_timeout=; gave up after 3 attempts",
            "nothing arrived; check the network; gave up after 3 attempts",
        ),
        ("gave up after 3 attempts; raise download_retry= for more", "gave up after 3 attempts"),
        ("gave up after 3 attempts; raise retry= for more", "gave up after 3 attempts"),
    ],
)
def test_advice_names_no_argument_that_the_command_lacks(text, expected):
    assert use_option_names(text, command) == expected


def test_the_format_of_a_source_is_not_named_as_that_of_the_new_data_set():
    options = [click.Option(["--src-format"]), click.Option(["--format", "format_"])]
    job = click.Command("job", params=options)
    files = "; files of formats that need no index, such as Parquet, are read with"
    text = f"{files} their format= (--src-format)"
    assert use_option_names(text, job) == f"{files} --src-format"


def test_more_retries_are_named_by_the_option_of_the_command():
    verify = click.Command("verify", params=[click.Option(["--retries"])])
    text = "gave up after 3 attempts; raise download_retry= for more"
    assert use_option_names(text, verify) == "gave up after 3 attempts; raise --retries for more"


def test_columns_to_read_are_named_by_the_options_that_choose_them():
    options = [click.Option([f"--{name}"]) for name in ("columns", "select", "drop")]
    job = click.Command("job", params=options)
    named = use_option_names("leave the column out with columns=", job)
    assert named == "leave the column out with --drop"
    assert (
        use_option_names("read others, with columns=, or", job) == "read others, with --select, or"
    )
    assert use_option_names("columns={}: give columns=", job) == "--columns={}: give --columns"


def test_advice_that_is_replaced_is_that_of_errors():
    found = set()
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]:
        if path.name != "command_group.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                constants = [part.value for part in parts if isinstance(part, ast.Constant)]
                found.add("".join(text for text in constants if isinstance(text, str)))
    assert [
        advice
        for _, advice, _ in command_group._ADVICE
        if not any(advice in text for text in found)
    ] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pass storage_options={'anon': True}", """pass --storage-options '{"anon": true}'"""),
        (
            "pass storage_options={'headers': {'Authorization': …}}",
            """pass --storage-options '{"headers": {"Authorization": "…"}}'""",
        ),
        (
            "storage_options={'token': …}, or {'anon': True} for a public one",
            """--storage-options '{"token": "…"}' or --storage-options '{"anon": true}' for a public one""",
        ),
        ("pass it in storage_options=", "pass it in --storage-options"),
    ],
)
def test_storage_options_are_suggested_as_json(text, expected):
    job = click.Command("job", params=[click.Option(["--storage-options"])])
    assert use_option_names(text, job) == expected
    assert use_option_names(text, click.Command("other", params=[])) == text
