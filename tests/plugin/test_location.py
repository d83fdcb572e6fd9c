from __future__ import annotations

import os
from pathlib import Path

import pytest
from streamplug_testing.isolation import isolated_plugins

from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import ConfigError, UnknownNameError
from streamplug.interfaces import Storage
from streamplug.plugin import Provider, open_storage
from streamplug.plugin.location import is_url, join, local_path


class Far(LocalStorage):
    def __init__(self, url, **options):
        Storage.__init__(self, url, **options)


class Quick(Far):
    pass


class General(Far):
    @classmethod
    def supports_scheme(cls, scheme):
        return scheme in {"ftp", "simplecache", "s3"}


@pytest.fixture(autouse=True)
def no_plugins():
    with isolated_plugins(
        Provider("storage", "far", f"{__name__}:Far"),
        Provider("storage", "quick+far", f"{__name__}:Quick"),
        Provider("storage", "*", f"{__name__}:General"),
    ):
        yield


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/set", "/data/set"),
        ("data/set", "data/set"),
        *((url, "/data/set") for url in ("file:///data/set", "FILE:///data/set", "file:/data/set")),
        *((url, "/data/set") for url in ("local:///data/set", "local:/data/set")),
        ("/data/a:b", "/data/a:b"),
        ("/data/run::1/set", "/data/run::1/set"),
        ("file:///data/run::1", "/data/run::1"),
        ("run::1/set", "run::1/set"),
        ("s3://bucket/set", None),
        ("acme:s3://bucket/set", None),
        ("dbfs:/set", None),
        ("simplecache::s3://bucket", None),
        ("simplecache::/set", None),
    ],
)
def test_which_locations_are_local(location, path):
    found = local_path(location)
    assert (found and str(found)) == path
    assert is_url(location) == (path is None or location[:1] in "fFl")


def test_a_local_path_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert local_path("~/set") == Path("/home/me/set")


@pytest.mark.parametrize(
    "location", ["a\0b", "file:///a\0b", "\ud800", "~\0x", "~\ud800/x", "~no-such-user/x"]
)
def test_what_no_file_can_be_called_is_refused(location):
    with pytest.raises(ConfigError, match="no file can have such a path"):
        local_path(location)


def test_a_name_that_is_not_utf8_is_a_path():
    assert local_path(os.fsdecode(b"/a/\xff")) == Path(os.fsdecode(b"/a/\xff"))


def test_join():
    assert join("s3://bucket/", "a", "", "b") == "s3://bucket/a/b"
    assert join("s3://bucket/what?", "a") == "s3://bucket/what?/a"


@pytest.mark.parametrize("client", ["", "obstore:", "obstore+"])
def test_join_keeps_the_query_of_an_http_url_behind_its_path(client):
    url = f"{client}https://host/set"
    assert join(f"{url}?token=a/b", "train") == f"{url}/train?token=a/b"
    assert join(f"{url}/?token=a", "") == f"{url}?token=a"


@pytest.mark.parametrize(
    ("location", "storage_class", "url"),
    [
        ("/data/set", LocalStorage, "/data/set"),
        ("file:///data/set", LocalStorage, "/data/set"),
        ("FAR://set", Far, "far://set"),
        ("ftp://host/set", General, "ftp://host/set"),
        ("simplecache::file:///set", General, "simplecache::file:///set"),
        ("simplecache::/set", General, "simplecache::/set"),
        ("far://host/set", Far, "far://host/set"),
        ("test:far://host/set", Far, "far://host/set"),
        ("quick+far://host/set", Quick, "quick+far://host/set"),
        ("quick:far://host/set", Quick, "far://host/set"),
        ("QUICK:far://host/set", Quick, "far://host/set"),
    ],
)
def test_the_scheme_chooses_the_storage(location, storage_class, url):
    storage = open_storage(location, {"option": 1})
    assert (type(storage), storage.url) == (storage_class, url)


def test_a_relative_path_is_that_of_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_storage("set").url == str(tmp_path / "set")


def test_options_reach_the_storage():
    assert open_storage("far://h", {"a": 1})._options == {"a": 1}


@pytest.mark.parametrize("location", ["nowhere://x", "other:far://x"])
def test_a_scheme_that_nothing_provides(location):
    with pytest.raises(UnknownNameError, match="unknown storage"):
        open_storage(location)


@pytest.mark.parametrize("location", ["obstore:s3://bucket/set", "obstore+s3://bucket/set"])
def test_a_client_that_is_not_installed_is_named(location):
    with pytest.raises(UnknownNameError, match="pip install streamplug-obstore"):
        open_storage(location)


@pytest.mark.parametrize(
    ("location", "install"),
    [
        ("ftp://host/set", "streamplug-fsspec"),
        ("simplecache::s3://bucket/set", "streamplug-fsspec"),
        ("memory://set", "streamplug-fsspec"),
        ("https://host/set", "streamplug-fsspec"),
    ],
)
def test_what_other_schemes_need_is_named(location, install):
    with isolated_plugins(), pytest.raises(UnknownNameError, match="unknown storage") as caught:
        open_storage(location)
    assert f"pip install {install}" in str(caught.value)


def test_a_plugin_of_ours_is_not_replaced_by_the_bare_client():
    with pytest.raises(UnknownNameError, match="streamplug-s3fs"):
        open_storage("s3://bucket/set")
