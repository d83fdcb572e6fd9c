"""Runs docs/examples/train_resize.py with steps that take a while."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))

import train_resize

note = train_resize.note


def slow_note(*arguments: Any) -> None:
    note(*arguments)
    time.sleep(float(os.environ["STEP_SECONDS"]))


train_resize.note = slow_note

if __name__ == "__main__":
    sys.exit(train_resize.main())
