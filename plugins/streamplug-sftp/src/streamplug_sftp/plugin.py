"""The plugins of this distribution; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the storages of this distribution."""
    return [Provider("storage", "sftp", "streamplug_sftp.storage:SftpStorage", aliases=("ssh",))]
