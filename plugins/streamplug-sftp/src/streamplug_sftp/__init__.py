"""Servers that speak SFTP (sftp://) for streamplug, through asyncssh."""
