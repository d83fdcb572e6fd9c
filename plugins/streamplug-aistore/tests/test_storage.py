from __future__ import annotations

import http.server
import pickle
import threading
import time
import traceback
from contextlib import contextmanager

import pytest
from streamplug_aistore.storage import AistoreStorage

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage
from streamplug.testing.storage import StorageTests


class TestAistore(StorageTests):
    secret = "letmein"

    @pytest.fixture(autouse=True)
    def location(self, service, bucket):
        self.service, self.bucket = service, bucket

    def make_storage(self):
        url = f"ais://{self.bucket}/some/set"
        return AistoreStorage(url, token=self.secret, **self.service.options)

    def put_raw(self, key, data):
        self.service.raw("PUT", self.bucket, f"some/set/{key}", data)

    def get_raw(self, key):
        return self.service.raw("GET", self.bucket, f"some/set/{key}")


def test_is_found_by_its_scheme(service, bucket, monkeypatch):
    service.raw("PUT", bucket, "k", b"data")
    monkeypatch.setenv("AIS_ENDPOINT", service.url)
    storage = open_storage(f"ais://{bucket}")
    assert type(storage) is AistoreStorage
    assert storage.read("k") == b"data"
    assert [(o.key, o.size) for o in storage.list()] == [("k", 4)]


def test_a_neighbour_with_the_same_start_is_not_listed(service, bucket):
    for key in ("set/1", "set2/1", "set"):
        service.raw("PUT", bucket, key, b"")
    storage = AistoreStorage(f"ais://{bucket}/set", **service.options)
    assert [o.key for o in storage.list()] == ["1"]


def test_a_missing_bucket_is_not_found(service):
    storage = AistoreStorage("ais://no-such-bucket/set", **service.options)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.stat("k"),
        lambda: list(storage.list()),
        lambda: storage.write("k", b"x"),
    ):
        with pytest.raises(NotFound, match="ais://no-such-bucket/set"):
            operation()


def test_a_wrong_token_is_denied(service, bucket):
    storage = AistoreStorage(f"ais://{bucket}", token="feedbeef", **service.options)
    for operation in (lambda: storage.read("k"), lambda: list(storage.list())):
        with pytest.raises(AccessDenied) as caught:
            operation()
        assert "feedbeef" not in str(caught.value)


def test_without_endpoint_the_ways_to_give_it_are_told():
    with pytest.raises(ConfigError, match="set AIS_ENDPOINT"):
        AistoreStorage("ais://b").read("k")


def test_a_url_without_bucket_is_refused():
    with pytest.raises(ConfigError, match="names no bucket"):
        AistoreStorage("ais:///x")


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
    storage = AistoreStorage("ais://b/set", endpoint_url=recorder.url, read_timeout=0.5)
    yield storage
    storage.close()


def test_a_whole_read_is_one_request(recorder, recorded):
    assert recorded.read("k") == b"data"
    assert [(r.command, r.path) for r in recorder.requests] == [
        ("GET", "/v1/objects/b/set/k?provider=ais")
    ]


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
        with pytest.raises(StorageError, match="ais://b/set/k") as caught:
            operation()
        assert type(caught.value) is wanted
        assert "feedbeef" not in "".join(traceback.format_exception(caught.value))


def test_connections_that_break_are_transient(recorder, recorded):
    recorder.status = 0
    with pytest.raises(Transient, match="ais://b/set/k"):
        recorded.read("k")


def test_a_body_that_ends_early_is_transient(recorder, recorded, tmp_path):
    recorder.missing = 10
    for operation in (
        lambda: recorded.read("k"),
        lambda: recorded.read_ranges("k", [(0, 14), (3, 9)]),
        lambda: recorded.download("k", tmp_path / "target"),
    ):
        with pytest.raises(Transient, match="ais://b/set/k"):
            operation()


def test_a_server_that_stalls_is_transient(recorder, recorded):
    recorder.wait = 1.0
    with pytest.raises(Transient, match="ais://b/set/k"):
        recorded.read("k")


def test_a_connection_that_is_refused_is_transient():
    with serving() as gone:
        url = gone.url
    with pytest.raises(Transient, match="ais://b/k"):
        AistoreStorage("ais://b", endpoint_url=url).read("k")


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpont_url": "x"}, r"no option 'endpont_url'. Did you mean 'endpoint_url'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: ca_cert, connect_timeout, "),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"token": 5}, "'token' must be str, not int"),
        ({"endpoint_url": "ais"}, "must start with http:// or https://"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        AistoreStorage("ais://b/a", **options)


def test_an_open_storage_pickles(service, bucket):
    storage = AistoreStorage(f"ais://{bucket}", **service.options)
    storage.write("k", b"x")
    assert pickle.loads(pickle.dumps(storage)).read("k") == b"x"
