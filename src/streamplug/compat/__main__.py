"""``python -m streamplug.compat program.py [ARGUMENT]...``: runs a program written for mosaicml-streaming.

``python -m streamplug.compat --list`` says which names there are, and what differs.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from streamplug.compat import MODULES, VERSION, install
from streamplug.compat.differences import told

_USAGE = "usage: python -m streamplug.compat {--list | program.py [ARGUMENT]...}"


def main() -> None:
    """Run the program that the command line names, as Python itself would."""
    if len(sys.argv) < 2:
        sys.exit(_USAGE)
    if sys.argv[1] == "--list":
        sys.stdout.writelines(f"{line}\n" for line in told(MODULES, VERSION))
        return
    install()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
