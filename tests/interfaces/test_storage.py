from __future__ import annotations

import gc
import multiprocessing
import weakref

import pytest

from streamplug.builtin.storages.any import AnyFsspec
from streamplug.builtin.storages.http import Http
from streamplug.interfaces.storage import public_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("https://me:secret@host/a", "https://host/a"),
        ("https://token@host/a", "https://host/a"),
        ("sftp://me:s@cret@host:22/a", "sftp://host:22/a"),
        ("https://host/a?sig=secret#x", "https://host/a"),
        ("simplecache::https://me:secret@host/a?t=1", "simplecache::https://host/a"),
        ("https://host/a@b", "https://host/a@b"),
        ("abfs://container@account.dfs/a", "abfs://container@account.dfs/a"),
        ("oci://bucket@space/a", "oci://bucket@space/a"),
        ("abfs://me:secret@account/a", "abfs://account/a"),
        ("/data/what?/a@b", "/data/what?/a@b"),
    ],
)
def test_public_url_hides_credentials(url, shown):
    assert public_url(url) == shown


@pytest.mark.parametrize(
    ("url", "key", "shown"),
    [
        ("s3://bucket/a/", "k", "s3://bucket/a/k"),
        ("s3://bucket/a", "", "s3://bucket/a"),
        ("/", "k", "/k"),
        ("/data//", "k", "/data/k"),
        ("https://host/a?sig=secret", "k?", "https://host/a/k?"),
    ],
)
def test_url_of_an_object(url, key, shown):
    assert AnyFsspec(url).url_of(key) == shown


def test_a_fork_does_not_close_what_its_parent_has_dropped():
    context = multiprocessing.get_context("fork")
    storage = Http("http://127.0.0.1:9/")
    made = weakref.ref(storage.filesystem())
    gc.disable()  # it refers to itself, so that only the collector ends it
    try:
        del storage
        assert made() is not None
        here, there = context.Pipe()
        child = context.Process(target=lambda: there.send((gc.collect(), made() is not None)))
        child.start()
        assert here.poll(60)
        assert here.recv()[1]
        child.join(60)
    finally:
        gc.enable()
    gc.collect()
    assert made() is None
