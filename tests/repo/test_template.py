"""What streamplug new-plugin makes is a distribution that works as it is, of each kind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from streamplug_testing.scaffold import EXAMPLES, new_plugin

from streamplug.cli import main
from streamplug.errors import ConfigError, OutputExistsError
from streamplug.plugin.kinds import KINDS
from tests import warm_python

ROOT = Path(__file__).parents[2]
FEW = """
from hypothesis import settings
settings.register_profile("few", max_examples=5, derandomize=True, deadline=None, database=None)
settings.load_profile("few")
"""
NAMES = {kind: f"tiny-{kind}" for kind in EXAMPLES}


def run(*command, **environment):
    # Nothing of the developer's own settings for streamplug or pytest.
    others = ("STREAMPLUG_", "PYTEST_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    return warm_python.run(command, warm_python.TORCH, env=inherited | environment)


def succeed(*command, **environment):
    result = run(*command, **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for kind, name in NAMES.items():
        command = ["new-plugin", name, "--kind", kind, "--out", str(folder)]
        result = CliRunner().invoke(main, command)
        assert result.stdout.startswith(f"{folder / f'streamplug-{name}'}: created"), result.stderr
    return folder


def test_what_follows_is_said_with_a_warning_of_names_of_ours(tmp_path):
    def make(*arguments):
        out = tmp_path / arguments[-1]
        return CliRunner().invoke(main, ["new-plugin", *arguments, "--out", str(out)])

    folder = tmp_path / "compression" / "streamplug-fine"
    made = make("fine", "--kind", "compression")
    assert made.stderr == ""
    assert made.stdout.splitlines() == [
        f"{folder}: created; next:",
        f"  cd {folder}",
        "  pip install -e . streamplug-testing pytest",
        "  pytest",
        "  streamplug plugins --kind compression --check",
    ]
    taken = make("zstd", "--kind", "compression")
    assert taken.exit_code == 0
    assert "warning: 'zstd' is also a compression of streamplug-zstandard" in taken.stderr
    assert make("zstd", "--kind", "encoding").stderr == ""


# One process that builds all takes less time than pip, which starts two for each.
BUILD = """
import os, sys
from hatchling.build import build_wheel
for folder in sys.argv[2:]:
    os.chdir(folder)
    build_wheel(sys.argv[1])
"""


@pytest.fixture(scope="module")
def installed(made, tmp_path_factory):
    target, wheels = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("wheels")
    succeed("-c", BUILD, wheels, *sorted(made.glob("streamplug-*")))
    command = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target]
    succeed(*command, *wheels.glob("*.whl"))
    path = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(target), *([path] if path else [])])


def test_there_is_an_example_of_each_kind():
    assert set(EXAMPLES) == set(KINDS)


def test_their_own_tests_pass(made, installed, tmp_path):
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", made]
    # In a folder of its own: else pytest may remove those of earlier runs, which takes minutes.
    command += ["--basetemp", tmp_path / "temporary"]
    # With few examples, processes and data: the documentation tests classes like these with all.
    left_out = ("again", "bomb", "converted", "comes_back", "much", "process", "spawn", "worker")
    command += ["-k", f"not ({' or '.join(left_out)})"]
    (made / "conftest.py").write_text(FEW)
    shown = succeed(*command, "--import-mode=importlib", made, PYTHONPATH=installed)
    assert " passed" in shown


def test_they_are_listed(installed):
    code = "from streamplug.cli import main; main()"
    shown = succeed("-c", code, "plugins", "--json", "--check", PYTHONPATH=installed)
    found = {f["distribution"]: f for f in json.loads(shown)}
    for kind, name in NAMES.items():
        assert found[f"streamplug-{name}"] == {
            "kind": kind,
            "name": name,
            "distribution": f"streamplug-{name}",
            "version": "0.1.0",
            "target": f"streamplug_tiny_{kind}.{kind}:Tiny{kind.capitalize()}",
            "status": "ok",
            "reason": "",
            "manifest": "",
        }


ORDERED = """
import sys
from streamplug import MDSWriter, StreamingDataset, World

