"""The conformance tests must find what is wrong with a format."""

from __future__ import annotations

import importlib.util

import pytest
from streamplug_files import ScannableFormat, ScanResult
from streamplug_testing.format import FormatTests
from streamplug_testing.scaffold import new_plugin

from streamplug.builtin.mds import MDS, MDSHead, MDSLayout, MDSReader
from streamplug.errors import CorruptShardError, InvalidIndexError, StreamplugError


class RefusesTrueSizes(MDS):
    def check(self, samples, role, size):
        raise InvalidIndexError(f"{role} cannot have {size} bytes")


class OtherRowReader(MDSReader):
    def row_reader(self, columns):
        read = super().row_reader(columns)
        return lambda index: read(max(index - 1, 0))

    def row(self, index, columns):
        return MDSReader.row_reader(self, columns)(index)


class OneByteRange(MDSReader):
    def byte_range(self, index):
        return 0, 1


def with_reader(reader_class):
    class WithReader(MDS):
        def open(self, *arguments):
            reader = super().open(*arguments)
            reader.__class__ = reader_class
            return reader

    return WithReader


class LargerSizes(MDSHead):
    def sizes(self, column):
        sizes = super().sizes(column)
        return None if sizes is None else sizes + 1


class WrongSizes(MDS):
    def open_header(self, *arguments):
        header = super().open_header(*arguments)
        header.__class__ = LargerSizes
        return header


class MisplacedValues(MDSLayout):
    def values(self, *arguments):
        starts, sizes = super().values(*arguments)
        return starts + 1, sizes


class ReversedParts(MDSLayout):
    def take_parts(self, data, shards, sizes, rows, columns, *, parts):
        for part in parts:
            where = (shards[part][::-1], sizes[part][::-1], rows[part][::-1])
            yield self.take(data, *where, columns)


class WrongValues(MDS):
    def multi_shard_reader(self, columns):
        return MisplacedValues(columns)


class WrongParts(MDS):
    def multi_shard_reader(self, columns):
        return ReversedParts(columns)


class Scannable(MDS, ScannableFormat):
    """Finds the samples of the tests only."""

    def scan(self, file):
        suite = type("Suite", (FormatTests,), {"cls": MDS})()
        shard = suite.write(suite.some_rows())
        if file.read(0, file.size) != shard.files["data"]:
            raise CorruptShardError("not the samples of the tests")
        return ScanResult(shard.samples, shard.entry)


class MirroredReader(MDSReader):
    def take(self, rows, columns):
        return super().take(len(self) - 1 - rows, columns)


class Mirrored(with_reader(MirroredReader), Scannable):
    pass


@pytest.mark.parametrize(
    ("format_class", "test"),
    [
        (RefusesTrueSizes, "writes_its_roles"),
        (with_reader(OtherRowReader), "decodes_no_other_columns"),
        (with_reader(OneByteRange), "byte_range_lies_in_the_file"),
        (WrongSizes, "head_tells_what_the_whole_shard_tells"),
        (WrongValues, "many_shards_are_read_at_once"),
        (WrongParts, "many_shards_are_read_at_once"),
        (Mirrored, "looking_through_a_file_finds_its_samples"),
    ],
)
def test_a_fault_is_found(format_class, test):
    def run(tested):
        suite = type("Suite", (FormatTests,), {"cls": tested})()
        getattr(suite, f"test_{test}")()

    run(Scannable if issubclass(format_class, Scannable) else MDS)
    with pytest.raises((AssertionError, StreamplugError, pytest.fail.Exception)):
        run(format_class)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_columns_in_the_order_of_a_mapping_are_found(tmp_path, is_sorted):
    source = new_plugin("hex", "format", tmp_path) / "src"
    path = source / "streamplug_hex" / "format.py"
    text = path.read_text()
    in_order = "sorted(columns, key=lambda column: column.name)"
    assert in_order in text
    path.write_text(text if is_sorted else text.replace(in_order, "columns"))
    spec = importlib.util.spec_from_file_location("format_of_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suite = type("Suite", (FormatTests,), {"cls": module.Hex})()
    if is_sorted:
        suite.test_shards_of_one_writer_are_independent()
    else:
        with pytest.raises(StreamplugError):
            suite.test_shards_of_one_writer_are_independent()
