"""Notebook of which this process is the kernel."""

from __future__ import annotations

import sys
from typing import Any


def notebook_shell() -> Any:
    """Return the shell of IPython if this process is the kernel of a notebook, or None."""
    # A kernel has imported IPython. A shell of IPython in a terminal has no kernel.
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_shell() if get_shell is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return notebook_shell() is not None
