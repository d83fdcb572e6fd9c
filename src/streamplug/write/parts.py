"""Writes a data set in parts, by several processes; a run that was killed goes on where it stood.

Each part is a data set of its own in a folder of the whole, so it is there as soon as its index is; the index
of the whole comes last. Which samples a part has does not depend on the number of processes, and so
neither do its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, cpu_count, fspath
from typing import Any

import xxhash

from streamplug.config import parse_bytes
from streamplug.errors import ConfigError, NotFound, OutputExistsError, WriterError
from streamplug.index import COMPANION_NAME, INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin.location import open_storage
from streamplug.write.merge import merge_index
from streamplug.write.processes import in_processes
from streamplug.write.target import places_of
from streamplug.write.writer import Writer

Make = Callable[[Any], Iterable[Mapping[str, Any]]]

PLAN_NAME = "parts.json"
"""Says what a data set in parts is made of, so that another run does not go on with other parts."""


def write_parts(
    make: Make,
    parts: Sequence[Any],
    *,
    columns: Mapping[str, str],
    out: str | PathLike[str] | tuple[str | PathLike[str], str],
    processes: int | None = None,
    exist_ok: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    report: Callable[[int, int], None] = lambda *_: None,
    batches: bool = False,
    **options: Any,
) -> int:
    """Write a data set from parts, such as files to be converted, by several processes.

    The samples of a part follow those of the part before. Shards never span parts, so parts should make
    several shards each. If a run is killed, the same call writes what is missing, and the bytes are those of
    an undisturbed run, if `make` gives the same samples.

    Args:
        make: Called with one of `parts`, yields its samples: the value of each column by its name. A
            function of a module, unless `processes` is 0.
        parts: What each part is made from; paths, or what JSON can express, such as names and numbers.
        columns: Encoding of each column by its name.
        out: A local path, a URL, or a pair (local path, URL).
        processes: How many parts are written at once; None for one for each processor, 0 for none but
            this one.
        exist_ok: Whether to remove another data set that is in `out`.
        storage_options: Settings of the storage that is uploaded to.
        report: Called with the number of parts that are written, and of all, when there is one more.
        batches: Whether `make` yields many samples at once: the values of each column, as
            `Writer.write_batch` takes them.
        **options: Further arguments of `Writer`.

    Returns:
        How many shards the data set has.

    Raises:
        OutputExistsError: If there is another data set in `out` and not `exist_ok`.
        ConfigError: If an argument has no meaning.
        WriterError: If `make` raises, or a sample cannot be written.
    """
    if not parts:
        raise ConfigError("parts= is empty: there is nothing to write")
    if processes is not None and processes < 0:
        raise ConfigError(f"processes={processes}: must be 0 or more")
    whole = _Whole(out, storage_options)
    whole.begin(_plan(parts, columns, options), exist_ok=exist_ok)
    given = tuple(parts), whole.places, dict(columns), storage_options, options
    task = _Task(make, *given, batches=batches)
    done = whole.finished(len(parts))
    todo = [number for number in range(len(parts)) if number not in done]
    report(len(done), len(parts))
    for count, _ in enumerate(_run(task, todo, processes), len(done) + 1):
        report(count, len(parts))
    return merge_index(
        [task.place(number) for number in range(len(parts))],
        whole.places if len(whole.places) > 1 else whole.places[0],
        keep_local=bool(options.get("keep_local")) or len(whole.places) == 1,
        storage_options=storage_options,
    )


def _run(task: _Task, numbers: Sequence[int], processes: int | None) -> Iterator[int]:
    count = (cpu_count() or 1) if processes is None else processes
    if count:
        yield from in_processes(task, numbers, min(count, len(numbers)))
        return
    for number in numbers:
        task(number)
        yield number


@dataclass(frozen=True)
class _Task:
    """Writes one part."""

    make: Make
    parts: tuple[Any, ...]
    places: tuple[str, ...]
    columns: Mapping[str, str]
    storage_options: Mapping[str, Any] | None
    options: Mapping[str, Any]
    batches: bool

    def __call__(self, number: int) -> None:
        try:
            with Writer(
                columns=self.columns,
                out=self.place(number),
                exist_ok=True,  # what a killed run has left of it
                storage_options=self.storage_options,
                **self.options,
            ) as writer:
                write = writer.write_batch if self.batches else writer.write
                for each in self.make(self.parts[number]):
                    write(each)
        except Exception as error:
            raise WriterError(
                f"part {number} ({self.parts[number]!r:.200}): {type(error).__name__}: {error}"
            ) from error

    def place(self, number: int) -> Any:
        """Return where a part is, as `out` of `Writer` has it."""
        below = tuple(f"{place.rstrip('/')}/{_folder(number)}" for place in self.places)
        return below if len(below) > 1 else below[0]


class _Whole:
    """Where the parts are."""

    def __init__(self, out: Any, options: Mapping[str, Any] | None) -> None:
        near, far = places_of(out)
        self.places = (near,) if far is None else (near, far)
        self._storage: Storage = open_storage(self.places[-1], options)

    def begin(self, plan: dict[str, Any], *, exist_ok: bool) -> None:
        """Say what the data set will be made of, or see that it is the one that is there."""
        try:
            found = json.loads(self._storage.read(PLAN_NAME))
        except NotFound:
            found = None
        except ValueError:
            found = {}
        if found == plan:
            return
        if found is not None or self._storage.exists(INDEX_NAME):
            if not exist_ok:
                other = _difference(found, plan) if found else "it was written otherwise"
                raise OutputExistsError(
                    f"{self._storage.url} already holds a data set, or a part of one: {other}; choose "
                    "another place, or pass exist_ok=True to replace it"
                )
            for info in list(self._storage.list("")):
                self._storage.delete(info.key)
        self._storage.delete(INDEX_NAME)
        self._storage.delete(COMPANION_NAME)
        self._storage.write(PLAN_NAME, json.dumps(plan, sort_keys=True).encode())

    def finished(self, count: int) -> set[int]:
        """Return the numbers of the parts that are whole."""
        there = {info.key for info in self._storage.list("part-")}
        return {n for n in range(count) if f"{_folder(n)}/{INDEX_NAME}" in there}


def _folder(number: int) -> str:
    return f"part-{number:05d}"


def _plan(
    parts: Sequence[Any], columns: Mapping[str, str], options: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        named = json.dumps(
            [part if not isinstance(part, PathLike) else fspath(part) for part in parts]
        )
    except TypeError as error:
        raise ConfigError(
            f"parts=: {error}; name parts by paths, texts, numbers, or lists and dicts of them, and let "
            "make= find what they stand for"
        ) from error
    limit, format_ = options.get("size_limit", "64mb"), options.get("format", "mds")
    return {
        "columns": dict(columns),
        "compression": options.get("compression"),
        "format": format_ if isinstance(format_, str) else type(format_).__name__,
        "hashes": sorted(options.get("hashes") or ()),
        "parts": len(parts),
        "parts_digest": xxhash.xxh3_64_hexdigest(named.encode()),
        "size_limit": None if limit is None else parse_bytes(limit, "size_limit"),
        "version": 1,
    }


def _difference(found: Any, plan: dict[str, Any]) -> str:
    if not isinstance(found, dict):
        return f"its {PLAN_NAME} is damaged"
    names = [name for name in plan if found.get(name) != plan[name]]
    return ", ".join(
        f"{name} was {found.get(name)!r:.80}, not {plan[name]!r:.80}" for name in names
    )
