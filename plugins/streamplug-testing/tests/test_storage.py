"""Each fault that a storage may have is caught by the conformance tests."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from streamplug_testing.storage import StorageTests

from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import NotFound, StorageError


class Suite(StorageTests):
    secret = "pa55word"

    def __init__(self, root, storage_class):
        self.root, self.storage_class = root, storage_class

    def make_storage(self):
        return self.storage_class(str(self.root), password=self.secret)

    def put_raw(self, key, data):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get_raw(self, key):
        return (self.root / key).read_bytes()


class Short(LocalStorage):
    def read(self, key):
        return super().read(key)[:-1]


class ShortRanges(LocalStorage):
    def read_ranges(self, key, ranges):
        return super().read_ranges(key, [(a, min(b, a + 65_536)) for a, b in ranges])

    def read_range(self, key, start, stop):
        return self.read_ranges(key, [(start, stop)])[0]


class ShortParts(LocalStorage):
    def read_many(self, parts):
        return super().read_many([(key, a, min(b, a + 65_536)) for key, a, b in parts])


class ShortDownload(LocalStorage):
    def download(self, key, path):
        Path(path).write_bytes(self.read(key)[:65_536])


class SharesBuffer(LocalStorage):
    def download(self, key, path):
        self.buffer = self.read(key)
        time.sleep(0.002)
        Path(path).write_bytes(self.buffer)


class SharesRanges(LocalStorage):
    def read_ranges(self, key, ranges):
        self.ranges = super().read_ranges(key, ranges)
        time.sleep(0.002)
        return self.ranges


class SharesWrite(LocalStorage):
    def write(self, key, data):
        self.data = data
        time.sleep(0.002)
        super().write(key, self.data)


class BeyondTheEnd(LocalStorage):
    def read_ranges(self, key, ranges):
        if any(stop > self.stat(key).size for _, stop in ranges):
            raise OSError("416")
        return super().read_ranges(key, ranges)


class OutOfOrder(LocalStorage):
    def read_ranges(self, key, ranges):
        return super().read_ranges(key, sorted(ranges))


class InPlace(LocalStorage):
    def write(self, key, data):
        with Path(self.path(key)).open("wb") as out:
            for start in range(0, len(data), 500_000):
                out.write(data[start : start + 500_000])
                out.flush()
                time.sleep(0.005)


class Unsorted(LocalStorage):
    def list(self, prefix=""):
        return reversed([*super().list(prefix)])


class Flat(LocalStorage):
    def list(self, prefix=""):
        return (o for o in super().list(prefix) if "/" not in o.key)


class Remembers(LocalStorage):
    def list(self, prefix=""):
        self.kept = getattr(self, "kept", None) or [*super().list(prefix)]
        return iter(self.kept)


class Versionless(LocalStorage):
    def stat(self, key):
        return replace(super().stat(key), version="")

    def list(self, prefix=""):
        return (replace(o, version="") for o in super().list(prefix))


class ListsOtherVersions(LocalStorage):
    def list(self, prefix=""):
        return (replace(o, version=f'"{o.version}"') for o in super().list(prefix))


class FirstVersions(LocalStorage):
    def stat(self, key):
        return replace(super().stat(key), version="1")

    def list(self, prefix=""):
        return (replace(o, version="1") for o in super().list(prefix))


class MixesParts(LocalStorage):
    def read_version(self, key, ranges, version=""):
        return self.read_ranges(key, ranges), "1"


class MixesDownload(LocalStorage):
    def download(self, key, path):
        found, end = self.stat(key), time.monotonic() + 60
        with Path(path).open("wb", buffering=0) as file:
            for start in range(0, found.size, 8 << 20):
                file.write(self.read_range(key, start, start + (8 << 20)))
                while self.stat(key).version == found.version and time.monotonic() < end:
                    time.sleep(0.001)


class ForeignError(LocalStorage):
    def stat(self, key):
        try:
            return super().stat(key)
        except NotFound:
            raise KeyError(key) from None


class NamelessError(LocalStorage):
    def read(self, key):
        try:
            return super().read(key)
        except NotFound:
            raise NotFound("no such file") from None


class Talkative(LocalStorage):
    def __repr__(self):
        return f"Talkative({self._options})"


class TalkativeError(LocalStorage):
    def read(self, key):
        try:
            raise ValueError(self._options)
        except ValueError as error:
            raise NotFound(self.url_of(key)) from error


class Unquotes(LocalStorage):
    def path(self, key):
        return super().path(unquote(key))


class UnquotesDeleted(LocalStorage):
    def delete(self, key):
        super().delete(unquote(key))


class UnquotesRanges(LocalStorage):
    def read_ranges(self, key, ranges):
        return super().read_ranges(unquote(key), ranges)


class UnquotesCreated(LocalStorage):
    def create(self, key, data):
        super().create(unquote(key), data)


class DeletesPrefix(LocalStorage):
    def delete(self, key):
        for found in list(self.list(key)):
            super().delete(found.key)


class ClosesOnce(LocalStorage):
    def close(self):
        del self.__dict__["_options"]


class Unpicklable(LocalStorage):
    def __getstate__(self):
        raise TypeError("cannot pickle")


class BoundToItsProcess(LocalStorage):
    pid = os.getpid()

    def read(self, key):
        if os.getpid() != self.pid:
            raise RuntimeError("wrong process")
        return super().read(key)


class MissesWhatIsDeleted(LocalStorage):
    def delete(self, key):
        self.stat(key)
        super().delete(key)


class Escapes(LocalStorage):
    def path(self, key):
        return f"{self._root}/{key}"


class StatEscapes(LocalStorage):
    def stat(self, key):
        return super().stat(key.replace("../", ""))


class DeleteEscapes(LocalStorage):
    def delete(self, key):
        super().delete(key.replace("../", ""))


class TalkativeWrite(LocalStorage):
    def write(self, key, data):
        try:
            super().write(key, data)
        except StorageError as error:
            raise StorageError(f"{error}: {self._options}") from None


class DeletesFirst(LocalStorage):
    def upload(self, path, key):
        self.delete(key)
        super().upload(path, key)


class TalkativeUpload(LocalStorage):
    def upload(self, path, key):
        try:
            super().upload(path, key)
        except NotFound as error:
            raise NotFound(f"{error}: {self._options}") from None


@pytest.mark.parametrize(
    ("storage_class", "test", "arguments"),
    [
        (Short, "test_reads_whole_objects", {"size": 1}),
        (BeyondTheEnd, "test_reads_a_range", {"start": 299_999, "stop": 300_060}),
        (ShortRanges, "test_reads_a_range", {"start": 9_999, "stop": 299_999}),
        (ShortRanges, "test_reads_many_ranges_in_their_order", {}),
        (ShortParts, "test_reads_parts_of_several_objects", {}),
        (ShortDownload, "test_downloads", {"tmp_path": ""}),
        (SharesBuffer, "test_serves_many_threads", {"tmp_path": ""}),
        (SharesRanges, "test_serves_many_threads", {"tmp_path": ""}),
        (SharesWrite, "test_writes_from_many_threads", {}),
        (OutOfOrder, "test_reads_many_ranges_in_their_order", {}),
        (InPlace, "test_readers_see_the_old_or_the_new", {"way": "write", "tmp_path": ""}),
        (Unsorted, "test_lists_sorted_at_any_depth", {}),
        (Flat, "test_lists_sorted_at_any_depth", {}),
        (Remembers, "test_sees_what_others_changed", {}),
        (Versionless, "test_rewriting_changes_the_version", {}),
        (Versionless, "test_parts_are_of_one_version", {}),
        (MixesParts, "test_parts_are_of_one_version", {}),
        (MixesDownload, "test_a_download_is_of_one_version", {"tmp_path": ""}),
        (ListsOtherVersions, "test_rewriting_changes_the_version", {}),
        (FirstVersions, "test_rewriting_changes_the_version", {}),
        (
            ForeignError,
            "test_what_is_missing_is_not_found",
            {"operation": "stat", "key": "gone", "tmp_path": ""},
        ),
        (
            NamelessError,
            "test_what_is_missing_is_not_found",
            {"operation": "read", "key": "gone", "tmp_path": ""},
        ),
        (Talkative, "test_shows_no_secrets", {"tmp_path": ""}),
        (TalkativeError, "test_shows_no_secrets", {"tmp_path": ""}),
        (Unquotes, "test_takes_keys_as_they_are", {"key": "%20", "tmp_path": ""}),
        (UnquotesRanges, "test_takes_keys_as_they_are", {"key": "%20", "tmp_path": ""}),
        (UnquotesDeleted, "test_writes_keys_as_they_are", {"key": "%20", "tmp_path": ""}),
        (UnquotesCreated, "test_writes_keys_as_they_are", {"key": "%20", "tmp_path": ""}),
        (DeletesPrefix, "test_writes_keys_as_they_are", {"key": "a b", "tmp_path": ""}),
        (ClosesOnce, "test_closes_twice_and_opens_again", {}),
        (Unpicklable, "test_pickles", {}),
        (BoundToItsProcess, "test_works_in_a_forked_child", {}),
        (MissesWhatIsDeleted, "test_deletes", {}),
        (Escapes, "test_writes_nothing_outside", {"key": "a/../../x", "tmp_path": ""}),
        (StatEscapes, "test_reads_nothing_outside", {"key": "../x", "tmp_path": ""}),
        (DeleteEscapes, "test_writes_nothing_outside", {"key": "../x", "tmp_path": ""}),
        (DeletesFirst, "test_a_missing_source_is_not_found", {"tmp_path": ""}),
        (TalkativeWrite, "test_shows_no_secrets", {"tmp_path": ""}),
        (TalkativeUpload, "test_shows_no_secrets", {"tmp_path": ""}),
    ],
)
def test_a_fault_is_caught(tmp_path, storage_class, test, arguments):
    arguments = {k: tmp_path if k == "tmp_path" else v for k, v in arguments.items()}

    def run(tested, name):
        (tmp_path / name).mkdir()
        suite = Suite(tmp_path / name / "set", tested)
        suite.root.mkdir()
        getattr(suite, test)(suite.make_storage(), **arguments)

    run(LocalStorage, "good")
    with pytest.raises((Exception, pytest.fail.Exception)):
        run(storage_class, "bad")
