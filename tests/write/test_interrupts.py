"""Programs that catch Ctrl-C and complete what they have written so far."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import WriterError
from streamplug.write import writer as module

CALLS = [[0], [1], [2, 3, 4], [5], [6, 7], [8], [9], [10]]
"""Numbers of the samples of each call: of `write` one, of `write_batch` several."""


class Interrupt:
    """Raises KeyboardInterrupt before a line of a method of the writer, counted over all calls."""

    def __init__(self, line: int) -> None:
        self.remaining = line

    def __call__(self, call: Callable[[], None]) -> bool:
        """Call a function; return whether it was not interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        except KeyboardInterrupt:
            return False
        finally:
            sys.settrace(before)
        return True

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code.co_filename != module.__file__ or code.co_name not in vars(module.Writer):
            return None  # in another function, a file may stay open
        if event == "line":
            self.remaining -= 1
            if self.remaining == 0:
                raise KeyboardInterrupt
        return self._trace


def sample(number: int) -> dict[str, Any]:
    return {"n": number, "text": f"{number}" * (number % 3)}


def write(out: Path, interrupt: Interrupt) -> list[int] | None:
    """Write all samples; return the numbers of those of whole calls, or None if the data set is given up."""
    done = []
    with MDSWriter(columns={"n": "int", "text": "str"}, out=out, max_samples_per_shard=5) as writer:
        for numbers in CALLS:
            rows = [sample(number) for number in numbers]
            batch = {name: [row[name] for row in rows] for name in rows[0]}

            def call(rows: Any = rows, batch: Any = batch) -> None:
                writer.write(rows[0]) if len(rows) == 1 else writer.write_batch(batch)

            try:
                done += numbers if interrupt(call) else []
            except WriterError:
                break
        try:
            writer.finish()
        except WriterError:
            return None
    return done


def test_what_was_written_before_an_interrupt_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_UNPACKED_PIECES", 3)
    num_complete = 0
    for line in range(1, 1000):
        interrupt, out = Interrupt(line), tmp_path / str(line)
        try:
            done = write(out, interrupt)
        except WriterError:  # of the end of the `with` block
            done = None
        if done is not None:
            num_complete += 1
            read = [(row["n"], row["text"]) for row in StreamingDataset(local=str(out))]
            assert read == [tuple(sample(number).values()) for number, _ in read], line
            numbers = [number for number, _ in read]
            assert numbers == sorted(set(numbers)), line
            assert set(done) <= set(numbers), line
        if interrupt.remaining > 0:  # no such line
            break
    else:
        pytest.fail("the writer has more lines than the test counts")
    assert num_complete > line / 4
