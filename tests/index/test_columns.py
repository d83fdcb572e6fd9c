from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamplug.index.model import DigestColumns, NumberColumnBuilder, TextColumnBuilder


def column(texts: list[str]):
    builder = TextColumnBuilder()
    for number, text in enumerate(texts):
        builder.put(number, (text.encode(),))
    return builder.build(len(texts))


@given(st.lists(st.text(max_size=6), max_size=20))
def test_any_texts_come_back(texts):
    found = column(texts)
    assert [found[number] for number in range(len(texts))] == texts


def test_shards_without_a_value_are_filled_up():
    numbers = NumberColumnBuilder()
    numbers.put(2, (5, 6))
    numbers.put(6, (7,))
    assert numbers.build(8).tolist() == [0, 0, 5, 6, 0, 0, 7, 0]
    texts = TextColumnBuilder()
    texts.put(1, (b"a",))
    found = texts.build(3)
    assert [found[number] for number in range(3)] == ["", "a", ""]


def test_a_file_has_only_the_digests_that_are_not_empty():
    digests = DigestColumns({"sha1": column(["aa", ""]), "md5": column(["", "bb"])})
    assert (digests[0], digests[1]) == ({"sha1": "aa"}, {"md5": "bb"})
