from __future__ import annotations

import math

import pytest

from streamplug.config import parse_bytes, parse_count
from streamplug.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 0),
        (5, 5),
        ("5", 5),
        ("5b", 5),
        ("64kb", 65536),
        ("64 MB", 67108864),
        (" 1.5gb ", 1610612736),
        ("0.1kb", 102),
        ("2tb", 2199023255552),
        ("1pb", 1 << 50),
        ("0.5eb", 1 << 59),
        ("1yb", 1 << 80),
        (1e9, 10**9),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_have_units_of_1024(value, size):
    assert parse_bytes(value, "size_limit") == size


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (7, 7),
        (1e5, 100_000),
        ("7", 7),
        ("100k", 100_000),
        ("1.5M", 1_500_000),
        ("2b", 2 * 10**9),
        ("3t", 3 * 10**12),
    ],
)
def test_counts_have_units_of_1000(value, count):
    assert parse_count(value, "epoch_size") == count


NONSENSE = [
    -1,
    -1e3,
    True,
    1.5,
    math.inf,
    math.nan,
    None,
    "",
    "mb",
    "-5mb",
    "5 5",
    "1e9",
    "5xb",
    "0x10",
    "٣",
    "9" * 400,
    [5],
]


@pytest.mark.parametrize("value", NONSENSE)
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        parse_bytes(value, "size_limit")
    assert str(caught.value) == (
        f"size_limit={value!r}: expected bytes, such as 67108864 or '64mb'"
    )


@pytest.mark.parametrize("value", [*NONSENSE, "5kb", "1.5"])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(ConfigError, match=r"^epoch_size=.*: expected a count, such as 100000"):
        parse_count(value, "epoch_size")
