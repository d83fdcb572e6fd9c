"""Jobs that change samples by expressions or by a program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import IO, ClassVar

import xxhash

from streamplug.config import suggest_keywords
from streamplug.errors import ConfigError, DataError
from streamplug.index import make_encoding
from streamplug.interfaces import Column, Format
from streamplug.plugin import make
from streamplug.types import Int64
from streamplug_tools.column_mapping import ColumnMapping, select_columns
from streamplug_tools.copy import map_table_columns
from streamplug_tools.expressions import Expression
from streamplug_tools.job import open_job
from streamplug_tools.json_lines import is_json_readable, lines, spec_of_times, values
from streamplug_tools.options import (
    ALL_COLUMNS,
    Columns,
    Output,
    ProgressCallback,
    Sources,
    WriteResult,
    ignore_progress,
)
from streamplug_tools.row_access import Batch, Table
from streamplug_tools.selection_order import SequentialOrder
from streamplug_tools.sort_keys import batch_rows

_LINES_PER_BATCH = 256
_BYTES_PER_READ = 1 << 20
_END_SECONDS = 5.0
"""Timeout of joining the feeding thread: programs that the program has started may keep its stdin open."""


# -- expressions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpressionTransform:
    """`BatchTransform` that evaluates expressions."""

    expressions: Mapping[str, Expression]
    columns: Sequence[str]
    is_by_sample: ClassVar[bool] = True

    def apply(self, batches: Iterator[tuple[Int64, Batch, Batch]]) -> Iterator[Batch]:
        for ids, seen, written in batches:
            numbers = ids.tolist()
            rows = batch_rows(seen) if seen else [{} for _ in numbers]
            computed: Batch = {
                name: list(map(expression, numbers, rows))
                for name, expression in self.expressions.items()
            }
            yield {**written, **computed}


@suggest_keywords
def process(
    sources: Sources,
    output: Output,
    expressions: Mapping[str, str],
    *,
    skip_bad: int = 0,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write all samples with columns computed by expressions.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the new data set.
        expressions: Expressions by column, see `Expression`. A new column needs an encoding in `columns`.
        skip_bad: Number of samples that may be left out because they cannot be read, computed or stored. The
            result lists them.
        columns: Other columns to take, and encodings of all.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`, or if an expression fails.
    """
    if not isinstance(expressions, Mapping):
        raise ConfigError(
            f"expressions={expressions!r:.60}: expected a dict of expressions by column"
        )
    if not expressions:
        raise ConfigError("no expression is given: there is nothing to change")
    compiled = {name: Expression(text, is_free=True) for name, text in expressions.items()}
    with open_job(sources, columns, on_progress, skip_bad=skip_bad) as job:
        table, output = job.table, output.like(job.table)
        other_columns = _others(table, output, columns, compiled)
        specs = {column.name: column.spec for column in other_columns}
        specs |= {name: columns.encodings[name] for name in compiled if name in columns.encodings}
        if missing := [name for name in compiled if name not in specs]:
            raise ConfigError(f"column {missing[0]!r} is new: name an encoding for it")
        compiled = {
            name: expression.for_columns(table.columns) for name, expression in compiled.items()
        }
        used = sorted(
            {n for expression in compiled.values() for n in expression.columns(table.columns)}
        )
        other_columns = [column for column in other_columns if column.name not in compiled]
        return job.copy(
            SequentialOrder(table.size),
            other_columns,
            output,
            ["process", dict(expressions)],
            change=ExpressionTransform(compiled, used),
            encodings=specs,
        )


def _others(
    table: Table, output: Output, columns: Columns, computed: Mapping[str, Expression]
) -> list[ColumnMapping]:
    """Return the columns to write besides computed ones with an encoding."""
    others = {n: e for n, e in columns.encodings.items() if n not in computed}
    names = [n for n in table.columns if columns.keeps(n)]
    # The new format need not support the encodings of replaced columns.
    own = computed.keys() & columns.encodings.keys()
    replaced = [name for name in names if columns.rename.get(name, name) in own]
    if replaced and len(replaced) == len(names) and not others:
        return []
    rename = {old: new for old, new in columns.rename.items() if old not in replaced}
    drop = [*columns.drop, *replaced]
    return map_table_columns(
        table, output, replace(columns, encodings=others, rename=rename, drop=drop)
    )


# -- programs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProgramTransform:
    """`BatchTransform` that runs a program.

    Attributes:
        command: The program and its arguments.
        specs: Encodings of the columns that it writes.
        format: Format of the new data set.
        read_specs: Result of `spec_of_times` for each column that it reads.
        columns: None, as it reads those that would be written.
    """

    command: Sequence[str]
    specs: Mapping[str, str]
    format: str
    read_specs: Mapping[str, str]
    columns: Sequence[str] = ()
    is_by_sample: ClassVar[bool] = False

    def apply(self, batches: Iterator[tuple[Int64, Batch, Batch]]) -> Iterator[Batch]:
        own = make("format", self.format).encodings
        columns = {
            n: Column(n, spec, make_encoding(n, spec, own)) for n, spec in self.specs.items()
        }
        with closing(
            run_program(
                self.command,
                (line for _, _, w in batches for line in lines(w, self.read_specs)),
            )
        ) as out:
            while some := list(islice(out, _LINES_PER_BATCH)):
                yield values(columns, some)


