"""Runs an example whose steps take a while, so that others can join it."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(sys.argv[1]).parent))

import waves

note = waves.note


def slow_note(*arguments: Any) -> None:
    note(*arguments)
    time.sleep(0.02)


waves.note = slow_note
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
