from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from streamplug_databricks.dbfs import Dbfs
from streamplug_databricks.storage import DatabricksStorage
from streamplug_testing.answers import AnswerTests
from streamplug_testing.storage import StorageTests

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage
from streamplug.plugin_kit.cancellation import OversizeError, Scope, inside


class Conformance(StorageTests):
    many = 250
    secret = "dapi-letmein"

    def make_storage(self):
        return DatabricksStorage(f"dbfs:{self.folder}/some/set", **self.service.options)

    def put_raw(self, key, data):
        self.service.raw("PUT", self.folder, f"some/set/{key}", data)

    def get_raw(self, key):
        return self.service.raw("GET", self.folder, f"some/set/{key}")


class TestVolumes(Conformance):
    @pytest.fixture(autouse=True)
    def location(self, service, volume):
        self.service, self.folder = service, volume


class TestDbfs(Conformance):
    deviations: ClassVar = {
        "test_readers_see_the_old_or_the_new": "while a file is replaced, there is none"
    }

    @pytest.fixture(autouse=True)
    def location(self, service, folder):
        self.service, self.folder = service, folder

    def test_readers_see_the_old_or_the_new(self, storage):
        contents = [b"a" * 2_000_000, b"b" * 1_500_000]
        storage.write("k", contents[0])
        done = threading.Event()

        def write():
            for turn in range(8):
                storage.write("k", contents[turn % 2])
            done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not done.is_set() and not writing.done():
                # One call per range: no replacement comes between.
                for start in (0, 1_400_000):
                    try:
                        found = storage.read_range("k", start, start + 1000)
                    except NotFound:
                        continue
                    assert found in (b"a" * 1000, b"b" * 1000)
            writing.result()
        assert storage.read("k") in contents


del Conformance


@pytest.mark.parametrize("spelling", ["dbfs:{}", "dbfs:/{}", "dbfs://{}", "dbfs:{}/"])
def test_is_found_by_its_scheme(service, volume, spelling):
    service.raw("PUT", volume, "k", b"data")
    storage = open_storage(spelling.format(volume), service.options)
    assert type(storage) is DatabricksStorage
    assert storage.read("k") == b"data"
    assert [(o.key, o.size) for o in storage.list()] == [("k", 4)]


def test_a_volume_is_written_where_no_folder_is(service, volume, tmp_path):
    storage = DatabricksStorage(f"dbfs:{volume}", **service.options)
    (tmp_path / "source").write_bytes(b"data")
    storage.upload(tmp_path / "source", "a/b/c")
    assert service.raw("GET", volume, "a/b/c") == b"data"


def test_what_is_being_written_to_dbfs_is_no_object(service, folder):
    service.raw("PUT", folder, ".streamplug-0123", b"half of")
    storage = DatabricksStorage(f"dbfs:{folder}", **service.options)
    storage.write("k", b"x" * 3_000_000)
    assert [(o.key, o.size) for o in storage.list()] == [("k", 3_000_000)]


@pytest.mark.parametrize("failures", [1, 2])
def test_a_file_of_dbfs_survives_when_its_replacement_fails(service, folder, monkeypatch, failures):
    storage = DatabricksStorage(f"dbfs:{folder}", **service.options)
    storage.write("k", b"old")
    moves = []
    call = Dbfs._call

    def fail(self, method, operation, **request):
        if operation == "move":
            moves.append(request["json"])
            if 1 < len(moves) < 2 + failures:  # the file has been moved aside
                raise ConnectionError
        return call(self, method, operation, **request)

    monkeypatch.setattr(Dbfs, "_call", fail)
    with pytest.raises(Transient, match=f"dbfs:{folder}/k: ") as caught:
        storage.write("k", b"new")
    if failures == 1:
        assert storage.read("k") == b"old"
        assert [found[:2] for found in storage.client().walk(folder)] == [(f"{folder}/k", 3)]
    else:
        old = moves[0]["destination_path"]
        assert f"its old content may be in dbfs:{old}" in str(caught.value)
        assert storage.client().read(old) == b"old"
    storage.write("k", b"new")
    assert storage.read("k") == b"new"


def test_a_folder_of_dbfs_is_not_replaced(service, folder):
    service.raw("PUT", folder, "k/there", b"x")
    storage = DatabricksStorage(f"dbfs:{folder}", **service.options)
    with pytest.raises(StorageError, match="there is a directory of this name"):
        storage.write("k", b"new")
    assert [o.key for o in storage.list()] == ["k/there"]


