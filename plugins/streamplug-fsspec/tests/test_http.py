from __future__ import annotations

import asyncio
import base64
import errno
import http.server
import os
import pickle
import re
import socketserver
import threading
import time
from contextlib import contextmanager, suppress
from typing import ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from streamplug_fsspec import HttpStorage
from streamplug_fsspec import event_loop as loops
from streamplug_fsspec.directory_page import links_below
from streamplug_testing.body_server import check_ranges_are_bounded, endless_server
from streamplug_testing.http import serving
from streamplug_testing.multi_range import read_parts_or_raise
from streamplug_testing.storage import READS, StorageTests

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage
from streamplug.plugin_kit.cancellation import Cancelled
from streamplug.transfer.pool import ThreadPool


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, with ranges, as a real server does."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.seen.append((self.command, self.path, self.headers))
        status = 503 if self.path.rstrip("/") == self.server.fails else self.server.status
        if status:
            self.send_error(status)
            return
        path = self.file()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if path.is_file():
            self.send_part(path.read_bytes(), wanted)
        else:
            super().do_GET() if self.command == "GET" else super().do_HEAD()

    do_HEAD = do_GET

    def send_part(self, data, wanted):
        if wanted and self.server.ranges:
            start, stop = int(wanted[1]), int(wanted[2]) + 1
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            data = data[start:stop]
        else:
            self.send_response(200)
        if self.path.endswith(".gz"):
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", self.date_time_string(self.file().stat().st_mtime))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def file(self):
        return self.server.root / unquote(urlsplit(self.path).path).lstrip("/")

    def translate_path(self, path):
        return str(self.file()) + ("/" if path.endswith("/") else "")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = (
        128  # more than the 5 of the base: clients that find it full try again after 1 s
    )

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.seen, self.status, self.ranges = root, [], 0, True
        self.fails = None
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("www"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class TestHttp(StorageTests):
    secret = "pa55word"
    many = 50  # one request each: their sizes are not in the listing
    deviations: ClassVar = {
        "test_what_is_missing_is_not_found": "the page of a directory is an object too",
        "test_exists": "the page of a directory is an object too",
        **dict.fromkeys(
            (
                "test_a_missing_source_is_not_found",
                "test_deletes",
                "test_readers_see_the_old_or_the_new",
                "test_replaces_by_something_shorter",
                "test_writes_and_uploads",
                "test_writes_any_buffer",
                "test_writes_from_many_threads",
                "test_writes_keys_as_they_are",
                "test_writes_nothing_outside",
            ),
            "only for reading",
        ),
    }

    @pytest.fixture(autouse=True)
    def location(self, server):
        self.server = server

    def make_storage(self):
        url = self.server.url.replace("//", f"//me:{self.secret}@")
        return HttpStorage(f"{url}/some/set")

    def put_raw(self, key, data):
        path = self.server.root / "some" / "set" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    @pytest.mark.parametrize("operation", READS)
    def test_what_is_missing_is_not_found(self, storage, tmp_path, operation):
        with pytest.raises(NotFound, match="/some/set/gone does not exist"):
            READS[operation](storage, "gone", tmp_path / "target")

    def test_exists(self, storage):
        self.put_raw("a/b", b"")
        assert storage.exists("a/b")
        assert not storage.exists("a/c")


def test_is_only_for_reading(server, tmp_path):
    (server.root / "k").write_bytes(b"data")
    (tmp_path / "source").write_bytes(b"new")
    storage = HttpStorage(server.url)
    for operation in (
        lambda: storage.write("k", b"new"),
        lambda: storage.upload(tmp_path / "source", "k"),
        lambda: storage.delete("k"),
    ):
        with pytest.raises(StorageError, match="/k: storage over HTTP is only for reading"):
            operation()
    assert (server.root / "k").read_bytes() == b"data"


def test_is_found_by_its_scheme(server):
    (server.root / "k").write_bytes(b"data")
    storage = open_storage(server.url)
    assert type(storage) is HttpStorage
    assert storage.read("k") == b"data"


def test_double_colons_are_a_part_of_the_url(server):
    (server.root / "a::b").mkdir()
    (server.root / "a").mkdir()
    (server.root / "a::b" / "k").write_bytes(b"data")
    (server.root / "a" / "k").write_bytes(b"other")
    storage = HttpStorage(f"{server.url}/a::b")
    assert storage.read("k") == b"data"
    assert [info.key for info in storage.list()] == ["k"]
    assert HttpStorage("http://[::1]:8000/set").path("k") == "http://[::1]:8000/set/k"


def test_a_query_goes_with_every_request_and_is_not_shown(server, tmp_path):
    (server.root / "a").mkdir()
    (server.root / "a" / "k").write_bytes(b"data")
    storage = HttpStorage(f"{server.url}/a?sig=s%2Bcret&v=1")
    assert storage.read("k") == b"data"
    assert storage.read_range("k", 1, 3) == b"at"
    assert storage.stat("k").size == 4
    storage.download("k", tmp_path / "k")
    assert {path for _, path, _ in server.seen} == {"/a/k?sig=s%2Bcret&v=1"}
    with pytest.raises(
        NotFound, match=r"^http://127.0.0.1:\d+/a/gone does not exist; check the URL, "
    ):
        storage.read("gone")
    with pytest.raises(StorageError, match="/a: a URL with a query cannot be listed"):
        storage.list()


def test_a_server_without_ranges_still_gives_the_right_bytes(server):
    server.ranges = False
    (server.root / "k").write_bytes(b"0123456789")
    storage = HttpStorage(server.url)
    assert storage.read_range("k", 2, 5) == b"234"
    assert storage.read_range("k", 5, 15) == b"56789"
    assert storage.read_range("k", 20, 30) == b""
    assert storage.read_ranges("k", [(8, 9), (0, 1), (4, 4)]) == [b"8", b"0", b""]


def test_of_a_server_without_ranges_each_file_is_fetched_once(server):
    server.ranges = False
    for key in "kl":
        (server.root / key).write_bytes(b"0123456789")
    storage = HttpStorage(server.url)
    parts = [("k", 0, 2), ("l", 8, 12), ("k", 5, 6), ("l", 1, 2), ("k", 20, 30)]
    assert read_parts_or_raise(storage, *parts) == [b"01", b"89", b"5", b"1", b""]
    whole = [path for _, path, headers in server.seen if "Range" not in headers]
    assert whole == ["/k", "/l"]


@pytest.mark.parametrize(("status", "wanted"), [(404, NotFound), (503, Transient)])
def test_a_request_that_fails_does_not_tell_whether_there_are_ranges(server, status, wanted):
    server.ranges, server.status = False, status
    (server.root / "k").write_bytes(b"0123")
    storage = HttpStorage(server.url)
    with pytest.raises(wanted, match="/k"):
        storage.serves_ranges("k")
    server.status = 0
    assert not storage.serves_ranges("k")


def test_an_empty_file_tells_that_there_are_ranges(server):
    (server.root / "k").write_bytes(b"")
    assert HttpStorage(server.url).serves_ranges("k")


@pytest.mark.parametrize(
    "read",
    [
        lambda storage: storage.read_range("k", 1, 2),
        lambda storage: storage.read_many([("k", 1, 2)])[0],
    ],
)
def test_it_is_noticed_when_a_server_begins_to_ignore_ranges(server, read):
    (server.root / "k").write_bytes(b"0123")
    storage = HttpStorage(server.url)
    assert storage.serves_ranges("k")
    server.ranges = False
    assert read(storage) == b"1"
    assert not storage.serves_ranges("k")


def test_a_password_is_sent_but_not_logged(server, caplog):
    (server.root / "k").write_bytes(b"0123")
    caplog.set_level("DEBUG")
    storage = HttpStorage(server.url.replace("://", "://me:hunter%402@"))
    assert storage.read_range("k", 1, 3) == b"12"
    assert storage.read("k") == b"0123"
    assert storage.stat("k").size == 4
    assert [info.key for info in storage.list()] == ["k"]
    sent = {headers["Authorization"] for _, _, headers in server.seen}
    assert sent == {"Basic " + base64.b64encode(b"me:hunter@2").decode()}
    storage.filesystem().ls(storage.path(""))
    assert server.url in caplog.text  # the client does log
    assert "hunter" not in caplog.text


def test_a_login_of_netrc_is_sent(server, tmp_path, monkeypatch):
    (server.root / "k").write_bytes(b"data")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hunter2")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert HttpStorage(server.url).read("k") == b"data"
    login = base64.b64encode(b"me:hunter2").decode()
    assert server.seen[0][2]["Authorization"] == f"Basic {login}"


def test_a_proxy_of_the_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    server.status = 410
    with pytest.raises(NotFound):
        HttpStorage("http://elsewhere.invalid/data").read("k")
    assert server.seen[0][1] == "http://elsewhere.invalid/data/k"


def test_the_environment_is_not_searched_for_each_request(server, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "missing"))
    assert not HttpStorage(server.url).filesystem_options()["client_kwargs"]["trust_env"]


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_home_directory_that_is_missing_or_not_readable_has_no_login(
    server, monkeypatch, is_missing
):
    def getpwuid(user):
        raise KeyError(user)

    def stat(path, *arguments, **options):
        if str(path).endswith(".netrc"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return original(path, *arguments, **options)

    (server.root / "k").write_bytes(b"data")
    original = os.stat
    monkeypatch.delenv("NETRC", raising=False)
    if is_missing:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", getpwuid)
    else:
        monkeypatch.setattr("os.stat", stat)
    assert HttpStorage(server.url).read("k") == b"data"


def test_room_is_found_for_what_is_downloaded(server, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(loops, "preallocate", lambda _, size: sizes.append(size))
    (server.root / "k").write_bytes(b"0123")
    HttpStorage(server.url).download("k", tmp_path / "k")
    assert sizes == [4]
    assert (tmp_path / "k").read_bytes() == b"0123"


def test_ranges_that_nobody_waits_for_are_asked_for_no_more(tmp_path):
    (tmp_path / "k").write_bytes(bytes(8_000_000))
    with serving(tmp_path) as server:
        server.holds = lambda _: True
        workers, storage = ThreadPool(1), HttpStorage(server.url)
        job = workers.submit(
            lambda: storage.read_ranges("k", [(0, 4_000_000), (4_000_000, 8_000_000)])
        )
        until = time.monotonic() + 30
        while len(server.requests) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        workers.stop()
        assert isinstance(job.error, Cancelled)
        while asking(storage.filesystem().loop):
            assert time.monotonic() < until
            time.sleep(0.01)
        server.gate.set()


def asking(loop):
    return [task for task in asyncio.all_tasks(loop) if "read_part" in repr(task)]


def test_files_are_read_as_they_are_stored(server, tmp_path):
    (server.root / "k.gz").write_bytes(b"\x1f\x8b not unpacked on the way")
    storage = HttpStorage(server.url)
    assert storage.read("k.gz") == b"\x1f\x8b not unpacked on the way"
    storage.download("k.gz", tmp_path / "k.gz")
    assert (tmp_path / "k.gz").read_bytes() == b"\x1f\x8b not unpacked on the way"
    assert server.seen[0][2]["Accept-Encoding"] == "identity"


def test_a_fragment_is_refused_which_clients_do_not_send(server):
    (server.root / "a#b").mkdir()
    (server.root / "a#b/k").write_bytes(b"data")
    with pytest.raises(ConfigError, match=r"/a#b: a '#' .* write it as %23"):
        HttpStorage(f"{server.url}/a#b")
    storage = HttpStorage(f"{server.url}/a%23b")
    assert storage.read("k") == b"data"
    assert [o.key for o in storage.list()] == ["k"]


@pytest.mark.parametrize("url", ["http://", "https:///set", "http://me@/set"])
def test_a_url_without_host_is_refused(url):
    with pytest.raises(ConfigError, match="names no host; write http://host/path"):
        HttpStorage(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret?x@host/set",
        "http://me:x?s3cret@host/set",
        "http://me:s3cret?a=1@[::1]:8/set",
    ],
)
def test_a_password_with_a_question_mark_is_refused(url):
    with pytest.raises(ConfigError, match=r"a port that is no number.*password as %3F") as caught:
        HttpStorage(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://[::1]/s", "http://[::1]:80/s?q=a@b:c", "http://host:/s", "http://me:x%3Fy@host:80"],
)
def test_hosts_and_ports(url):
    assert HttpStorage(url).filesystem_options()


def test_own_headers_and_settings_of_the_client(server):
    (server.root / "k").write_bytes(b"data")
    storage = HttpStorage(server.url, client_kwargs={"headers": {"X-Mine": "1"}})
    assert storage.read("k") == b"data"
    assert server.seen[0][2]["X-Mine"] == "1"
    assert server.seen[0][2]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("status", "wanted"), [(403, AccessDenied), (404, NotFound), (410, NotFound), (503, Transient)]
)
def test_answers_become_our_errors(server, tmp_path, status, wanted):
    server.status = status
    storage = HttpStorage(server.url)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.read_range("k", 0, 5),
        lambda: storage.stat("k"),
        lambda: storage.download("k", tmp_path / "k"),
    ):
        with pytest.raises(wanted, match="/k"):
            operation()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_size_is_that_of_what_is_sent_whatever_its_encoding(method):
    def respond(handler):
        if method != handler.command == "HEAD":  # as of a signature for GET alone
            handler.send_error(403)
            return
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Length", "4")
        handler.end_headers()

    with answering(respond) as (url, seen):
        info = HttpStorage(url).stat("k")
    assert (info.size, info.version) == (4, "1")
    assert len(seen) == (1 if method == "HEAD" else 2)


