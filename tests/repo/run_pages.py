"""Runs pages that test_docs.py has taken apart, one after the other: python run_pages.py FOLDER...

Each folder has a ``page.py``, which runs in it as a program of its own would; the other modules there are
imported, but for tests. Several pages in one process import torch once.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest import mock

from click.testing import CliRunner

from streamplug.cli import main as streamplug
from streamplug.plugin import registry


def prints(command: str, expected: str) -> None:
    """Run a command of a console block, and compare what it prints to what the page says."""
    with ExitStack() as stack:  # a program of its own knows nothing of what the page registers
        for names in registry._registered.values():
            stack.enter_context(mock.patch.dict(names, clear=True))
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
        found = f"{kind.__module__}.{kind.__name__}: {error}"
        compare(source.strip(), " ".join(found.split()), " ".join(expected.split()))
    else:
        raise AssertionError(f"no error: {source.strip()}")


def compare(what: str, found: str, expected: str) -> None:
    """Compare; ``…`` stands for anything in a line, or for any lines, and sizes of whole sets may differ."""
    found = found.replace(str(Path.cwd()), "/data")
    # Other versions of zlib pack otherwise.
    printed, shown = (re.sub(r"(?m)[0-9,]+ bytes$", "", text) for text in (found, expected))
    lines = [
        "(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*")
        for line in shown.split("\n")
    ]
    if not re.fullmatch("\n".join(lines), printed):
        raise AssertionError(f"{what}\n-- found:\n{found}\n-- the page says:\n{expected}")


def run(folder: Path) -> None:
    os.chdir(folder)
    page = ModuleType("__main__")
    vars(page).update(_prints=prints, _fails=fails)
    code = compile(Path("page.py").read_text(encoding="utf-8"), str(folder / "page.py"), "exec")
    # The next page knows nothing of what this one registers, nor of its modules.
    with ExitStack() as stack:
        for names in registry._registered.values():
            stack.enter_context(mock.patch.dict(names))
        sys.path.insert(0, str(folder))
        sys.modules["__main__"] = page
        exec(code, vars(page))
        for path in folder.glob("*.py"):
            if path.stem != "page" and not path.stem.startswith("test_"):
                import_module(path.stem)
        sys.path.remove(str(folder))
    for name, module in list(sys.modules.items()):
        if folder in Path(getattr(module, "__file__", None) or "").parents:
            del sys.modules[name]


if __name__ == "__main__":
    for folder in [Path(argument).absolute() for argument in sys.argv[1:]]:
        print(folder, flush=True)
        with mock.patch.object(os, "fsync"):  # no waiting for disks, as in the other tests
            run(folder)
