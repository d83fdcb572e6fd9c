from __future__ import annotations

import shutil

import pytest

from streamplug.cache.store import parse_cache_limit
from streamplug.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "expected"), [(12345, 12345), ("10gb", 10 << 30), ("1.5 MB", 3 << 19), ("7", 7)]
)
def test_a_limit_is_a_number_of_bytes(tmp_path, value, expected):
    assert parse_cache_limit(value, tmp_path) == expected


@pytest.mark.parametrize(("value", "share"), [("50%", 0.5), (" 12.5 % ", 0.125), ("100%", 1)])
def test_a_limit_is_a_share_of_the_disk_of_a_directory_that_may_not_exist_yet(
    tmp_path, value, share
):
    total = shutil.disk_usage(tmp_path).total
    assert parse_cache_limit(value, tmp_path / "not" / "yet") == int(total * share)


@pytest.mark.parametrize("value", [0, "0", "0%", "101%", "%", "-5", -5, "ten", 1.5, True, "50%%"])
def test_what_is_no_limit_is_refused(tmp_path, value):
    with pytest.raises(ConfigError, match=r"^cache_limit="):
        parse_cache_limit(value, tmp_path)
