from __future__ import annotations

import http.server
import pickle
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar

import pytest
from streamplug_databricks.storage import DatabricksStorage

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage
from streamplug.testing.storage import StorageTests


class Conformance(StorageTests):
    secret = "dapi-letmein"

    def make_storage(self):
        return DatabricksStorage(f"dbfs:{self.folder}/some/set", **self.service.options)

    def put_raw(self, key, data):
        self.service.raw("PUT", f"{self.folder}/some/set/{key}", data)

    def get_raw(self, key):
        return self.service.raw("GET", f"{self.folder}/some/set/{key}")


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
    service.raw("PUT", f"{volume}/k", b"data")
    storage = open_storage(spelling.format(volume), service.options)
    assert type(storage) is DatabricksStorage
    assert storage.read("k") == b"data"
    assert [(o.key, o.size) for o in storage.list()] == [("k", 4)]


def test_a_volume_is_written_where_no_folder_is(service, volume, tmp_path):
    storage = DatabricksStorage(f"dbfs:{volume}", **service.options)
    (tmp_path / "source").write_bytes(b"data")
    storage.upload(tmp_path / "source", "a/b/c")
    assert service.raw("GET", f"{volume}/a/b/c") == b"data"


def test_what_is_being_written_to_dbfs_is_no_object(service, folder):
    service.raw("PUT", f"{folder}/.streamplug-0123", b"half of")
    storage = DatabricksStorage(f"dbfs:{folder}", **service.options)
    storage.write("k", b"x" * 3_000_000)
    assert [(o.key, o.size) for o in storage.list()] == [("k", 3_000_000)]


def test_the_root_of_dbfs_is_a_location(service, folder):
    service.raw("PUT", f"{folder}/k", b"data")
    storage = DatabricksStorage("dbfs:/", **service.options)
    assert storage.read(f"{folder[1:]}/k") == b"data"
    assert [o.key for o in storage.list(f"{folder[1:]}/")] == [f"{folder[1:]}/k"]


# -- credentials --------------------------------------------------------------


def test_host_and_token_may_come_from_the_environment(service, volume, monkeypatch):
    service.raw("PUT", f"{volume}/k", b"data")
    monkeypatch.setenv("DATABRICKS_HOST", service.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-letmein")
    assert DatabricksStorage(f"dbfs:{volume}").read("k") == b"data"


def test_a_profile_is_taken(service, volume, tmp_path):
    service.raw("PUT", f"{volume}/k", b"data")
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
    service.raw("PUT", f"{volume}/k", b"data")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password other\n")
    assert DatabricksStorage(f"dbfs:{volume}", **service.options).read("k") == b"data"


# -- what goes over the wire --------------------------------------------------


class Recorder:
    """A server that answers each request with `status` and `body`."""

    def __init__(self, url):
        self.url = url
        self.requests = []
        self.status, self.body, self.wait, self.missing = 200, b"data", 0.0, 0


@contextmanager
def serving():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            recorder.requests.append(self)
            time.sleep(recorder.wait)
            if recorder.status == 0:
                self.close_connection = True
                return
            self.send_response(recorder.status)
            self.send_header("Content-Length", str(len(recorder.body) + recorder.missing))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(recorder.body)

        do_GET = do_HEAD = do_PUT = answer

        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request, client_address):
            pass  # a client that gives up is what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    recorder = Recorder(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def recorder():
    with serving() as recorder:
        yield recorder


@pytest.fixture
def recorded(recorder):
    url = "dbfs:/Volumes/c/s/v/set"
    storage = DatabricksStorage(url, host=recorder.url, token="t", read_timeout=0.5)
    yield storage
    storage.close()


def test_a_whole_read_is_one_request(recorder, recorded):
    assert recorded.read("k") == b"data"
    assert [(r.command, r.path) for r in recorder.requests] == [
        ("GET", "/api/2.0/fs/files/Volumes/c/s/v/set/k")
    ]


def test_a_server_that_knows_no_ranges_is_understood(recorder, recorded):
    assert recorded.read_ranges("k", [(1, 3), (0, 9), (9, 12)]) == [b"at", b"data", b""]


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (404, NotFound),
        (401, AccessDenied),
        (403, AccessDenied),
        (429, Transient),
        (500, Transient),
        (503, Transient),
        (400, StorageError),
    ],
)
def test_answers_become_our_errors(recorder, recorded, status, wanted, tmp_path):
    recorder.status, recorder.body = status, b'{"message": "signature feedbeef"}'
    for operation in (
        lambda: recorded.read("k"),
        lambda: recorded.read_range("k", 0, 5),
        lambda: recorded.download("k", tmp_path / "target"),
        lambda: recorded.write("k", b"x"),
        lambda: recorded.stat("k"),
    ):
        with pytest.raises(StorageError, match="dbfs:/Volumes/c/s/v/set/k") as caught:
            operation()
        assert type(caught.value) is wanted
        assert "feedbeef" not in "".join(traceback.format_exception(caught.value))


def test_connections_that_break_are_transient(recorder, recorded):
    recorder.status = 0
    with pytest.raises(Transient, match="dbfs:/Volumes/c/s/v/set/k"):
        recorded.read("k")


def test_a_body_that_ends_early_is_transient(recorder, recorded, tmp_path):
    recorder.missing = 10
    for operation in (
        lambda: recorded.read("k"),
        lambda: recorded.read_ranges("k", [(0, 14), (3, 9)]),
        lambda: recorded.download("k", tmp_path / "target"),
    ):
        with pytest.raises(Transient, match="dbfs:/Volumes/c/s/v/set/k"):
            operation()


def test_a_server_that_stalls_is_transient(recorder, recorded):
    recorder.wait = 1.0
    with pytest.raises(Transient, match="dbfs:/Volumes/c/s/v/set/k"):
        recorded.read("k")


def test_a_connection_that_is_refused_is_transient():
    with serving() as gone:
        url = gone.url
    with pytest.raises(Transient, match="dbfs:/mnt/k"):
        DatabricksStorage("dbfs:/mnt", host=url, token="t").read("k")


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
    assert "letmein" not in f"{storage!r} {storage._workspace!r}"
