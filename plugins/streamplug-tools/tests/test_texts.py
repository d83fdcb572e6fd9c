from __future__ import annotations

import pytest
from streamplug_tools.report.text_format import cut, many, number, size, size_format


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (12.5, "12.5 bytes"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (99_949, "99.9 kB"),
        (123_456, "123 kB"),
        (999_999, "1 MB"),
        (5e9, "5 GB"),
        (7e21, "7,000 EB"),
    ],
)
def test_bytes_have_the_unit_that_suits_them(count, text):
    assert size(count) == text


def test_numbers_have_four_digits_or_are_whole():
    assert [number(n) for n in (0, 1234567, -3.0, 0.123456, 12345.678, 1e300)] == [
        "0", "1,234,567", "-3", "0.1235", "1.235e+04", "1e+300"
    ]  # fmt: skip


def test_texts_are_cut_and_counted():
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "ab…")
    assert (many(1, "shard"), many(1200, "shard")) == ("1 shard", "1,200 shards")


def test_sizes_that_look_alike_have_all_digits():
    assert size_format(12_480, 12_498.4)(12_498.4) == "12,498 bytes"
    assert size_format(12_480, 13_000)(13_000) == "13 kB"
    assert size_format(12_480, 12_480)(12_480) == "12.5 kB"
