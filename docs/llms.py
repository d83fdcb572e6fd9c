"""Writes llms.txt, the list of pages for language models, from the navigation and their first sentences.

The format is that of https://llmstxt.org. `python docs/llms.py` prints it; the build of the documentation
writes it beside the pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

DOCS = Path(__file__).parent
_TOCTREE = re.compile(r"```\{toctree\}\n:hidden:\n(?::caption: ([^\n]+)\n)?\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def llms_text(docs: Path = DOCS) -> str:
    """Return the content of llms.txt."""
    project = (docs.parent / "pyproject.toml").read_text("utf-8")
    description = re.search(r'^description = "(.+)"$', project, re.MULTILINE)
    assert description is not None
    lines = ["# streamplug", "", f"> {description[1]}"]
    for caption, names in _TOCTREE.findall((docs / "index.md").read_text("utf-8")):
        lines += ["", f"## {caption}", "", *_entries(docs, names.split())]
    return "\n".join(lines) + "\n"


def page_path(docs: Path, name: str) -> Path:
    """Return the file of a page or a notebook of the navigation."""
    page = docs / f"{name}.md"
    return page if page.exists() else docs / f"{name}.ipynb"


def page_text(path: Path) -> str:
    """Return the text of a page, or of the cells of a notebook."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def _entries(docs: Path, names: list[str]) -> list[str]:
    entries = []
    for name in names:
        text = page_text(page_path(docs, name))
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        assert title is not None, name
        entries.append(f"- [{title[1]}]({name}.html): {_first_sentence(text)}")
        if name.endswith("/index"):
            parent = name.removesuffix("index")
            for _, more in _TOCTREE.findall(text):
                entries += _entries(docs, [parent + each for each in more.split()])
    return entries


def _first_sentence(text: str) -> str:
    """Return the first sentence of the first paragraph of a page, without markup."""
    for block in re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n\n"):
        paragraph = " ".join(block.split())
        if re.match(r"[A-Z`*\[]", paragraph):
            plain = re.sub(r"[`*]", "", _LINK.sub(r"\1", paragraph))
            return re.split(r"(?<=[.!?:]) (?=[A-Za-z])", plain)[0].removesuffix(":")
    return ""


if __name__ == "__main__":
    print(llms_text(), end="")
