"""Two servers, each in a process of its own: asyncssh's, and OpenSSH's where it is installed."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import asyncssh
import pytest
from streamplug_testing.http import free_port

PASSWORD = "s3cr3t-pass word"


class Server:
    """A server, and its files.

    Attributes:
        root: The folder that holds them.
        path: The same folder, as the server calls it.
    """

    def __init__(self, folder, user, path):
        self.folder, self.user = folder, user
        self.root, self.path = folder / "root", path
        self.port = int((folder / "port").read_text())
        self.options = {
            "username": user,
            "key_file": str(folder / "id"),
            "known_hosts": str(folder / "known"),
            "config": False,
            "agent": False,
        }

    def url(self, path=""):
        return f"sftp://127.0.0.1:{self.port}{self.path}{path}"

    def new(self):
        """Return the name of a new folder in the root."""
        name = uuid.uuid4().hex[:12]
        (self.root / name).mkdir()
        return name


@pytest.fixture(scope="session")
def asyncssh_server(tmp_path_factory, run_server):
    folder = prepare(tmp_path_factory.mktemp("asyncssh"))
    command = [sys.executable, str(Path(__file__).with_name("sftp_server.py")), str(folder)]
    with run_server(command, folder / "log", (folder / "port").exists):
        known_hosts(folder, int((folder / "port").read_text()))
        yield Server(folder, "me", "")


@pytest.fixture(scope="session")
def openssh_server(tmp_path_factory, run_server):
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if sshd is None:
        pytest.skip("OpenSSH's server is not installed")
    folder = prepare(tmp_path_factory.mktemp("openssh"))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd insists, also where it is not used
    port = free_port()
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/id.pub\nUsePAM no\nStrictModes no\nMaxStartups 100\n"
        "PasswordAuthentication no\nMaxSessions 100\nSubsystem sftp internal-sftp\n"
    )

    def listens():
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    with run_server([sshd, "-D", "-e", "-f", str(folder / "config")], folder / "log", listens):
        (folder / "port").write_text(str(port))
        known_hosts(folder, port)
        yield Server(folder, getpass.getuser(), str(folder / "root"))


def prepare(folder):
    (folder / "root").mkdir()
    for name in ("host", "id"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(folder / name)
        key.write_public_key(folder / f"{name}.pub")
        (folder / name).chmod(0o600)
    return folder


def known_hosts(folder, port):
    public = (folder / "host.pub").read_text()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {public}")


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    for name in ("COMPOSER_SFTP_KEY_FILE", "COMPOSER_SFTP_KNOWN_HOSTS_FILE", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
