from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import InvalidIndexError
from streamplug.index import columns
from streamplug.index.columns import (
    Absent,
    Digests,
    GrowingTexts,
    HexTexts,
    Numbered,
    Numbers,
    Texts,
)


def column(texts: list[str]):
    growing = GrowingTexts()
    for number, text in enumerate(texts):
        growing.put(number, (text.encode(),))
    return growing.finish(len(texts))


def kept(texts: list[str]) -> object:
    found = column(texts)
    assert [found[number] for number in range(len(texts))] == texts
    return found


@given(st.lists(st.text(max_size=6), max_size=20))
def test_any_texts_come_back(texts):
    kept(texts)


@given(st.lists(st.text("0123456789abcdef", min_size=6, max_size=6), min_size=1, max_size=20))
def test_hexadecimal_texts_come_back(texts):
    assert isinstance(kept(texts), (HexTexts, Numbered))


counts = st.builds(
    lambda prefix, suffix, digits, first, size: [
        f"{prefix}{number:0{digits}d}{suffix}" for number in range(first, first + size)
    ],
    st.text("shard.5%/-ü", max_size=6),
    st.text(".mdsx7%", max_size=6),
    st.integers(1, 8),
    st.sampled_from([0, 1, 7, 98, 99_990]),
    st.integers(1, 30),
)


@given(counts)
def test_names_that_count_come_back(texts):
    kept(texts)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], Absent()),
        (["", ""], Absent()),
        (["shard.00000.mds", "shard.00001.mds"], Numbered("shard.", 5, ".mds")),
        (["s.8.mds", "s.9.mds", "s.10.mds"], Numbered("s.", 1, ".mds", 8)),
        (["a.7.mds2", "a.8.mds2"], Numbered("a.", 1, ".mds2", 7)),
        (["1/2.mds", "1/3.mds"], Numbered("1/", 1, ".mds", 2)),
    ],
)
def test_texts_that_follow_a_rule_take_no_room(texts, expected):
    assert kept(texts) == expected


@pytest.mark.parametrize(
    "texts",
    [
        ["shard.0.mds", "shard.2.mds"],
        ["shard.0.mds", "shard.1.mds", "shard.2.mds", "shard.4.mds"],
        ["a0", "a1", "a2b", ""],
        ["00FF", "00FE"],
        ["0" * 30, "0" * 29 + "1x"],
        ["a%.1", "a%.2"],
    ],
)
def test_other_texts_are_kept_as_they_are(texts):
    assert isinstance(kept(texts), Texts)


def test_a_count_is_followed_across_many_parts(monkeypatch):
    monkeypatch.setattr(columns, "_AT_ONCE", 100)
    names = [f"s.{number:02d}" for number in range(1050)]
    assert kept(names) == Numbered("s.", 2, "")
    names[777] = "s.778"
    assert isinstance(kept(names), Texts)


@pytest.mark.parametrize("at_once", [1, 1000])
def test_shards_without_a_value_are_filled_up(at_once, monkeypatch):
    monkeypatch.setattr(columns, "_AT_ONCE", at_once)
    numbers = Numbers()
    numbers.put(2, (5, 6))
    numbers.put(6, (7,))
    assert numbers.finish(8).tolist() == [0, 0, 5, 6, 0, 0, 7, 0]
    texts = GrowingTexts()
    texts.put(1, (b"a",))
    found = texts.finish(3)
    assert [found[number] for number in range(3)] == ["", "a", ""]


def test_a_file_has_only_the_digests_that_are_not_empty():
    digests = Digests({"sha1": column(["aa", ""]), "md5": column(["", "bb"])})
    assert (digests[0], digests[1]) == ({"sha1": "aa"}, {"md5": "bb"})


@pytest.mark.parametrize("bounds", [[0, 9], [-1, 2], [2, 1], [0, 1 << 62]])
def test_bounds_outside_the_texts_are_refused(bounds):
    texts = Texts(np.array(bounds, np.int64), np.zeros(3, np.uint8))
    with pytest.raises(InvalidIndexError, match="damaged"):
        texts[0]