@suggest_keywords
def process_with(
    sources: Sources,
    output: Output,
    command: Sequence[str],
    *,
    skip_bad: int = 0,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write the output of a program that reads all samples.

    The program is started for each part. It reads a line of JSON for each sample, and writes a line for each
    sample of the new data set. Bytes are ``{"base64": …}``; values that JSON cannot represent are given as
    stored bytes.

    A repeated call continues or keeps the result of the first, unless it reads other columns, or the program
    has changed: the files of the program and of a script that is its first argument are compared, and no
    others.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the new data set.
        command: The program and its arguments.
        skip_bad: Number of samples that may be left out because they cannot be read, computed or stored. The
            result lists them.
        columns: Columns that the program reads. Encodings, if given, name all columns that it writes; else it
            writes those that it reads.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`, or if the program fails or writes an invalid line.
    """
    if isinstance(command, str):
        raise ConfigError(f"command={command!r:.60}: give the program and its arguments as a list")
    if not command:
        raise ConfigError("no program is given: there is nothing to change samples")
    if shutil.which(command[0]) is None:  # before the output is replaced
        raise ConfigError(f"{list(command)} cannot be started: there is no program {command[0]!r}")
    with open_job(sources, columns, on_progress, skip_bad=skip_bad) as job:
        table, output = job.table, output.like(job.table)
        format_: Format = make("format", str(output.format))
        program_columns = _program_columns(table, output, columns)
        specs = dict(columns.encodings) or {column.name: column.spec for column in program_columns}
        if format_.key is not None and format_.key not in specs:
            raise ConfigError(
                f"format {output.format} needs the column {format_.key!r}: have the program give it, or "
                "write another format first"
            )
        return job.copy(
            SequentialOrder(table.size),
            program_columns,
            output,
            # Encodings name only what the program writes.
            [
                "process by",
                list(command),
                _program_digests(command),
                [asdict(column) for column in program_columns],
            ],
            change=ProgramTransform(
                tuple(command),
                specs,
                str(output.format),
                {c.name: spec_of_times(table.columns[c.source]) for c in program_columns},
            ),
            encodings=specs,
        )


def _program_digests(command: Sequence[str]) -> list[str]:
    """Return digests of a program, and of the script that it interprets, if any.

    A script is the first argument that is no option, if it is a file. Others may be files that change with
    each run.
    """
    script = next((word for word in command[1:] if not word.startswith("-")), None)
    names = [shutil.which(command[0]), script]
    # Not `Path.is_file`, which raises for an argument that is too long for a path.
    return [_file_digest(name) for name in names if name and os.path.isfile(name)]  # noqa: PTH113 - see above


def _file_digest(path: str) -> str:
    """Return the digest of the content of a file, or nothing if this user can only execute it."""
    digest = xxhash.xxh3_64()
    try:
        with Path(path).open("rb") as file:
            while data := file.read(_BYTES_PER_READ):
                digest.update(data)
    except OSError:
        return ""
    return digest.hexdigest()


def _program_columns(table: Table, output: Output, columns: Columns) -> list[ColumnMapping]:
    """Return the columns that the program reads."""
    if (
        columns.encodings
    ):  # it gives back others, so these need not be what the new format can store
        names = select_columns(table.columns, columns.rename, columns.select, columns.drop)
        mappings = [
            ColumnMapping(new, table.columns[old][0].spec, old, stored=True) for old, new in names
        ]
    else:
        mappings = map_table_columns(table, output, columns)
    # Values that JSON cannot represent are passed as stored bytes.
    return [
        replace(column, stored=False)
        if is_json_readable(table.columns[column.source][0])
        else column
        for column in mappings
    ]


def run_program(command: Sequence[str], lines: Iterator[str]) -> Generator[str, None, None]:
    """Run a program; feed it lines from a thread, and yield the lines that it writes.

    Raises:
        ConfigError: If it cannot be started.
        DataError: If its exit status is not 0, or its output is not UTF-8.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
    except OSError as error:
        raise ConfigError(f"{list(command)} cannot be started: {error}") from error
    failed: list[BaseException] = []
    feeder = Thread(target=_feed, args=(process.stdin, lines, failed), daemon=True)
    feeder.start()
    try:
        with process.stdout or nullcontext(()) as out:
            yield from out
        feeder.join()
        process.wait()
    except UnicodeDecodeError as error:
        raise DataError(f"{list(command)} has written what is not UTF-8: {error}") from error
    finally:
        # The generator may be closed early. The feeder closes stdin, as it may be writing.
        process.kill()
        process.wait()
        feeder.join(_END_SECONDS)
    if failed:
        raise failed[0]
    if process.returncode:
        raise DataError(f"{list(command)} has ended with status {process.returncode}")


def _feed(stdin: IO[str], lines: Iterator[str], failed: list[BaseException]) -> None:
    try:
        with suppress(BrokenPipeError), stdin:  # the program stopped reading
            for line in _until_failure(lines, failed):
                stdin.write(f"{line}\n")
    except Exception as error:  # noqa: BLE001 - raised by `run_program`
        failed.append(error)


def _until_failure(lines: Iterator[str], failed: list[BaseException]) -> Iterator[str]:
    """Yield lines; what raises in between, also a broken pipe or `sys.exit()`, is that of the samples."""
    try:
        yield from lines
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - raised by `run_program`
        failed.append(error)
