"""Run a program written for mosaicml-streaming: ``python -m streamplug_mosaic program.py [ARGUMENT]...``.

``python -m streamplug_mosaic --list`` prints the names that there are, and the differences.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from streamplug_mosaic import install
from streamplug_mosaic.differences import describe
from streamplug_mosaic.names import MODULES, VERSION

_USAGE = "usage: python -m streamplug_mosaic {--list | program.py [ARGUMENT]...}"


def main() -> None:
    """Run the program that the command line names, as Python itself would."""
    if len(sys.argv) < 2:
        sys.exit(_USAGE)
    if sys.argv[1] == "--list":
        sys.stdout.writelines(f"{line}\n" for line in describe(MODULES, VERSION))
        return
    install()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
