"""Conformance tests of shard formats, for plugin authors to subclass."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamplug.errors import DataError, DecodeError, EncodeError, StreamplugError
from streamplug.index import make_encoding
from streamplug.interfaces import (
    Column,
    Encoding,
    Format,
    ShardReader,
    ShardWriter,
    WritableFormat,
    WriteSettings,
)
from streamplug.plugin import resolve
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.equality import same
from streamplug_testing.memory_shard import MemoryShard, check_scan
from streamplug_testing.row_groups import check_damaged_row_groups, check_row_groups
from streamplug_testing.samples import EXAMPLES, VALUES, Broken, Row, sort_columns, take_rows
from streamplug_testing.shard_headers import check_damaged_heads, check_head, check_layout, info_of
from streamplug_testing.writing import (
    as_json,
    check_batch,
    check_mixed,
    check_value_sizes,
    written,
)

_thorough = settings(
    max_examples=min(40, settings().max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class FormatTests(ConformanceBase):
    """Conformance tests of a shard format; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
        columns: Encoding by column name. A format that cannot store all of them removes some; values are
            known for the encodings of the default, ``bytes``, ``json`` and ``float64``.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[Format] | None] = None
    columns: ClassVar[Mapping[str, str]] = {
        "text": "str",
        "number": "int",
        "values": "ndarray",
        "fixed": "ndarray:float32:2",
    }

    @classmethod
    def format_class(cls) -> type[Format]:
        """Return the class under test."""
        return cls.cls or resolve("format", cls.name)

    def format(self) -> Format:
        """Return a new instance of the format under test."""
        return self.format_class().from_spec(None)

    def rows(self, *, min_size: int = 0) -> st.SearchStrategy[list[Row]]:
        """Return a strategy for the samples of a shard."""
        row = st.fixed_dictionaries({name: VALUES[spec] for name, spec in self.columns.items()})
        return st.lists(row, min_size=min_size, max_size=8)

    def some_rows(self, count: int = 7) -> list[Row]:
        """Return deterministic samples."""
        return [
            {name: EXAMPLES[spec](i) for name, spec in self.columns.items()}
            for i in range(1, count + 1)
        ]

    # -- there and back -------------------------------------------------------

    def writer(self, compression: str | None = None) -> ShardWriter:
        """Return a writer of `columns`."""
        own = self.format_class().encodings
        columns = [Column(n, spec, make_encoding(n, spec, own)) for n, spec in self.columns.items()]
        format_ = self.format()
        assert isinstance(format_, WritableFormat)
        return format_.writer(columns, WriteSettings(compression, ("xxh64",), 1 << 20))

    def write(self, rows: Sequence[Row]) -> MemoryShard:
        """Write a shard."""
        return written(self.writer(), rows)

    def open(
        self, shard: MemoryShard, *, format_: Format | None = None, broken: Sequence[str] = ()
    ) -> tuple[ShardReader, list[Column]]:
        """Open a shard; decoding the columns named in `broken` fails."""
        format_ = format_ or self.format()
        columns = [
            replace(c, encoding=Broken(c.encoding)) if c.name in broken else c
            for c in format_.columns(shard.entry, self._make_encoding)
        ]
        info = info_of(shard.samples, shard.files)
        content = {role: np.frombuffer(data, np.uint8) for role, data in shard.files.items()}
        return format_.open(info, content, columns), columns

    def read(self, shard: MemoryShard) -> list[Row]:
        """Read a shard sample by sample and as one batch; both must agree.

        Raises:
            DataError: If both report a damaged shard.
        """
        reader, columns = self.open(shard)
        try:
            rows = [reader.row(index, columns) for index in range(len(reader))]
        except DataError:
            with pytest.raises(DataError):
                reader.take(np.arange(len(reader)), columns)
            raise
        assert same(take_rows(reader, columns, range(len(reader))), rows)
        return rows

    # -- what it declares -----------------------------------------------------

    def test_name_stands_for_the_class(self) -> None:
        if not self.name:
            pytest.skip("no name given")
        assert resolve("format", self.name) is self.format_class()

    def test_suffix_is_the_end_of_a_file_name(self) -> None:
        suffix = self.format_class().suffix
        assert suffix
        assert not suffix.startswith(".")
        assert not set(suffix) & set("/\\ :")

    def test_writes_its_roles(self) -> None:
        shard = self.write(self.some_rows())
        assert set(shard.files) == set(self.format_class().roles)
        for role, data in shard.files.items():
            self.format().check(shard.samples, role, len(data))

    def test_entry_says_what_every_entry_says(self) -> None:
        entry = self.writer("zstd:7").entry()
        assert json.loads(json.dumps(entry)) == entry
        assert entry["version"] == 2
        assert entry["compression"] == "zstd:7"
        assert isinstance(entry["format"], str)
        assert self.name in ("", entry["format"])
        assert not {"samples", "raw_data", "zip_data"} & set(entry)

    def test_entry_tells_the_columns(self) -> None:
        columns = self.format().columns(as_json(self.writer().entry()), self._make_encoding)
        assert {column.name: column.spec for column in columns} == self.columns

    def test_size_of_a_shard_is_known_beforehand(self) -> None:
        writer = self.writer()
        for count in (1, 7):
            rows = self.some_rows(count)
            shard = written(writer, rows)
            sizes = [writer.encode_pieces(row)[1] for row in rows]
            counted = writer.base_size + sum(sizes) + writer.row_overhead * count
            assert len(shard.files["data"]) <= counted
            assert writer.max_size is None or counted < writer.max_size

    # -- what it does ---------------------------------------------------------

    def test_round_trip(self) -> None:
        @_thorough
        @given(self.rows())
        def check(rows: list[Row]) -> None:
            assert same(sort_columns(self.read(self.write(rows))), sort_columns(rows))

        check()

    def test_batch_equals_single_samples(self) -> None:
        @_thorough
        @given(self.rows(min_size=1))
        def check(rows: list[Row]) -> None:
            writer = self.writer()
            check_batch(writer, rows)

        check()

    def test_batches_and_single_samples_make_one_shard(self) -> None:
        check_mixed(self.writer(), self.some_rows())

    def test_sizes_of_values_are_those_of_their_stored_form(self) -> None:
        _, columns = self.open(self.write(self.some_rows()))
        encodings = {column.name: column.encoding for column in columns}
        check_value_sizes(self.writer(), self.some_rows(), encodings)

    def test_shards_of_one_writer_are_independent(self) -> None:
        writer = self.writer()
        shards = [written(writer, self.some_rows(count)) for count in (7, 2, 7)]
        assert same(shards[2], shards[0])
        assert same(shards[0], self.write(self.some_rows()))
        assert same(sort_columns(self.read(shards[1])), sort_columns(self.some_rows(2)))

    def test_takes_samples_in_any_order(self) -> None:
        @_thorough
        @given(self.rows(min_size=1), st.data())
        def check(rows: list[Row], data: st.DataObject) -> None:
            reader, columns = self.open(self.write(rows))
            wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
            single = [reader.row(index, columns) for index in wanted]
            assert same(sort_columns(single), sort_columns([rows[index] for index in wanted]))
            assert same(take_rows(reader, columns, wanted), single)
            assert same(list(map(reader.row_reader(columns), wanted)), single)

        check()

    def test_decodes_no_other_columns(self) -> None:
        shard, rows = self.write(self.some_rows()), self.some_rows()
        for name in self.columns:
            others = [other for other in self.columns if other != name]
            reader, columns = self.open(shard, broken=others)
            wanted = [column for column in columns if column.name == name]
            expected = [{name: row[name]} for row in rows]
            assert same([reader.row(index, wanted) for index in range(len(rows))], expected)
            assert same(take_rows(reader, wanted, range(len(rows))), expected)
            assert same(list(map(reader.row_reader(wanted), range(len(rows)))), expected)

    def test_columns_come_in_the_order_asked_for(self) -> None:
        reader, columns = self.open(self.write(self.some_rows()))
        turned = columns[::-1]
        values = reader.take(np.array([3, 1]), turned)
        for column, column_values in zip(turned, values, strict=True):
            expected = [self.some_rows()[index][column.name] for index in (3, 1)]
            assert same(list(column.encoding.unbatch(column_values)), expected)

    def test_byte_range_lies_in_the_file(self) -> None:
        shard = self.write(self.some_rows())
        reader, _ = self.open(shard)
        ranges = [reader.byte_range(index) for index in range(len(reader))]
        if None in ranges:
            assert set(ranges) == {None}
            pytest.skip("a sample is not one piece of a file")
        for start, stop in ranges:  # type: ignore[misc]  # None is not among them
            assert 0 <= start <= stop <= len(shard.files["data"])
        by_start = sorted(ranges)  # type: ignore[type-var]  # None is not among them
        for (_, stop), (start, _) in pairwise(by_start):  # type: ignore[misc]  # as above
            assert stop <= start, "byte ranges of two samples overlap"

    def test_head_tells_what_the_whole_shard_tells(self) -> None:
        shard = self.write(self.some_rows())
        check_head(self.format(), shard.files, *self.open(shard))

    def test_damaged_heads_do_no_harm(self) -> None:
        shard = self.write(self.some_rows())
        check_damaged_heads(self.format(), shard.samples, shard.files, self.open(shard)[1])

    def test_row_groups_have_what_the_whole_shard_has(self) -> None:
        shard = self.write(self.some_rows())
        check_row_groups(self.format(), shard.files, *self.open(shard))

    def test_damaged_row_groups_do_no_harm(self) -> None:
        shard = self.write(self.some_rows())
        columns = self.open(shard)[1]
        check_damaged_row_groups(self.format(), shard.samples, shard.files, columns)

    def test_many_shards_are_read_at_once(self) -> None:
        shards = [self.write(self.some_rows()[:count]) for count in (3, 7, 1)]
        readers = [(shard.files["data"], self.open(shard)[0]) for shard in shards]
        check_layout(self.format(), readers, self.open(shards[0])[1])

    def test_serves_many_threads(self) -> None:
        reader, columns = self.open(self.write(self.some_rows()))
        subsets = [columns, columns[:1], columns[1:]]

        def work(turn: int) -> bool:
            wanted = subsets[turn % 3]
            rows = [reader.row(index, wanted) for index in range(len(reader))]
            return same(take_rows(reader, wanted, range(len(reader))), rows) and rows == rows

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(200)))

    def test_pickles(self) -> None:
        format_ = pickle.loads(pickle.dumps(self.format()))
        reader, columns = self.open(self.write(self.some_rows()), format_=format_)
        columns = pickle.loads(pickle.dumps(columns))
        assert len(reader) == 7
        assert same(sort_columns([reader.row(0, columns)]), sort_columns(self.some_rows()[:1]))

    def test_looking_through_a_file_finds_its_samples(self) -> None:
        shard = self.write(self.some_rows())
        data, roles = shard.files["data"], {*self.format_class().roles} - {"data"}
        result = check_scan(self.format(), data, roles)
        files = {**result.files, "data": data}
        entry = {**result.entry, "compression": None}
        reader, columns = self.open(MemoryShard(as_json(entry), files, result.samples))
        assert result.samples == len(reader) == 7
        for role, content in files.items():
            self.format().check(result.samples, role, len(content))
        equal = [c.name for c in columns if self.columns.get(c.name) == c.spec]
        for index, row in zip((3, 1), take_rows(reader, columns, [3, 1]), strict=True):
            assert row.keys() == {column.name for column in columns}
            written_row = self.some_rows()[index]
            assert same([row[name] for name in equal], [written_row[name] for name in equal])

    # -- what it refuses to write ---------------------------------------------

    def test_wrong_columns_are_refused(self) -> None:
        writer, row = self.writer(), self.some_rows()[0]
        for name in self.columns:
            less = {key: value for key, value in row.items() if key != name}
            with pytest.raises(EncodeError, match=name):
                writer.encode(less)
            with pytest.raises(EncodeError, match=name):
                writer.encode_batch({key: [value] for key, value in less.items()})
        with pytest.raises(EncodeError, match="surplus"):
            writer.encode({**row, "surplus": 1})
        with pytest.raises(EncodeError, match="surplus"):
            writer.encode_batch({key: [value] for key, value in {**row, "surplus": 1}.items()})

    def test_wrong_values_are_refused(self) -> None:
        writer, row = self.writer(), self.some_rows()[0]
        for name in self.columns:
            with pytest.raises(EncodeError, match=name):
                writer.encode({**row, name: object()})
            batch = {key: [value] for key, value in row.items()}
            with pytest.raises(EncodeError, match=name):
                writer.encode_batch({**batch, name: [object()]})

    def test_columns_of_different_lengths_are_refused(self) -> None:
        batch = {name: [row[name] for row in self.some_rows(3)] for name in self.columns}
        name = next(iter(batch))
        if len(batch) == 1:
            pytest.skip("there is one column")
        with pytest.raises(EncodeError):
            self.writer().encode_batch({**batch, name: batch[name][:2]})

    # -- what it refuses to read ----------------------------------------------

    def test_wrong_number_of_samples_is_refused(self) -> None:
        shard = self.write(self.some_rows())
        for samples in (0, 6, 8, 1 << 40):
            with pytest.raises(DataError):
                self.read(replace(shard, samples=samples))

    def test_truncated_files_are_refused(self) -> None:
        shard = self.write(self.some_rows())
        for role, data in shard.files.items():
            for size in range(len(data)):
                with pytest.raises(DataError):
                    self.read(replace(shard, files={**shard.files, role: data[:size]}))

    def test_garbage_does_no_harm(self) -> None:
        shard = self.write(self.some_rows())

        @_thorough
        @given(st.data())
        def check(data: st.DataObject) -> None:
            role = data.draw(st.sampled_from(sorted(shard.files)))
            start = shard.files[role][: data.draw(st.integers(0, 64))]
            garbage = start + data.draw(st.binary(max_size=200))
            self._read_or_refuse(replace(shard, files={**shard.files, role: garbage}))

        check()

    def test_flipped_bits_do_no_harm(self) -> None:
        shard = self.write(self.some_rows())

        @_thorough
        @given(st.data())
        def check(data: st.DataObject) -> None:
            role = data.draw(st.sampled_from(sorted(shard.files)))
            flipped = bytearray(shard.files[role])
            bits = st.integers(0, 8 * len(flipped) - 1)
            for bit in data.draw(st.sets(bits, min_size=1, max_size=5)):
                flipped[bit // 8] ^= 1 << bit % 8
            self._read_or_refuse(replace(shard, files={**shard.files, role: bytes(flipped)}))

        check()

    def test_hostile_entries_do_no_harm(self) -> None:
        entry = as_json(self.writer().entry())
        values: list[Any] = [None, True, -1, 1 << 70, "x", "pkl", [], [None], ["a", "a"], {}, [[]]]
        changed = [{**entry, key: value} for key in entry for value in values]
        changed += [{k: v for k, v in entry.items() if k != key} for key in entry]
        for hostile in changed:
            try:
                columns = self.format().columns(hostile, self._make_encoding)
            except StreamplugError:
                continue
            assert all(isinstance(column, Column) for column in columns)

    def test_undecodable_value_is_named(self) -> None:
        shard = self.write(self.some_rows())
        for name in self.columns:
            reader, columns = self.open(shard, broken=[name])
            with pytest.raises(DecodeError, match=f"(?s)5.*{name}|{name}.*5"):
                reader.row(5, columns)
            with pytest.raises(DecodeError, match=f"(?s)5.*{name}|{name}.*5"):
                reader.row_reader(columns)(5)
            with pytest.raises(DecodeError, match=f"(?s)4.*{name}|{name}.*4"):
                reader.take(np.array([4, 1]), columns)

    def _make_encoding(self, name: str, spec: str) -> Encoding:
        return make_encoding(name, spec, self.format_class().encodings)

    def _read_or_refuse(self, shard: MemoryShard) -> None:
        try:
            rows = self.read(shard)
        except DataError:
            return
        assert len(rows) == shard.samples
