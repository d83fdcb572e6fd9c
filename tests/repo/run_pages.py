"""Runs pages that test_docs.py has taken apart, one after the other: python run_pages.py FOLDER...

Each folder has a ``page.py``, which runs in it as a program of its own would. Several pages in one
process import torch once.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

from click.testing import CliRunner

from streamplug.cli import main as streamplug


def prints(command: str, expected: str) -> None:
    """Run a command of a console block, and compare what it prints to what the page says."""
    result = CliRunner().invoke(streamplug, shlex.split(command)[1:])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    found = "".join(f"{line.rstrip()}\n" for line in result.output.splitlines())
    if expected:
        compare(command, found, expected)
    elif result.exit_code:
        raise AssertionError(f"{command}\n{found}")


def fails(source: str, expected: str, names: dict[str, object]) -> None:
    """Run a block that ends in an error, and compare its message to what the page says."""
    try:
        exec(compile(source, str(Path("page.py").absolute()), "exec"), names)
    except Exception as error:
        kind = type(error)
        compare(source, f"{kind.__module__}.{kind.__name__}: {error}".split(), expected.split())
    else:
        raise AssertionError(f"no error: {source}")


def compare(what: str, found: str | list[str], expected: str | list[str]) -> None:
    """Compare; ``…`` stands for anything in a line, or for any lines, and sizes of whole sets may differ."""
    texts = [" ".join(each) if isinstance(each, list) else each for each in (found, expected)]
    # Other versions of zlib pack otherwise.
    texts = [re.sub(r"[0-9,]+ bytes$", "", each, flags=re.MULTILINE) for each in texts]
    texts[0] = texts[0].replace(str(Path.cwd()), "/data")
    lines = [
        "(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*")
        for line in texts[1].split("\n")
    ]
    if not re.fullmatch("\n".join(lines), texts[0]):
        raise AssertionError(f"{what}\n-- found:\n{found}\n-- the page says:\n{expected}")


def run(folder: Path) -> None:
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    page = ModuleType("__main__")
    sys.modules["__main__"] = page
    vars(page).update(_prints=prints, _fails=fails)
    code = compile(Path("page.py").read_text(encoding="utf-8"), str(folder / "page.py"), "exec")
    exec(code, vars(page))
    sys.path.remove(str(folder))


if __name__ == "__main__":
    for folder in [Path(argument).absolute() for argument in sys.argv[1:]]:
        print(folder, flush=True)
        run(folder)
