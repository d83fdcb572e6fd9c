"""Notes that name the sample or the batch for which a user's function raised an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from streamplug.errors import DecodeError, StreamplugError, add_note
from streamplug.interfaces import LazyValue
from streamplug.run.feed import Block
from streamplug.run.loop import Part
from streamplug.run.random_numbers import place_of
from streamplug.run.session import Session
from streamplug.types import Sample


def get_each(session: Session, block: Block, get: Callable[[int], Sample]) -> list[Sample]:
    """Return the samples of a block, got one by one; other errors than ours get a note with the sample."""
    samples = []
    for step, sample in block.samples():
        try:
            samples.append(get(sample))
        except Exception as error:
            if not isinstance(error, StreamplugError):
                epoch = -1 if session.part is None else session.part.epoch
                place = describe_sample(session, sample, epoch, step)
                add_note(error, f"raised for {place}")
            raise
    return samples


def note_sample(error: Exception, session: Session, part: Part, number: int) -> None:
    """Name a sample of the latest batch, in which `number` samples precede it."""
    latest = part.latest_batch()
    if latest is not None and number < len(latest[1]):
        step, ids = latest
        text = describe_sample(session, int(ids[number]), part.epoch, step)
        substitute = ", or its substitute" if session.substitution_options.enabled else ""
        add_note(error, f"raised for {text}{substitute}")


def note_batch(error: Exception, session: Session, part: Part) -> None:
    """Name the latest batch."""
    latest = part.latest_batch()
    if latest is not None:
        call = f"dataset.explain({latest[0]}, epoch={part.epoch}, rank={session.world.rank})"
        add_note(error, f"raised for the batch of the samples that {call} lists")


@contextmanager
def name_value(value: object, column: str, rng: np.random.Generator) -> Iterator[None]:
    """Name in a `DecodeError` the value that a transform decodes: its place, else its sample and column."""
    try:
        yield
    except DecodeError as error:
        place = place_of(rng)
        where = "" if place is None else "epoch {}, step {}, sample {}, ".format(*place)
        if isinstance(value, LazyValue) and value.place is not None:
            raise DecodeError(f"{where}{value.name_place(error)}") from error
        raise DecodeError(f"{where}column {column!r}: {error}") from error


def describe_sample(session: Session, sample: int, epoch: int, step: int) -> str:
    """Return in words where a sample is stored, and when it is read."""
    url = session.streams[session.reader.locate(sample)[0]].stream.url
    return f"sample {sample} ({url}, {session.reader.describe(sample)}; epoch {epoch}, step {step})"
