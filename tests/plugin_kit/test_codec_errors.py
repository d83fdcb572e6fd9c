from __future__ import annotations

import gzip

import pytest

from streamplug.errors import DataError
from streamplug.plugin_kit.codec_errors import parsing


def test_damage_is_told_from_what_the_system_does_not_give(tmp_path):
    with (
        pytest.raises(DataError, match=r"^a file is damaged: BadGzipFile: .*; write it again$"),
        parsing("a file", "write it again"),
    ):
        gzip.decompress(b"nothing")
    with (
        pytest.raises(DataError, match=r"^a file cannot be read: IsADirectoryError: "),
        parsing("a file"),
    ):
        tmp_path.read_bytes()
