from __future__ import annotations

import asyncio
import gc
import os
import pickle
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import asyncssh
import pytest
from streamplug_sftp import storage as storage_module
from streamplug_sftp.options import parse
from streamplug_sftp.storage import SftpStorage
from streamplug_testing.storage import StorageTests

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage
from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside

PASSWORD = "s3cr3t-pass word"


class Conformance(StorageTests):
    def make_storage(self):
        url = self.server.url(f"/{self.folder}/some/set")
        return SftpStorage(url, **self.server.options)

    def put_raw(self, key, data):
        path = self.server.root / self.folder / "some/set" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get_raw(self, key):
        return (self.server.root / self.folder / "some/set" / key).read_bytes()


class TestAsyncssh(Conformance):
    secret = PASSWORD

    @pytest.fixture(autouse=True)
    def location(self, asyncssh_server):
        self.server = asyncssh_server
        self.folder = asyncssh_server.new()

    def make_storage(self):
        options = {**self.server.options, "password": PASSWORD}
        del options["key_file"]
        return SftpStorage(self.server.url(f"/{self.folder}/some/set"), **options)


class TestOpenSsh(Conformance):
    @pytest.fixture(autouse=True)
    def location(self, openssh_server):
        self.server = openssh_server
        self.folder = openssh_server.new()


del Conformance


@pytest.fixture
def server(asyncssh_server):
    return asyncssh_server


@pytest.fixture
def storage(server):
    storage = SftpStorage(server.url(f"/{server.new()}"), **server.options)
    yield storage
    storage.close()


def files(server, storage):
    return server.root / storage.url.rpartition("/")[2]


def test_is_found_by_its_scheme(server):
    (server.root / "k").write_bytes(b"data")
    for scheme in ("sftp", "ssh"):
        url = server.url().replace("sftp", scheme)
        storage = open_storage(url, server.options)
        assert type(storage) is SftpStorage
        assert storage.read("k") == b"data"
        storage.close()


def test_closed_connections_are_freed(server, storage):
    (files(server, storage) / "k").write_bytes(b"data")
    closed = []
    for _ in range(3):
        assert storage.read("k") == b"data"
        closed.append(weakref.ref(storage.client()))
        storage.close()
    gc.collect()
    assert [session() for session in closed] == [None] * 3


def test_a_file_appears_when_it_is_whole(server, storage):
    storage.write("a", b"x")
    (files(server, storage) / ".streamplug-0123").write_bytes(b"half of")
    assert [o.key for o in storage.list()] == ["a"]


def test_what_failed_leaves_nothing_behind(server, storage, tmp_path):
    (files(server, storage) / "k").mkdir()
    with pytest.raises(StorageError, match="k: a directory has this name"):
        storage.write("k", b"x")
    (files(server, storage) / "f").write_bytes(b"")
    with pytest.raises(StorageError, match="f/k: a file has the name of its directory"):
        storage.write("f/k", b"x")
    assert sorted(p.name for p in files(server, storage).iterdir()) == ["f", "k"]


def test_links_are_followed(server, storage):
    top = files(server, storage)
    (top / "real").mkdir()
    (top / "real/1").write_bytes(b"one")
    (top / "link").symlink_to("real")
    (top / "gone").symlink_to("nowhere")
    assert [(o.key, o.size) for o in storage.list()] == [("link/1", 3), ("real/1", 3)]


def test_links_that_close_a_loop_are_not_followed(server, storage):
    top = files(server, storage)
    for name in ("a", "b"):
        (top / name).mkdir()
        (top / name / "k").write_bytes(b"one")
    (top / "loop").symlink_to(".")
    (top / "again").symlink_to(".")
    (top / "a/b").symlink_to("../b")
    (top / "b/a").symlink_to("../a")
    assert [o.key for o in storage.list()] == ["a/b/k", "a/k", "b/a/k", "b/k"]
    assert [o.key for o in storage.list("a/")] == ["a/b/k", "a/k"]


def test_what_cannot_be_listed_is_named(server, storage):
    top = files(server, storage)
    (top / "k").write_bytes(b"one")
    (top / "self").symlink_to("self")
    with pytest.raises(StorageError, match="/self: the server cannot read it") as caught:
        storage.list()
    assert not isinstance(caught.value, NotFound)


