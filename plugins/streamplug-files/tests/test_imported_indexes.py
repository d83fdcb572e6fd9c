"""Copies of imported indexes in caches."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from streamplug_files.index_import import load_imported_index, save_imported_index

from streamplug.cache.staging import remove_stale_files, stage_cache_file

DATA = b'{"chunks": []}'


def test_another_process_does_not_remove_the_imported_index_being_written(tmp_path, monkeypatch):
    @contextmanager
    def stage_and_remove_stale(*arguments):
        with stage_cache_file(*arguments) as part:
            yield part
            remove_stale_files(tmp_path)  # as another process does when it opens the cache

    monkeypatch.setattr("streamplug_files.index_import.stage_cache_file", stage_and_remove_stale)
    for _ in range(2):
        save_imported_index(tmp_path, DATA, DATA + b"\n")
    assert load_imported_index(tmp_path, DATA) == DATA + b"\n"


@pytest.mark.parametrize("suffix", [b"\n\n", b" "], ids=["of another size", "of the same size"])
def test_the_imported_index_of_another_importer_is_replaced(tmp_path, suffix):
    def save(suffix: bytes) -> None:
        save_imported_index(tmp_path, DATA, DATA + suffix)
        assert load_imported_index(tmp_path, DATA) == DATA + suffix

    save(b"\n")
    save(suffix)
    [path] = (path for path in tmp_path.rglob("translated/*"))
    written = path.stat().st_mtime_ns, path.stat().st_ino
    save(suffix)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written  # not written again


def test_an_index_that_was_not_imported_is_itself(tmp_path):
    assert load_imported_index(tmp_path, DATA) is DATA
