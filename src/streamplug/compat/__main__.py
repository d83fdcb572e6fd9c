"""``python -m streamplug.compat program.py [ARGUMENT]...``: runs a program written for mosaicml-streaming."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from streamplug.compat import install


def main() -> None:
    """Run the program that the command line names, as Python itself would."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m streamplug.compat program.py [ARGUMENT]...")
    install()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