def test_a_folder_that_may_not_be_read_is_told(openssh_server):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    name = openssh_server.new()
    (openssh_server.root / name).chmod(0)
    storage = SftpStorage(openssh_server.url(f"/{name}"), **openssh_server.options)
    with pytest.raises(AccessDenied):
        storage.list()
    storage.close()


def test_the_directory_of_a_file_system_for_lost_files_need_not_be_readable(
    server, storage, monkeypatch
):
    listed = asyncssh.SFTPClient.readdir

    async def readdir(client, path):
        if path.endswith(("/lost+found", "/other")):
            raise asyncssh.SFTPPermissionDenied("Permission denied")
        return await listed(client, path)

    monkeypatch.setattr(asyncssh.SFTPClient, "readdir", readdir)
    storage.write("a/k", b"")
    (files(server, storage) / "lost+found").mkdir()
    assert [info.key for info in storage.list()] == ["a/k"]
    url = server.url(f"/{files(server, storage).name}/lost+found")
    lost = SftpStorage(url, **server.options)
    with pytest.raises(AccessDenied):
        lost.list()
    lost.close()
    (files(server, storage) / "other").mkdir()
    with pytest.raises(AccessDenied):
        storage.list()


# -- locations ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "host", "port", "username", "password", "folder"),
    [
        ("sftp://h", "h", None, None, None, "/"),
        ("sftp://h/a/b/", "h", None, None, None, "/a/b"),
        ("sftp://me@h:2222/a", "h", 2222, "me", None, "/a"),
        ("sftp://me:pass%20word%40@h/a", "h", None, "me", "pass word@", "/a"),
        ("sftp://[::1]:22/a", "::1", 22, None, None, "/a"),
        ("sftp://h/~/a", "h", None, None, None, "a"),
        ("sftp://h/~/", "h", None, None, None, "."),
        ("sftp://h/~", "h", None, None, None, "."),
        ("sftp://h/~x", "h", None, None, None, "/~x"),
        ("sftp://h/a?b#c", "h", None, None, None, "/a?b#c"),
    ],
)
def test_locations(url, host, port, username, password, folder):
    found = parse(url)
    assert (found.host, found.port, found.username) == (host, port, username)
    assert (found.password, found.folder) == (password, folder)
    assert "pass word" not in repr(found)


@pytest.mark.parametrize("url", ["sftp://", "sftp:///path", "sftp://me@/path"])
def test_a_url_without_host_is_refused(url):
    with pytest.raises(ConfigError, match="names no host"):
        SftpStorage(url)


def test_a_port_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="the port is no number"):
        SftpStorage("sftp://h:ftp/a")


def test_a_download_ends_if_the_consumer_stops(server, tmp_path):
    with (server.root / "endless").open("wb") as file:
        file.truncate(2**40)
    (server.root / "k").write_bytes(b"x")
    storage, scope, target = SftpStorage(server.url(), **server.options), Scope(), tmp_path / "k"

    def stop():
        while not (target.exists() and target.stat().st_size):
            time.sleep(0.01)
        scope.stop()

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    with inside(scope), pytest.raises(Cancelled):
        storage.download("endless", target)
    assert storage.read("k") == b"x"
    size = target.stat().st_size
    assert storage.read("k") == b"x"
    assert target.stat().st_size == size
    storage.close()


def test_a_home_directory_is_a_location(server):
    name = server.new()
    storage = SftpStorage(server.url(f"/~/{name}"), **server.options)
    storage.write("a/k", b"x")
    assert (server.root / name / "a/k").read_bytes() == b"x"
    assert [o.key for o in storage.list()] == ["a/k"]
    storage.close()


# -- credentials --------------------------------------------------------------


def test_a_password_in_the_url_is_taken_and_not_shown(server):
    (server.root / "k").write_bytes(b"x")
    url = server.url().replace("sftp://", "sftp://me:s3cr3t-pass%20word@")
    options = {"known_hosts": server.options["known_hosts"], "config": False, "agent": False}
    storage = SftpStorage(url, **options)
    assert storage.read("k") == b"x"
    assert "s3cr3t" not in f"{storage!r} {storage.url} {storage._server!r}"
    storage.close()


def test_a_wrong_password_is_denied(server):
    options = {**server.options, "password": "feedbeef"}
    del options["key_file"]
    with pytest.raises(AccessDenied, match="no permission for sftp://") as caught:
        SftpStorage(server.url(), **options).read("k")
    assert "feedbeef" not in str(caught.value)