def test_files_may_have_queries_of_their_own(server):
    (server.root / "k 1").write_bytes(b"data")
    storage = pickle.loads(pickle.dumps(HttpStorage(f"{server.url}?a", queries={"k 1": "?s=1"})))
    assert storage.read("k 1") == b"data"
    with pytest.raises(NotFound):
        storage.read("k")
    assert [path for _, path, _ in server.seen] == ["/k%201?s=1", "/k?a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headers": "s3cret"}, "'headers' must be a dict, not str"),
        ({"headers": {"X-Key": 5}}, "'headers': the value of 'X-Key' must be str, not int"),
        ({"headers": {"X-Key": "s3cret\r\n"}}, "the value of 'X-Key' has the end of a line"),
        ({"headers": {"X Key:": "s3cret"}}, "'X Key:' is no name of a header"),
        ({"auth": "s3cret"}, "'auth' must be a user and a password, .*Bearer"),
        ({"auth": ("me", 5)}, "'auth' must be a user and a password"),
        ({"cookies": "s3cret"}, "'cookies' must be a dict, not str"),
        ({"client_kwargs": ["s3cret"]}, "'client_kwargs' must be a dict, not list"),
        ({"client_kwargs": {"headers": {"a": b"s3cret"}}}, "client_kwargs: 'headers': .*not bytes"),
    ],
)
def test_an_invalid_header_or_login_names_its_option(options, message):
    with pytest.raises(ConfigError, match=f"http storage option .*{message}") as caught:
        HttpStorage("http://host/set", **options)
    assert "s3cret" not in str(caught.value)