with MDSWriter(out=sys.argv[1], columns={"n": "int"}) as out:
    for n in range(10):
        out.write({"n": n})
world = World(ranks_per_node=2, rank=1)
dataset = StreamingDataset(
    local=sys.argv[1], batching_method="tiny-order", batch_size=2, world=world
)
print([batch["n"].tolist() for batch in dataset.batches()], len(dataset))
"""


def test_an_order_is_used_by_its_name(installed, tmp_path):
    shown = succeed("-c", ORDERED, tmp_path / "set", PYTHONPATH=installed)
    assert shown == "[[2, 3], [6, 7], [0, 1]] 6\n"


@pytest.fixture(scope="module")
def sources(made):
    return [folder / "src" for folder in sorted(made.glob("streamplug-*"))]


def test_they_keep_to_the_rules_of_the_code(sources):
    pytest.importorskip("ruff")
    settings = ROOT / "pyproject.toml"
    rules = ["--extend-ignore", "ARG002,D102", "--config", settings]  # as for our own plugins
    succeed("-m", "ruff", "check", "--no-cache", *rules, *sources)
    succeed("-m", "ruff", "format", "--check", "--no-cache", "--config", settings, *sources)


def test_their_metadata_is_that_of_our_own(tmp_path):
    def varying(line):
        return line.startswith(("description = ", "dependencies = ", "authors = "))

    folder = new_plugin("msgpack", "encoding", tmp_path)
    ours = (ROOT / "plugins" / "streamplug-msgpack" / "pyproject.toml").read_text().splitlines()
    made = (folder / "pyproject.toml").read_text().splitlines()
    assert [x for x in made if not varying(x)] == [x for x in ours if not varying(x)]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_an_engine_depends_on_the_tools_that_run_it(tmp_path):
    made = (new_plugin("x", "engine", tmp_path) / "pyproject.toml").read_text()
    assert 'dependencies = ["streamplug>=0.1,<0.2", "streamplug-tools"]\n' in made


def test_their_authors_are_those_who_make_them(tmp_path):
    folder = new_plugin("x", "encoding", tmp_path)
    assert "authors" not in (folder / "pyproject.toml").read_text()
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert not any("streamplug authors" in text for text in texts)


@pytest.mark.parametrize("given", ["tiny-uuid", "streamplug-tiny-uuid"])
def test_the_name_may_be_that_of_the_distribution(tmp_path, given):
    command = ["new-plugin", given, "--kind", "encoding", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, command)
    folder = tmp_path / "streamplug-tiny-uuid"
    assert result.stdout.startswith(f"{folder}: created; next:\n"), result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["streamplug-tiny-uuid"]
    text = (folder / "src/streamplug_tiny_uuid/plugin.py").read_text()
    assert '"encoding",\n            "tiny-uuid",' in text


def test_a_name_that_is_only_ours_is_refused(tmp_path):
    for name in ("streamplug-", "streamplug-9"):
        with pytest.raises(
            ConfigError, match=f"'{name}': name the plugin, such as streamplug-uuid"
        ):
            new_plugin(name, "encoding", tmp_path)


@pytest.mark.parametrize("name", ["", "Upper", "9lives", "a b", "../x", "x-", "x_"])
def test_a_malformed_name_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="use lower-case letters, digits, -"):
        new_plugin(name, "encoding", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_could_not_be_used_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'a_b': use lower-case"):
        new_plugin("a_b", "storage", tmp_path)
    with pytest.raises(ConfigError, match="'x-': use lower-case"):
        new_plugin("x-", "storage", tmp_path)
    with pytest.raises(ConfigError, match="'int' is a built-in encoding"):
        new_plugin("int", "encoding", tmp_path)
    with pytest.raises(ConfigError, match="kind='cloud': expected one of access, "):
        new_plugin("x", "cloud", tmp_path)


def test_nothing_is_overwritten(tmp_path):
    new_plugin("x", "encoding", tmp_path)
    with pytest.raises(OutputExistsError, match="already exists"):
        new_plugin("x", "shuffle", tmp_path)


def test_a_directory_that_cannot_be_created_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Not a directory; choose another directory"):
        new_plugin("ours", "encoding", tmp_path / "file")