# A key of a test takes no second to decrypt.
FEW_ROUNDS = pytest.mark.filterwarnings("ignore:Warning. bcrypt.kdf.. called with only 1 round")


@FEW_ROUNDS
def test_a_key_with_a_passphrase(server, tmp_path):
    (server.root / "k").write_bytes(b"x")
    key = asyncssh.read_private_key(server.folder / "id")
    key.write_private_key(tmp_path / "id", passphrase="s3cr3t", rounds=1)
    options = {**server.options, "key_file": str(tmp_path / "id")}
    storage = SftpStorage(server.url(), passphrase="s3cr3t", **options)
    assert storage.read("k") == b"x"
    storage.close()
    with pytest.raises(AccessDenied, match="check 'key_file' and 'passphrase'"):
        SftpStorage(server.url(), passphrase="wrong", **options).read("k")


def test_a_key_that_does_not_exist_is_named(server):
    options = {**server.options, "key_file": "/no/such/key"}
    with pytest.raises(AccessDenied, match="/no/such/key"):
        SftpStorage(server.url(), **options).read("k")


@FEW_ROUNDS
def test_a_passphrase_is_that_of_the_standard_keys_too(server, tmp_path, monkeypatch):
    (server.root / "k").write_bytes(b"x")
    (tmp_path / ".ssh").mkdir()
    key = asyncssh.read_private_key(server.folder / "id")
    key.write_private_key(tmp_path / ".ssh" / "id_ed25519", passphrase="s3cr3t", rounds=1)
    monkeypatch.setenv("HOME", str(tmp_path))
    options = {name: server.options[name] for name in server.options if name != "key_file"}
    storage = SftpStorage(server.url(), passphrase="s3cr3t", **options)
    assert storage.read("k") == b"x"
    storage.close()


@pytest.mark.parametrize("name", ["known_hosts", "config"])
def test_a_missing_file_of_options_is_no_missing_object(server, tmp_path, name):
    options = {**server.options, name: str(tmp_path / "no-such-file")}
    with pytest.raises(StorageError, match="no-such-file does not exist on this machine"):
        SftpStorage(server.url(), **options).exists("k")


def test_key_and_known_hosts_may_come_from_the_environment(server, monkeypatch):
    (server.root / "k").write_bytes(b"x")
    monkeypatch.setenv("COMPOSER_SFTP_KEY_FILE", server.options["key_file"])
    monkeypatch.setenv("COMPOSER_SFTP_KNOWN_HOSTS_FILE", server.options["known_hosts"])
    storage = SftpStorage(server.url().replace("//", "//me@"), config=False, agent=False)
    assert storage.read("k") == b"x"
    storage.close()


def test_an_unknown_host_is_refused(server, tmp_path):
    (tmp_path / "known").write_text("")
    options = {**server.options, "known_hosts": str(tmp_path / "known")}
    with pytest.raises(StorageError, match="host key is not known"):
        SftpStorage(server.url(), **options).read("k")


def test_the_check_of_hosts_may_be_left_out(server):
    (server.root / "k").write_bytes(b"x")
    storage = SftpStorage(server.url(), **{**server.options, "known_hosts": False})
    assert storage.read("k") == b"x"
    storage.close()


# -- connections --------------------------------------------------------------


def test_threads_end_with_the_storage(storage):
    assert list(storage.list()) == []
    assert "streamplug-sftp" in {thread.name for thread in threading.enumerate()}
    storage.close()
    assert "streamplug-sftp" not in {thread.name for thread in threading.enumerate()}


class Between:
    """A connection to a server that can be broken, or stop to pass on anything."""

    def __init__(self, port):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.target, self.ends, self.stalled = port, [], threading.Event()
        self.bytes_per_second = None
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.socket.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            self.ends += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    def copy(self, source, target):
        try:
            while data := source.recv(16384):
                if not self.stalled.is_set():
                    target.sendall(data)
                if self.bytes_per_second:
                    time.sleep(len(data) / self.bytes_per_second)
        except OSError:
            pass

    def cut(self):
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.ends.clear()


@pytest.fixture
def between(server):
    between = Between(server.port)
    yield between
    between.socket.close()
    between.cut()


def through(between, server, **options):
    url = server.url().replace(str(server.port), str(between.port))
    return SftpStorage(url, **{**server.options, "known_hosts": False, **options})