def test_a_login_may_be_a_pair(server):
    (server.root / "k").write_bytes(b"data")
    assert HttpStorage(server.url, auth=("me", "pw")).read("k") == b"data"
    login = base64.b64encode(b"me:pw").decode()
    assert server.seen[0][2]["Authorization"] == f"Basic {login}"


@contextmanager
def sending(data):
    """Yield the port of a server that sends the same bytes for any request, and what it was sent."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(data)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_is_no_http_is_no_status_of_a_server():
    with (
        sending(b"SSH-2.0-OpenSSH_9.2\r\n") as port,
        pytest.raises(Transient, match=r"/k: .*the connection failed"),
    ):
        HttpStorage(f"http://127.0.0.1:{port}").read("k")


def test_a_server_without_tls_is_not_asked_again():
    with (
        sending(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") as port,
        pytest.raises(StorageError, match="/k: the server does not speak TLS; write http:") as e,
    ):
        HttpStorage(f"https://127.0.0.1:{port}").read("k")
    assert not isinstance(e.value, Transient)


@contextmanager
def answering(respond):
    """Yield the URL of a server whose requests are answered by `respond(handler)`, and what it was asked."""

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_GET(self):
            self.server.seen.append((self.path, dict(self.headers)))
            with suppress(ConnectionError):
                respond(self)

        do_HEAD = do_GET

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads, server.seen = True, []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", server.seen
    server.shutdown()
    server.server_close()
    thread.join()


def send_data(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "4")
    handler.end_headers()
    if handler.command == "GET":
        handler.wfile.write(b"data")


class Login(NamedTuple):
    """What aiohttp.BasicAuth is, without its warning."""

    login: str
    password: str


CREDENTIALS = {
    "headers": ({"headers": {"X-Api-Key": "s3cret", "PRIVATE-TOKEN": "s3cret"}}, "X-Api-Key"),
    "client headers": ({"client_kwargs": {"headers": {"x-auth-token": "s3cret"}}}, "x-auth-token"),
    "cookies": ({"cookies": {"session": "s3cret"}}, "Cookie"),
    "client cookies": ({"client_kwargs": {"cookies": {"a": "b", "session": "s3cret"}}}, "Cookie"),
    "cookie header": ({"headers": {"Cookie": "session=s3cret"}}, "Cookie"),
    "login": ({"auth": Login("me", "s3cret")}, "Authorization"),
    "client login": ({"client_kwargs": {"auth": Login("me", "s3cret")}}, "Authorization"),
    "authorization": ({"headers": {"Authorization": "Bearer s3cret"}}, "Authorization"),
}


@pytest.mark.parametrize(("options", "header"), CREDENTIALS.values(), ids=CREDENTIALS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_credentials_do_not_follow_a_redirect_to_another_host(options, header, status, tmp_path):
    def redirect(handler):
        if not handler.path.startswith("/here"):
            send_data(handler)
            return
        handler.send_response(status)
        # Relative first, which is the same host, then another port.
        target = f"{there}/k" if handler.path.startswith("/here/again") else "/here/again"
        handler.send_header("Location", target)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with answering(send_data) as (there, elsewhere), answering(redirect) as (here, seen):
        storage = HttpStorage(f"{here}/here", **options)
        assert storage.read("k") == b"data"
        assert storage.read_range("k", 1, 3) == b"at"
        storage.download("k", tmp_path / "k")
        assert storage.stat("k").size == 4
    assert {path for path, _ in seen} == {"/here/k", "/here/again"}
    assert all(header in headers for _, headers in seen)
    assert {path for path, _ in elsewhere} == {"/k"}
    for _, headers in elsewhere:
        assert header not in headers
        assert "s3cret" not in str(headers)
        assert headers["Accept-Encoding"] == "identity"


def test_redirects_in_a_circle_are_not_tried_again():
    def redirect(handler):
        handler.send_response(302)
        handler.send_header("Location", f"{handler.path}x")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with answering(redirect) as (here, seen):
        storage = HttpStorage(here)
        for read in (lambda: storage.read("k"), lambda: storage.stat("k")):
            with pytest.raises(StorageError, match=f"{here}/k: the server redirects in") as caught:
                read()
            assert type(caught.value) is StorageError  # neither missing nor to be tried again
        assert len(seen) < 60


def test_a_login_of_netrc_for_the_other_host_is_sent_to_it(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine localhost login me password hunter2")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    def redirect(handler):
        handler.send_response(302)
        handler.send_header("Location", there.replace("127.0.0.1", "localhost") + "/k")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with answering(send_data) as (there, elsewhere), answering(redirect) as (here, seen):
        assert HttpStorage(here, headers={"X-Key": "1"}).read("k") == b"data"
    assert [headers.get("X-Key") for _, headers in seen + elsewhere] == ["1", None]
    login = base64.b64encode(b"me:hunter2").decode()
    assert elsewhere[0][1]["Authorization"] == f"Basic {login}"


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(HttpStorage, may_ignore_ranges=True)


def test_no_more_is_read_than_the_ranges_of_several_files():
    with endless_server(206, {"Content-Range": "bytes 5-14/99"}) as server:
        for error in HttpStorage(server.url).read_many([("k", 5, 15), ("l", 5, 10)]):
            assert isinstance(error, StorageError)
            assert "bytes that were asked for" in str(error)
        assert server.sent_bytes < 64 << 20


def test_of_a_whole_file_no_more_is_read_than_up_to_the_range():
    with endless_server(200) as server:
        storage = HttpStorage(server.url)
        assert not storage.serves_ranges("k")
        assert storage.read_range("k", 5, 100_000) == bytes(99_995)
        assert storage.read_ranges("k", [(70_000, 80_000), (0, 1)]) == [bytes(10_000), b"\0"]
        assert server.sent_bytes < 64 << 20


def test_a_large_page_is_searched_once():
    for page in (
        "<a " * 2_000_000,
        '<a href="' * 500_000,
        "<a href " * 500_000,
        "<a x=" + " " * 10**6,
    ):
        assert len(links_below(page, "http://host/set", with_plain_urls=True)) <= 1


def test_a_listing_without_an_end_is_refused():
    with endless_server(200, {"Content-Type": "text/html"}) as server:
        with pytest.raises(StorageError, match="sent more than the 67108864 bytes"):
            HttpStorage(server.url).list()
        with pytest.raises(StorageError, match="/k: the server sent more than the 67108864 bytes"):
            HttpStorage(server.url).read("k")
        assert server.sent_bytes < 2 * (96 << 20)


def test_sorting_links_of_a_directory_page_are_no_objects(server):
    (server.root / "index.html").write_text('<a href="?C=N;O=D">Name</a> <a href="k">k</a>')
    (server.root / "k").write_bytes(b"data")
    assert [o.key for o in HttpStorage(server.url).list()] == ["k"]


def test_links_of_a_directory_page_are_read_as_html(server):
    (server.root / "b&c").mkdir()
    for key in ("b&c/k", "d&e", "it's"):
        (server.root / key).write_bytes(b"data")
    page = """<a href="b&amp;c/">b</a> <a href="d&amp;e">d</a> <a href='it&#39;s'>it</a>"""
    (server.root / "index.html").write_text(page)
    (server.root / "b&c/index.html").write_text('<a href="k">k</a>')
    assert [o.key for o in HttpStorage(server.url).list()] == ["b&c/k", "d&e", "it's"]


@pytest.mark.parametrize("root", ["ü s", "%C3%BC%20s"])
@pytest.mark.parametrize(
    "prefix", ["", "./", "/%C3%BC%20s/", "//{host}/%C3%BC%20s/", "{url}/%C3%BC%20s/"]
)
def test_links_of_any_server_are_found(server, root, prefix):
    keys = ["a", "http_logs", "it's", "sub/k", "y:z"]
    (server.root / "ü s/sub").mkdir(parents=True)
    for key in keys:
        (server.root / "ü s" / key).write_bytes(b"data")
    before = prefix.format(url=server.url, host=server.url.partition("//")[2])
    page = "".join(
        f'<a class="x" href="{before}{key}">{key}</a>' for key in [*keys[:3], "sub/", "y:z"]
    )
    (server.root / "ü s/index.html").write_text(page)
    (server.root / "ü s/sub/index.html").write_text("<a href=k>k</a> <A HREF='./k'>k</A>")
    assert [o.key for o in HttpStorage(f"{server.url}/{root}").list()] == keys


def test_links_that_lead_nowhere_or_elsewhere_are_no_objects(server):
    page = "".join(f'<a href="{link}"></a>' for link in ("k", "gone", "gone/", "./", "../../x"))
    (server.root / "set").mkdir()
    (server.root / "set/index.html").write_text(page)
    (server.root / "set/k").write_bytes(b"data")
    assert [o.key for o in HttpStorage(f"{server.url}/set").list()] == ["k"]


def test_a_link_that_fails_is_not_skipped(server):
    (server.root / "index.html").write_text('<a href="k">k</a> <a href="sub/">sub</a>')
    (server.root / "k").write_bytes(b"data")
    for failing in ("/k", "/sub"):
        server.fails = failing
        with pytest.raises(Transient, match=failing):
            HttpStorage(server.url).list()


@pytest.mark.parametrize("queries", [3, "?a=1", ["?a=1"], {"k": 1}, {1: "?a=1"}])
def test_queries_that_are_none_are_refused(queries):
    with pytest.raises(ConfigError, match="'queries' must be a dict of str, not"):
        HttpStorage("http://host/set", queries=queries)
