"""What is found among installed distributions, each isolated from the failures of the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamplug.plugin.kinds import KINDS

GOOD = """
@hookimpl
def streamplug_plugins():
    return [Provider("encoding", "fine", "good.code:Fine", aliases=("fein",))]
"""
FINE = """
from streamplug import Encoding

class Fine(Encoding):
    def encode(self, value): return b"fine"
    def decode(self, data): return "fine"
"""
NO_SCAN = """
import importlib.metadata
import sys

everything = importlib.metadata.entry_points

def scan(*, group):
    if group == "streamplug":
        raise RuntimeError("a scan")
    return everything(group=group)  # fsspec looks for its own

importlib.metadata.entry_points = scan
"""


@pytest.fixture
def good(site):
    site.install("good", GOOD, code=FINE)
    return site


def test_every_kind_can_be_provided(site):
    providers = [f"Provider({kind!r}, 'mine', 'all.code:Mine_{kind}')" for kind in KINDS]
    hook = f"@hookimpl\ndef streamplug_plugins(): return [{', '.join(providers)}]"
    classes = ["from streamplug.plugin.kinds import KINDS"]
    classes += [
        f"class Mine_{kind}(KINDS[{kind!r}].interface_class()): suffix = 'mine'\n"
        f"Mine_{kind}.__abstractmethods__ = frozenset()"  # as if it defined them all
        for kind in KINDS
    ]
    site.install("all", hook, code="\n".join(classes))
    resolved = [f"print(resolve({kind!r}, 'mine').__name__)" for kind in KINDS]
    assert site.run("\n".join(resolved)).split() == [f"Mine_{kind}" for kind in KINDS]


def test_a_kind_of_another_version_is_rejected_alone(site):
    site.install(
        "ahead",
        """
        @hookimpl
        def streamplug_plugins():
            return [Provider("teleporter", "x", "m:X"), Provider("encoding", "y", "m:Y")]
        """,
    )
    rejected, usable = site.run("rows()").splitlines()
    assert rejected.startswith(
        "ahead 1.0 | teleporter | x | rejected | unknown kind 'teleporter'; "
    )
    assert usable == "ahead 1.0 | encoding | y | ok | "


def test_a_plugin_is_found_and_imported_only_when_its_name_is_used(good):
    shown = good.run(
        """
        rows()
        print("good.hooks" in sys.modules, "good.code" in sys.modules)
        print(resolve("encoding", "fine") is resolve("encoding", "fein"))
        print("good.code" in sys.modules, make("encoding", "fine").decode(b""))
        """
    )
    assert shown.splitlines() == [
        "good 1.0 | encoding | fine | ok | ",
        "good 1.0 | encoding | fein | ok | ",
        "True False",
        "True",
        "True fine",
    ]


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("import no_such_module", "-", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('at import')", "-", "RuntimeError: at import"),
        ("raise SystemExit('bye')", "-", "SystemExit: bye"),
        ("def (", "-", "SyntaxError: "),
        (
            "@hookimpl\ndef streamplug_plugins():\n    raise KeyError('in the hook')",
            "-",
            "KeyError: 'in the hook'",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    raise SystemExit('bye')",
            "-",
            "SystemExit: bye",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return None",
            "-",
            "TypeError: streamplug_plugins must return a list of Provider objects, got NoneType",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return Provider('encoding', 'x', 'm:X')",
            "-",
            "TypeError: streamplug_plugins must return a list of Provider objects, got Provider",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return ['s9']",
            "-",
            "TypeError: streamplug_plugins must return a list of Provider objects, got str",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return [Provider('encoding', 'Not Lower', 'm:X')]",
            "-",
            "PluginError: Provider name 'Not Lower': use lower-case letters, digits and . _ - + [ ]",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return [Provider('encoding', 'a:b', 'm:X')]",
            "-",
            "PluginError: Provider name 'a:b'",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return [Provider('storage', 'my_store', 'm:X')]",
            "-",
            "PluginError: Provider name 'my_store': a storage is named by the scheme of its URLs",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return [Provider('encoding', 'x', 'm.X')]",
            "-",
            "PluginError: Provider target 'm.X': expected 'package.module:Class'",
        ),
        (
            "@hookimpl\ndef streamplug_plugins():\n    return [Provider('encoding', 'x', 'm:X', 'y')]",
            "-",
            "PluginError: Provider aliases 'y': expected a tuple of names",
        ),
        (
            "@hookimpl\ndef streamplug_encodngs():\n    return []",
            "-",
            "unknown hook streamplug_encodngs; expected streamplug_plugins",
        ),
        (
            "@hookimpl\ndef streamplug_plugins(extra):\n    return []",
            "-",
            "PluginValidationError: ",
        ),
    ],
)
def test_a_broken_plugin_is_listed_and_stops_no_other(good, code, kind, reason):
    good.install("bad", code, version="0.3")
    shown = good.run(
        """
        rows()
        try:
            resolve("encoding", "nothing-like-it")
        except LookupError as error:
            print("-- then", error)
        """
    )
    listed, _, text = shown.partition("-- then")
    lines = listed.splitlines()
    assert lines[0].startswith(f"bad 0.3 | {kind} | - | broken | {reason}")
    assert lines[-2:] == [
        "good 1.0 | encoding | fine | ok | ",
        "good 1.0 | encoding | fein | ok | ",
    ]
    assert f"Note: bad 0.3 is installed but failed to load ({reason}" in text


@pytest.mark.parametrize(
    ("requirement", "is_refused"),
    [
        ("streamplug>=0.1,<0.2", False),
        ("streamplug (~=0.1.0)", False),
        ("Streamplug[s3]==0.1.*; python_version >= '3'", False),
        ("streamplug!=0.1.0", True),
        ("streamplug<0.1", True),
        ("streamplug[s3]>=0.2 ; python_version >= '3'", True),
        ("streamplug~=1.0", True),
        ("streamplug==0.2.*", True),
        ("streamplug>=9; extra == 'new'", False),
        ("streamplug-other>=9", False),
        ("streamplug>=0.1.0.dev1", False),
    ],
)
def test_a_distribution_for_other_versions_of_the_core_is_broken(good, requirement, is_refused):
    good.install("other", "@hookimpl\ndef streamplug_plugins():\n    return []", version="0.3")
    metadata = good.root / "other-0.3.dist-info" / "METADATA"
    metadata.write_text(f"{metadata.read_text()}Requires-Dist: {requirement}\n")
    entries = good.root / "other-0.3.dist-info" / "entry_points.txt"
    more = "[streamplug.commands]\nodd = other.hooks:x\n[streamplug.names]\nOdd = other.hooks:x\n"
    entries.write_text(entries.read_text() + more)
    lines = good.run("rows()").splitlines()
    listed = [line for line in lines if line.startswith("other 0.3")]
    said = f"it needs {requirement}, and streamplug 0.1.0 is installed: upgrade one of them"
    assert listed == ([f"other 0.3 | - | - | broken | {said}"] if is_refused else [])
    assert "good 1.0 | encoding | fein | ok | " in lines
    command = "from streamplug.cli.app import load_command; print(load_command('odd').short_help)"
    assert (said in good.run(command)) == is_refused
    name = "import streamplug\ntry: streamplug.Odd\nexcept Exception as error: print(error)"
    assert (f"Odd is in other: {said}" in good.run(name)) == is_refused


@pytest.mark.parametrize("metadata", [None, "", "Version: 1.0\n"])
def test_a_distribution_without_a_name_is_broken_and_stops_no_other(good, metadata):
    folder = good.root / "gone-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text(
        "[streamplug]\ngone = x.y\n[streamplug.commands]\ngone = x:y\n"
    )
    if metadata is not None:
        (folder / "METADATA").write_text(metadata)
    broken, *_, last = good.run("rows()", STREAMPLUG_PLUGINS="good,(unnamed)").splitlines()
    assert broken.startswith("(unnamed) | - | - | broken | a distribution in ")
    assert str(good.root) in broken
    assert last == "good 1.0 | encoding | fein | ok | "
    assert good.run("rows()").splitlines()[-1] == last
    listed = "from streamplug.cli.app import command_names; print(command_names())"
    assert good.run(listed, STREAMPLUG_PLUGINS="(unnamed)") == "['gone']\n"


def test_a_hook_of_another_version_may_be_optional(site):
    site.install(
        "ahead",
        """
        @hookimpl(optionalhook=True)
        def streamplug_teleporters():
            return []
        """,
    )
    assert site.run("rows()") == ""


def test_strict_mode_raises_what_is_broken(good):
    good.install("bad", "import no_such_module", version="0.3")
    for value, wanted in (
        ("1", "BrokenPluginError: bad 0.3 failed to load: ModuleNot"),
        ("0", "no"),
    ):
        text = good.error("resolve('encoding', 'fine')", STREAMPLUG_STRICT_PLUGINS=value)
        assert text.startswith(wanted)


def test_two_distributions_with_one_entry_name_are_both_kept(site):
    for name in ("one", "two"):
        site.install(
            name,
            f"""
            @hookimpl
            def streamplug_plugins():
                return [Provider("encoding", "{name}-encoding", "{name}.code:X")]
            """,
            entry="same",
        )
    assert site.run("rows('ok')").splitlines() == [
        "one 1.0 | encoding | one-encoding | ok | ",
        "two 1.0 | encoding | two-encoding | ok | ",
    ]


def test_two_distributions_with_one_module_are_both_kept(good):
    info = good.root / "fork-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fork\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[streamplug]\nmain = good.hooks\n")
    good.names.append("fork")
    lines = good.run("rows('ambiguous')").splitlines()
    assert lines[0] == "fork 2.0 | encoding | fine | ambiguous | provided by fork 2.0 and good 1.0"
    assert len(lines) == 4


def test_a_built_in_name_is_refused(site):
    site.install(
        "greedy",
        """
        @hookimpl
        def streamplug_plugins():
            return [
                Provider("compression", "gz", "greedy.code:X"),
                Provider("compression", "own", "greedy.code:X", ("bz2",)),
            ]
        """,
    )
    assert site.run("rows()").splitlines() == [
        (
            "greedy 1.0 | compression | gz | rejected | 'gz' is a built-in compression; built-in names "
            "are reserved"
        ),
        "greedy 1.0 | compression | own | ok | ",
        (
            "greedy 1.0 | compression | bz2 | rejected | 'bz2' is a built-in compression; built-in "
            "names are reserved"
        ),
    ]
    assert site.run("print(resolve('compression', 'gz').__module__)").startswith("streamplug.")


def test_a_name_given_twice_by_one_distribution_is_refused_once(site):
    site.install(
        "twice",
        """
        @hookimpl
        def streamplug_plugins():
            return [Provider("encoding", "x", f"m:{name}") for name in ("X", "X", "Other")]
        """,
    )
    assert site.run("rows()").splitlines() == [
        "twice 1.0 | encoding | x | ok | ",
        "twice 1.0 | encoding | x | rejected | 'x' is already m:X of the same distribution",
    ]


def test_the_order_does_not_depend_on_the_path(site):
    for name, at in (("zeta", "first"), ("alpha", "second"), ("Beta_x", "first")):
        site.install(
            name,
            f"""
            @hookimpl
            def streamplug_plugins():
                return [Provider("encoding", "of-{name.lower()}", "m:X")]
            """,
            at=at,
        )
    one, two = site.root / "first", site.root / "second"
    shown = site.run("rows()", path=[one, two])
    assert shown == site.run("rows()", path=[two, one])
    assert [line.split()[0] for line in shown.splitlines()] == ["alpha", "beta-x", "zeta"]


def test_allow_list_and_block_list(site):
    for name in ("aaa", "bbb", "Under_Score"):
        site.install(
            name, GOOD.replace("fine", f"of-{name.lower()}").replace("fein", f"{name[0].lower()}")
        )
    script = """
        for f in inventory().entries:
            if f.distribution in ("aaa", "bbb", "under-score") and f.name not in ("a", "b", "u"):
                print(f.distribution, f.status, f.reason)
        """
    disallowed, blocked = "disabled not in STREAMPLUG_PLUGINS", "in STREAMPLUG_DISABLE_PLUGINS"

    def shown(**environment):
        return [line.strip() for line in site.run(script, **environment).splitlines()]

    assert shown(STREAMPLUG_PLUGINS="") == [
        f"aaa {disallowed}",
        f"bbb {disallowed}",
        f"under-score {disallowed}",
    ]
    assert shown(STREAMPLUG_PLUGINS="aaa, under.score") == [
        "aaa ok",
        f"bbb {disallowed}",
        "under-score ok",
    ]
    assert shown(STREAMPLUG_DISABLE_PLUGINS="bbb Under_Score") == [
        "aaa ok",
        f"bbb disabled {blocked}",
        f"under-score disabled {blocked}",
    ]


@pytest.mark.parametrize("variable", ["STREAMPLUG_PLUGINS", "STREAMPLUG_DISABLE_PLUGINS"])
def test_lists_with_other_separators_are_refused(site, variable):
    site.install("loud", "")
    assert site.error("inventory()", **{variable: "loud;quiet"}) == (
        f"ConfigError: environment variable {variable}: 'loud;quiet' is no name of a distribution; "
        "separate names by commas or spaces\n"
    )


def test_a_disabled_plugin_is_not_even_imported(site):
    site.install("loud", "print('imported')")
    assert site.run("inventory()") == "imported\n"
    assert site.run("inventory()", STREAMPLUG_DISABLE_PLUGINS="loud") == ""


def test_built_ins_are_used_without_a_scan(site, tmp_path):
    shown = site.run(
        f"""
        from streamplug.plugin import make, open_storage, resolve
        make("compression", "gz:6").compress(b"")
        make("encoding", "int").encode(1)
        resolve("format", "mds")
        resolve("shuffle", "none")
        storage = open_storage({str(tmp_path / "set")!r})
        storage.write("k", b"data")
        print(storage.read("k"), "pluggy" in sys.modules)
        try:
            resolve("encoding", "unheard-of")
        except RuntimeError as error:
            print(error)
        """,
        prelude=NO_SCAN,
    )
    assert shown.splitlines() == ["b'data' False", "a scan"]


def test_a_distribution_that_pip_installed(tmp_path, site):
    project = tmp_path / "project"
    (project / "src" / "streamplug_hello").mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        """
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"
        [project]
        name = "streamplug-hello"
        version = "0.7"
        [project.entry-points.streamplug]
        hello = "streamplug_hello"
        """
    )
    (project / "src" / "streamplug_hello" / "__init__.py").write_text(
        "from streamplug.plugin import Provider, hookimpl\n"
        + GOOD.replace("good.code", "streamplug_hello.code")
    )
    (project / "src" / "streamplug_hello" / "code.py").write_text(FINE)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(tmp_path / "installed"), str(project)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    site.names.append("streamplug-hello")
    shown = site.run(
        "rows(); print(make('encoding', 'streamplug-hello:fine').decode(b''))",
        path=[tmp_path / "installed"],
    )
    assert shown.splitlines() == [
        "streamplug-hello 0.7 | encoding | fine | ok | ",
        "streamplug-hello 0.7 | encoding | fein | ok | ",
        "fine",
    ]