def test_a_broken_connection_is_transient_and_made_anew(server, between):
    (server.root / "k").write_bytes(b"data")
    storage = through(between, server)
    assert storage.read("k") == b"data"
    between.cut()
    with pytest.raises(Transient, match="the connection failed"):
        storage.read("k")
    assert storage.read("k") == b"data"
    storage.close()


def test_several_threads_may_lose_a_connection_at_once(server, between):
    (server.root / "k").write_bytes(b"data")
    storage = through(between, server)
    for _ in range(2):
        assert storage.read("k") == b"data"
        session = storage.client()
        between.cut()
        with ThreadPoolExecutor(8) as pool:
            dropped = [pool.submit(storage.drop_client, session) for _ in range(8)]
        assert [future.exception() for future in dropped] == [None] * 8
        with pytest.raises(ConnectionAbortedError):
            session.run(asyncio.sleep(0))
    storage.close()


def test_a_server_that_stalls_is_transient(server, between):
    (server.root / "k").write_bytes(b"data")
    storage = through(between, server, read_timeout=3)
    assert storage.read("k") == b"data"
    between.stalled.set()
    with pytest.raises(Transient):
        storage.read("k")
    between.stalled.clear()
    assert storage.read("k") == b"data"
    storage.close()


def test_what_moves_slowly_takes_longer_than_the_timeout(server, between, tmp_path, monkeypatch):
    monkeypatch.setattr(storage_module, "_BLOCK_BYTES", 32 << 10)
    data = os.urandom(1 << 20)
    (server.root / "slow").write_bytes(data)
    storage = through(between, server, read_timeout=2)
    assert storage.read_range("slow", 0, 3) == data[:3]
    between.bytes_per_second = 450_000
    began = time.monotonic()
    assert storage.read_ranges("slow", [(5, 1 << 20), (0, 9)]) == [data[5:], data[:9]]
    assert time.monotonic() - began > 2
    storage.download("slow", tmp_path / "slow")
    assert (tmp_path / "slow").read_bytes() == data
    storage.write("written", data)
    assert (server.root / "written").read_bytes() == data
    storage.close()


@pytest.mark.parametrize("size", [0, 300_000, 4 << 20, (4 << 20) + 5])
def test_responses_with_less_than_asked_are_completed(server, storage, monkeypatch, tmp_path, size):
    read = asyncssh.SFTPClientFile.read

    async def read_less(self, size=-1, offset=None):
        return await read(self, min(size, 50_000), offset)

    monkeypatch.setattr(asyncssh.SFTPClientFile, "read", read_less)
    data = os.urandom(size)
    (files(server, storage) / "k").write_bytes(data)
    assert storage.read("k") == data
    assert storage.read_ranges("k", [(7, 290_000), (5, 9)]) == [data[7:290_000], data[5:9]]
    storage.download("k", tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == data


def test_a_server_that_says_nothing_is_transient():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        storage = SftpStorage(
            f"sftp://127.0.0.1:{port}/", connect_timeout=0.5, config=False, username="me"
        )
        with pytest.raises(Transient):
            storage.read("k")


def test_a_connection_that_is_refused_is_transient():
    with socket.socket() as gone:  # nobody else can get its port
        gone.bind(("127.0.0.1", 0))
        port = gone.getsockname()[1]
        with pytest.raises(Transient):
            SftpStorage(f"sftp://me@127.0.0.1:{port}/", config=False).read("k")


def test_a_missing_file_keeps_the_connection(server, between):
    storage = through(between, server)
    for _ in range(3):
        with pytest.raises(NotFound):
            storage.read("gone")
    assert len(between.ends) == 2
    storage.close()


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"user_name": "x"}, r"no option 'user_name'. Did you mean 'username'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: agent, config, "),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"password": 5}, "'password' must be str, not int"),
        ({"known_hosts": True}, "'known_hosts' is a file's name or False"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        SftpStorage("sftp://h/a", **options)


def test_an_open_storage_pickles(server, storage):
    storage.write("k", b"x")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.read("k") == b"x"
    copy.close()


def test_ports_of_options_and_homes_are_told_apart():
    assert SftpStorage("sftp://me@host:22/set").endpoint == ""
    assert SftpStorage("sftp://host/set", port=2222).endpoint == "sftp://host:2222"
    assert SftpStorage("sftp://me:secret@host/~/set").endpoint == "sftp://host/~me"
    assert (
        SftpStorage("sftp://host/~/set", username="you", port=22).endpoint == "sftp://host:22/~you"
    )
