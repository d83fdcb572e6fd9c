"""An SFTP server of asyncssh, for the tests: python sftp_server.py FOLDER.

It serves ``FOLDER/root`` to the user ``me`` with the password `PASSWORD` or the key ``FOLDER/id``, and
to nobody else, and writes its port to ``FOLDER/port``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import asyncssh

PASSWORD = "s3cr3t-pass word"


class Access(asyncssh.SSHServer):
    def password_auth_supported(self):
        return True

    def validate_password(self, username, password):
        return (username, password) == ("me", PASSWORD)


class Root(asyncssh.SFTPServer):
    def __init__(self, channel):
        super().__init__(channel, chroot=os.fsencode(os.environ["SFTP_ROOT"]))


async def main(folder):
    os.environ["SFTP_ROOT"] = str(folder / "root")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=Access,
        server_host_keys=[str(folder / "host")],
        authorized_client_keys=str(folder / "id.pub"),
        sftp_factory=Root,
    )
    (folder / "port.part").write_text(str(server.get_port()))
    (folder / "port.part").rename(folder / "port")
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
