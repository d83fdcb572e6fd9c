"""Runs every Python block of the documentation and the README, and checks that hooks are described.

The blocks of a page run as one script, in a directory of its own. A block whose first line is a
comment with a file's name, ``# rot13.py``, is saved as that file instead; if the name begins with
``test_``, pytest runs it after the script. A block that cannot be run says so above itself:
``<!-- not run: reason -->``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from streamplug.cli import main
from streamplug.plugin.kinds import KINDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$")
FILE = re.compile(r"# (?P<name>\w+\.py)\n")
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*\S.*) -->")
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


def parse(text: str) -> Page:
    lines = text.split("\n")
    script = [""] * len(lines)
    page = Page("")
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            if re.match(r"\s+(`{3,}|~{3,})\s*\S*py", lines[number]):
                page.faults.append(f"line {number + 1}: an indented Python block would not run")
            number += 1
            continue
        begin = number + 1
        end = next(i for i in range(begin, len(lines)) if lines[i].rstrip() == fence["mark"])
        number = end + 1
        if not PYTHON.match(fence["info"]):
            continue
        above = next((line for line in reversed(lines[: begin - 1]) if line.strip()), "")
        if NOT_RUN.fullmatch(above.strip()):
            continue
        if fence["info"].strip() != "python":
            page.faults.append(f"line {begin}: write ```python, not ```{fence['info']}")
            continue
        block = "\n".join(lines[begin:end]) + "\n"
        if file := FILE.match(block):
            page.files[file["name"]] = block
        else:
            script[begin:end] = lines[begin:end]
    page.script = "\n".join(script)
    return page


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, (
        f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_of_a_page_runs(path, tmp_path):
    page = parse(path.read_text(encoding="utf-8"))
    assert not page.faults, f"{path}: {page.faults}"
    for name, content in page.files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    if page.script.strip():
        (tmp_path / "page.py").write_text(page.script, encoding="utf-8")
        run(tmp_path, "page.py")
    for name in page.files:
        if name.startswith("test_"):
            run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", name)
        else:
            run(tmp_path, "-c", f"import {Path(name).stem}")


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


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_hook_has_a_section(kind):
    heading = re.compile(rf"^#+ .*`{kind.hook}`", re.MULTILINE)
    pages = [page for page in PAGES if page.parent.name == "plugins"]
    assert [page.name for page in pages if heading.search(page.read_text())] == [f"{kind.name}.md"]


def test_every_environment_variable_is_described():
    used = set()
    for source in (ROOT / "src").glob("**/*.py"):
        used |= set(re.findall(r'"(STREAMPLUG_[A-Z_]+)"', source.read_text()))
    described = (ROOT / "docs" / "reference" / "environment.md").read_text()
    assert used
    assert {name for name in used if f"`{name}`" not in described} == set()


def test_links_lead_somewhere():
    link = re.compile(r"\]\((?!\w+://|#)([^)#\s]+)")
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in PAGES
        for target in link.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not broken


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
        assert {opt for opt in options - {"--traceback"} if f"`{opt}" not in text} == set()
