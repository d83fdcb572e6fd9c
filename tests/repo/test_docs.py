"""Runs every Python block of the documentation and the README, and checks what it describes.

The blocks of a page run as one script, in a directory of its own. A block whose first line is a
comment with a file's name, ``# rot13.py``, is saved as that file instead; if the name begins with
``test_``, pytest runs it after the script. A block that is followed by one of text with an error of
ours, ``streamplug.errors.NotFound: ...``, must end in that error. Commands of console blocks, after
``$ ``, run in their place, and must print what stands below them. ``…`` stands for anything. A block
that cannot be run says so above itself: ``<!-- not run: reason -->``.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from streamplug.cli import main
from tests import warm_python

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").glob("**/*.md") if "_build" not in page.parts),
]
# All pages of these folders run in one process, which imports torch once; and those of all others in one.
TOGETHER = ({"howto", "reference", "tutorial"}, {"concepts", "cookbook", "moving"})
# But pages that need no torch, and start processes that would all import it, run where there is none.
WITHOUT_TORCH = {"engine.md", "many-nodes.md"}
NO_TORCH = "import sys\nsys.modules['torch'] = None\n"
# As many examples as in the other tests, see conftest.py of the repository.
EXAMPLES = """
from hypothesis import settings
settings.register_profile("pages", max_examples=25, derandomize=True, deadline=None, database=None)
settings.load_profile("pages")
"""
RUN_PAGES = str(Path(__file__).with_name("run_pages.py"))
FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$")
FILE = re.compile(r"# (?P<name>\w+\.py)\n")
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*\S.*) -->")
ERROR = re.compile(r"streamplug\.errors\.\w+: ")
PYTHON = re.compile(
    r"(\{code(-block)?\}\s*)?(python|py|python3|pycon|ipython3?)\b|\{doctest\}|\{testcode\}"
)


@dataclass
class Page:
    """The Python of one page.

    Attributes:
        script: What runs as one; each line where it stands in the page.
        files: Content by name of the files.
        faults: What is wrong with blocks, with their lines.
    """

    script: str
    files: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@dataclass
class Fenced:
    """A fenced block: its lines are those from `begin` to `end`, without the fences."""

    info: str
    begin: int
    end: int
    lines: list[str]
    run: bool

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def fenced(lines: list[str]) -> Iterator[Fenced]:
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        end = next(i for i in range(number, len(lines)) if lines[i].rstrip() == fence["mark"])
        above = next((line for line in reversed(lines[: number - 1]) if line.strip()), "")
        run = NOT_RUN.fullmatch(above.strip()) is None
        yield Fenced(fence["info"].strip(), number, end, lines[number:end], run)
        number = end + 1


def parse(text: str) -> Page:
    lines = text.split("\n")
    script = [""] * len(lines)
    blocks = list(fenced(lines))
    page = Page("")
    for block, after in zip(blocks, [*blocks[1:], None], strict=False):
        if block.info == "console" and block.run:
            commands(block, script, page)
        if not PYTHON.match(block.info) or not block.run:
            continue
        if block.info != "python":
            page.faults.append(f"line {block.begin}: write ```python, not ```{block.info}")
        elif file := FILE.match(block.text):
            page.files[file["name"]] = block.text
        elif after and after.info == "text" and ERROR.match(after.text):
            source = "\n" * block.begin + block.text
            script[block.begin] = f"_fails({source!r}, {after.text!r}, globals())"
        else:
            script[block.begin : block.end] = block.lines
    inside = {number for block in blocks for number in range(block.begin - 1, block.end + 1)}
    for number, line in enumerate(lines):
        if number not in inside and re.match(r"\s+(`{3,}|~{3,})\s*\S*(py|console)", line):
            page.faults.append(f"line {number + 1}: an indented block would not run")
    page.script = "\n".join(script)
    return page


def commands(block: Fenced, script: list[str], page: Page) -> None:
    """Put calls of the commands of a console block into the script, where they stand."""
    begins = [n for n, line in enumerate(block.lines) if line.startswith("$ ")]
    for begin, end in pairwise([*begins, len(block.lines)]):
        command = block.lines[begin][2:]
        if not command.startswith("streamplug "):
            page.faults.append(f"line {block.begin + begin + 1}: only streamplug is run")
        shown = "".join(f"{line}\n" for line in block.lines[begin + 1 : end])
        script[block.begin + begin] = f"_prints({command!r}, {shown!r})"


def run(folder: Path, *command: str, torch: bool = False, **environment: str) -> None:
    command = ("-W", "error::DeprecationWarning:__main__", *command)
    # torch's threads wait for each other in vain where others work, too.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    if torch:
        done = warm_python.run(command, warm_python.TORCH, cwd=folder, env=variables)
    else:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, (
        f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    )


def together(path: Path) -> str:
    """Return the name of the group of pages that a page runs with."""
    if path.name in WITHOUT_TORCH:
        return "without torch"
    folders = next((group for group in TOGETHER if path.parent.name in group), {"others"})
    return " ".join(sorted(folders))


def folder_of(path: Path, root: Path) -> Path:
    return root / path.parent.name / path.stem


def without_torch(root: Path) -> str:
    """Return a PYTHONPATH with which Python and its children find no torch."""
    (root / "sitecustomize.py").write_text(NO_TORCH)
    return os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])


GROUPS = {name: list(paths) for name, paths in groupby(sorted(PAGES, key=together), key=together)}


@pytest.mark.parametrize("name", GROUPS)
def test_code_of_pages_runs(name, tmp_path):
    folders, tests = [], []
    for path in GROUPS[name]:
        page = parse(path.read_text(encoding="utf-8"))
        assert not page.faults, f"{path}: {page.faults}"
        folder = folder_of(path, tmp_path)
        folder.mkdir(parents=True)
        for file, content in page.files.items():
            (folder / file).write_text(content, encoding="utf-8")
        (folder / "page.py").write_text(page.script, encoding="utf-8")
        if page.files or page.script.strip():
            folders.append(str(folder))
        tests += [str(folder / file) for file in page.files if file.startswith("test_")]
    # Where hypothesis keeps what it makes of Unicode, so that it does not make it again.
    environment = {"HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")}
    torch = name != "without torch"
    if not torch:
        environment["PYTHONPATH"] = without_torch(tmp_path)
    run(tmp_path, RUN_PAGES, *folders, torch=torch, **environment)
    if tests:
        (tmp_path / "conftest.py").write_text(EXAMPLES)
        # In a folder of its own: else pytest may remove those of earlier runs, which takes minutes.
        options = ["-q", "-p", "no:cacheprovider", "--rootdir=.", "--basetemp=temporary"]
        run(tmp_path, "-m", "pytest", *options, *tests, torch=torch, **environment)


def test_the_guard_finds_blocks_that_would_not_run():
    text = (
        "```{code-block} python\nx = 1\n```\n\n  ```python\n  x = 2\n  ```\n\n```py\nx = 3\n```\n"
    )
    assert len(parse(text).faults) == 3
    assert not parse("<!-- not run: needs a cluster -->\n\n```pycon\n>>> x\n```\n").faults
    assert parse("<!-- not run:  -->\n```pycon\n>>> x\n```\n").faults


def test_blocks_keep_their_lines():
    page = parse(
        "# T\n\n```python\nx = 1\n```\n\n```python\n# a.py\ny = 2\n```\n\n```python\nx\n```\n"
    )
    assert page.script.rstrip().split("\n") == ["", "", "", "x = 1", *[""] * 8, "x"]
    assert page.files == {"a.py": "# a.py\ny = 2\n"}


def test_commands_and_errors_are_part_of_the_script(tmp_path):
    text = (
        "```console\n$ streamplug inspect set\nsamples …\n$ streamplug merge set\n```\n\n"
        "```python\nopen('x')\n```\n\n```text\nstreamplug.errors.NotFound: y\n```\n"
        "```console\npip install x\n```\n"
    )
    page = parse(text)
    assert not page.faults
    assert page.script.rstrip().split("\n") == [
        "",
        "_prints('streamplug inspect set', 'samples …\\n')",
        "",
        "_prints('streamplug merge set', '')",
        *[""] * 3,
        r"""_fails("\n\n\n\n\n\n\nopen('x')\n", 'streamplug.errors.NotFound: y\n', globals())""",
    ]
    assert parse("```console\n$ rm -r set\n```\n").faults == ["line 2: only streamplug is run"]


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("_prints('streamplug plugins --kind format', 'nothing\\n')", "the page says"),
        ("_prints('streamplug merge nowhere', '')", "streamplug merge nowhere"),
        ("_fails('x = 1', 'streamplug.errors.NotFound: y', globals())", "no error: x = 1"),
        ("_fails('int(0, 0)', 'streamplug.errors.NotFound: y', globals())", "builtins.TypeError"),
    ],
)
def test_what_is_not_as_the_page_says_is_an_error(tmp_path, script, fault):
    (tmp_path / "page.py").write_text(script)
    with pytest.raises(AssertionError, match=re.escape(fault)):
        run(tmp_path, RUN_PAGES, str(tmp_path))


def test_every_environment_variable_is_described():
    used = set()
    for source in (ROOT / "src").glob("**/*.py"):
        used |= set(re.findall(r'"(STREAMPLUG_[A-Z_]+)"', source.read_text()))
    described = (ROOT / "docs" / "reference" / "environment.md").read_text()
    assert used
    assert {name for name in used if f"`{name}`" not in described} == set()


def test_diagrams_show_the_orders_that_there_are(tmp_path):
    run(ROOT, "docs/plots/diagrams.py", str(tmp_path))
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(drawn) == 4
    assert drawn == {name: (ROOT / "docs" / "_static" / name).read_bytes() for name in drawn}


LINK = re.compile(r"\]\((?P<target>[^()\s]*)\)")
LINKING = [
    *PAGES,
    *sorted(ROOT.glob("docs/*/*.ipynb")),
    *sorted(ROOT.glob("plugins/*/README.md")),
]
OWN_URL = re.compile(r"https://github\.com/streamplug/streamplug/blob/main/")
PAGE_TEXT = runpy.run_path(str(ROOT / "docs" / "llms.py"))["page_text"]


def prose(path: Path) -> str:
    """Return a page or a notebook without its blocks of code."""
    lines = PAGE_TEXT(path).split("\n")
    for block in list(fenced(lines)):
        lines[block.begin - 1 : block.end + 1] = [""] * (block.end - block.begin + 2)
    return "\n".join(lines)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in plain}


def broken(path: Path, target: str) -> bool:
    own = OWN_URL.match(target)
    if own:
        path, target = ROOT / "README.md", target[own.end() :]
    if re.match(r"\w+:", target):
        url = urlsplit(target)
        return url.scheme != "https" or re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", url.netloc) is None
    file, _, anchor = target.partition("#")
    place = path.parent / file if file else path
    return not place.exists() or (bool(anchor) and anchor not in anchors(place))


def test_links_lead_somewhere():
    found = [(path, target) for path in LINKING for target in LINK.findall(prose(path))]
    assert len(found) > 200
    assert [
        f"{path.relative_to(ROOT)}: {target}" for path, target in found if broken(path, target)
    ] == []


def test_links_of_plugins_lead_somewhere_from_a_package_index():
    readmes = ROOT.glob("plugins/*/README.md")
    found = [(path, target) for path in readmes for target in LINK.findall(prose(path))]
    assert len(found) > 30
    assert [
        f"{path}: {target}" for path, target in found if not target.startswith(("https:", "#"))
    ] == []


def test_cards_lead_to_pages():
    text = (ROOT / "docs" / "index.md").read_text()
    cards = re.findall(r"^:::\{grid-item-card\} .*\n:link: (.*)\n(.*)$", text, re.MULTILINE)
    assert len(cards) == text.count("{grid-item-card}")
    assert {kind for _, kind in cards} == {":link-type: doc"}
    assert [page for page, _ in cards if not (ROOT / "docs" / f"{page}.md").exists()] == []


@pytest.mark.parametrize(
    "target", ["nowhere.md", "index.md#nowhere", "#nowhere", "http://example.com", "https://host"]
)
def test_links_that_lead_nowhere_are_found(target):
    assert broken(ROOT / "docs" / "install.md", target)
    assert not broken(ROOT / "docs" / "install.md", "#with-plugins")


def test_every_command_is_described():
    described = (ROOT / "docs" / "reference" / "cli.md").read_text()
    headings = re.findall(r"^## `streamplug ([\w-]+)`$", described, re.MULTILINE)
    assert sorted(headings) == sorted(main.list_commands(click.Context(main)))
    for name in headings:
        options = {
            opt
            for param in main.get_command(click.Context(main), name).params
            if isinstance(param, click.Option)
            for opt in param.opts
        }
        text = described.split(f"## `streamplug {name}`")[1].split("\n## ")[0]
        common = {"--import", "--traceback"}  # of all commands
        assert {opt for opt in options - common if f"`{opt}" not in text} == set()
