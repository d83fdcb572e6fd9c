"""Runs each page of the documentation where only that is installed which the page itself names.

A page names what it needs as ``pip install …``; pages of the tutorial have that in their index. Our own
distributions come from the wheels that PIP_FIND_LINKS names. All other tests run where everything is
installed, and do not see that a page forgot to name something.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import tempfile
import venv
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = runpy.run_path(str(ROOT / "tests" / "repo" / "test_docs.py"), run_name="docs")
OURS = {"streamplug", *(path.name for path in (ROOT / "plugins").glob("streamplug-*"))}
PINNED = {"torch": "torch==2.13.0"}
INSTALL = re.compile(r"pip install ([^`\n&]+)")
SPAN = re.compile(r"(?<!`)`[^`]+`(?!`)")
WORD = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<extras>[^]]+)\])?")


def texts_of(page: Path) -> str:
    index = page.with_name("index.md")
    also = index.read_text(encoding="utf-8") if page.parent.name == "tutorial" else ""
    return page.read_text(encoding="utf-8") + also


def named_by(page: Path) -> frozenset[str]:
    """Return what pip is to install for a page, beside the core."""
    found = []
    text = SPAN.sub(lambda span: span[0].replace("\n", " "), texts_of(page))
    for line in INSTALL.findall(text):
        for word in re.sub(r"['\"]", "", line).replace(", ", ",").split():
            name, extras = WORD.match(word).group("name", "extras")
            name = "streamplug" if name == "." else name.rstrip("/").rpartition("/")[2]
            if name in OURS:
                found.append(f"{name}[{extras}]" if extras else name)
            elif re.fullmatch(r"[a-z][\w-]*", name) and not name.startswith("streamplug"):
                found.append(PINNED.get(name, f"{name}[{extras}]" if extras else name))
    return frozenset(found)


@pytest.fixture(scope="module")
def python_with():
    """Return what makes environments with what is named, and returns their Python."""
    with tempfile.TemporaryDirectory(prefix="pages-") as root:

        @cache
        def made(named: frozenset[str]) -> Path:
            folder = Path(tempfile.mkdtemp(dir=root))
            venv.create(folder, with_pip=True)
            python = folder / "bin" / "python"
            run(python, "-m", "pip", "install", "--quiet", "streamplug", "pytest", *sorted(named))
            return python

        yield made


def run(*command: str | Path, folder: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_what_pages_name_is_found():
    def of(name: str) -> set[str]:
        return set(named_by(ROOT / "docs" / name))

    assert of("concepts/folders.md") == {"streamplug-folder", "streamplug-image"}
    extras = "streamplug[mosaic,datasets,image,zstd,s3]"
    assert of("moving/mosaicml-streaming.md") >= {extras, "torch==2.13.0"}
    assert of("howto/bad-samples.md") == {"torch==2.13.0", "streamplug-image"}
    assert of("concepts/plan.md") == set()


PAGES = {str(path.relative_to(ROOT)): DOCS["parse"](path.read_text()) for path in DOCS["PAGES"]}
WITH_CODE = [name for name, page in PAGES.items() if page.script.strip() or page.files]


# Removing the environments takes minutes, which are not the last page's.
@pytest.mark.timeout(300, func_only=True)
@pytest.mark.parametrize("name", WITH_CODE)
def test_a_page_runs_with_what_it_names(name, tmp_path, python_with):
    page = PAGES[name]
    python = python_with(named_by(ROOT / name))
    for file, content in page.files.items():
        (tmp_path / file).write_text(content, encoding="utf-8")
    (tmp_path / "page.py").write_text(page.script, encoding="utf-8")
    run(python, ROOT / "tests" / "repo" / "run_pages.py", tmp_path, folder=tmp_path)
    for file in page.files:
        if file.startswith("test_"):
            # In a folder of its own: else pytest may remove those of earlier runs, which takes minutes.
            options = ["-q", "-p", "no:cacheprovider", "--basetemp=temporary"]
            run(python, "-m", "pytest", *options, file, folder=tmp_path)
