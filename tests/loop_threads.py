"""The threads that end with their loop."""

from __future__ import annotations

import threading

# The threads that decode images are of the process.
_OF_PROCESS = "streamplug-image"


def loop_threads() -> list[str]:
    """Return the names of those of this library that are alive."""
    names = [thread.name for thread in threading.enumerate()]
    return [n for n in names if n.startswith("streamplug") and not n.startswith(_OF_PROCESS)]