def test_the_root_of_dbfs_is_a_location(service, folder):
    service.raw("PUT", folder, "k", b"data")
    storage = DatabricksStorage("dbfs:/", **service.options)
    assert storage.read(f"{folder[1:]}/k") == b"data"
    assert [o.key for o in storage.list(f"{folder[1:]}/")] == [f"{folder[1:]}/k"]


# -- credentials --------------------------------------------------------------


def test_host_and_token_may_come_from_the_environment(service, volume, monkeypatch):
    service.raw("PUT", volume, "k", b"data")
    monkeypatch.setenv("DATABRICKS_HOST", service.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-letmein")
    assert DatabricksStorage(f"dbfs:{volume}").read("k") == b"data"


def test_a_profile_is_taken(service, volume, tmp_path):
    service.raw("PUT", volume, "k", b"data")
    (tmp_path / ".databrickscfg").write_text(
        f"[team]\nhost = {service.url}\ntoken = dapi-letmein\n"
    )
    assert DatabricksStorage(f"dbfs:{volume}", profile="team").read("k") == b"data"


def test_without_credentials_the_ways_to_give_them_are_told(volume, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no command line tools to ask
    with pytest.raises(AccessDenied, match=f"no usable credentials for dbfs:{volume}/k; set"):
        DatabricksStorage(f"dbfs:{volume}", auth_type="pat").read("k")


def test_a_wrong_token_is_denied(service, volume):
    storage = DatabricksStorage(f"dbfs:{volume}", host=service.url, token="feedbeef")
    for operation in (lambda: storage.read("k"), lambda: list(storage.list())):
        with pytest.raises(AccessDenied, match="no permission for dbfs:") as caught:
            operation()
        assert "feedbeef" not in str(caught.value)


def test_a_netrc_is_not_used(service, volume, tmp_path):
    service.raw("PUT", volume, "k", b"data")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password other\n")
    assert DatabricksStorage(f"dbfs:{volume}", **service.options).read("k") == b"data"


# -- what goes over the wire --------------------------------------------------


class TestVolumesAnswers(AnswerTests):
    location = "dbfs:/Volumes/c/s/v/set"
    first_request = ("GET", "/api/2.0/fs/files/Volumes/c/s/v/set/k")

    def test_a_download_of_more_than_was_asked_for_ends(self, storage, tmp_path):
        scope = Scope()
        scope.max_bytes = 2
        with inside(scope), pytest.raises(OversizeError):
            storage.download("k", tmp_path / "k")

    def make_storage(self, url, **options):
        return DatabricksStorage(self.location, host=url, token="t", **options)


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hots": "x"}, r"no option 'hots'. Did you mean 'host'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: auth_type, client_id, "),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"token": 5}, "'token' must be str, not int"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        DatabricksStorage("dbfs:/mnt", **options)


@pytest.mark.parametrize("url", ["dbfs:/Volumes", "dbfs:/Volumes/c/s", "dbfs:/Volumes/c//v/x"])
def test_a_url_without_volume_is_refused(url):
    with pytest.raises(ConfigError, match="names no volume; write dbfs:/Volumes/CATALOG"):
        DatabricksStorage(url)


def test_an_open_storage_pickles_and_shows_no_token(service, volume):
    storage = DatabricksStorage(f"dbfs:{volume}", **service.options)
    storage.write("k", b"x")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.read("k") == b"x"
    assert "letmein" not in f"{storage!r} {storage.client()!r}"


def test_workspaces_are_told_apart(monkeypatch, tmp_path):
    assert DatabricksStorage("dbfs:/set").endpoint == ""
    named = tmp_path / "databrickscfg"
    named.write_text("[DEFAULT]\nhost = https://a.example\n[mine]\nhost = b.example/\ntoken = %x\n")
    profile = {"config_file": str(named), "profile": "mine"}
    assert DatabricksStorage("dbfs:/set", **profile).endpoint == "https://b.example"
    missing = {"config_file": str(tmp_path), "profile": "mine"}
    assert DatabricksStorage("dbfs:/set", **missing).endpoint == ""
    monkeypatch.setenv("DATABRICKS_HOST", "https://c.example")
    assert DatabricksStorage("dbfs:/set", **profile).endpoint == "https://c.example"
    assert DatabricksStorage("dbfs:/set", host="d.example").endpoint == "https://d.example"
