"""Renders this folder's files into a new distribution: ``python render.py NAME TARGET``.

NAME is what users will call the plugin, such as ``uuid``; the distribution is named after it.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from string import Template

HERE = Path(__file__).parent
LICENSE = HERE.parents[1] / "LICENSE"


def render(name: str, target: Path) -> Path:
    """Write a distribution that provides an encoding, and return its folder.

    Args:
        name: Lower case, of letters, digits, ``-`` and ``_``, beginning with a letter.
        target: Folder in which the distribution's own folder is made.

    Raises:
        ValueError: If the name is malformed.
        FileExistsError: If the folder is there already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ValueError(f"{name!r}: use lower-case letters, digits, - and _")
    values = {
        "name": name,
        "distribution": f"streamplug-{name.replace('_', '-')}",
        "module": f"streamplug_{name.replace('-', '_')}",
        "class_name": "".join(part.capitalize() for part in re.split("[-_]", name)),
    }
    folder = target / values["distribution"]
    folder.mkdir(parents=True)
    shutil.copy(LICENSE, folder / "LICENSE")
    source = HERE / "files"
    for path in sorted(p for p in source.rglob("*") if p.is_file() and p.suffix != ".pyc"):
        out = folder / Template(path.relative_to(source).as_posix()).substitute(values)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(Template(path.read_text()).substitute(values))
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("target", metavar="TARGET", type=Path)
    arguments = parser.parse_args()
    print(render(arguments.name, arguments.target))  # noqa: T201
