"""Pruning of shards by statistics."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_tools.expressions import Expression
from streamplug_views.pruning import Condition, split_ranges

NAN = float("nan")


def may_be_true(text, bounds):
    return Condition(Expression(text), bounds).may_be_true(bounds)


BOUNDS = {
    "n": (10, 20, False),
    "x": (0.5, 1.5, False),
    "maybe": (10, 20, True),
    "lang": ("de", "en", False),
    "user id": (1, 2, False),
}


@pytest.mark.parametrize(
    "text",
    [
        "n > 20", "n >= 21", "n < 10", "n == 9", "n in (1, 2, 30)", "20 < n", "not n <= 20",
        "n > 12 and lang == 'fr'", "lang == 'fr' and len(x)", "n < 3 or lang in ['a', 'z']",
        "sample['user id'] == 3", "maybe == 21", "10 > n > 5", "0 < n < 10", "x > math.pi",
        "not (n >= 10 and n <= 20)", "n == 1",
        "n in {1, 2, 30}", "n > max(30, 40)", "n > xxh64('a')", "lang == 'x'.upper()",
    ],
)  # fmt: skip
def test_what_cannot_be_true_is_pruned(text):
    assert not may_be_true(text, BOUNDS)


@pytest.mark.parametrize(
    "text",
    [
        "n > 19", "n == 15", "n in (1, 15)", "n != 10", "maybe > 30", "maybe < 3", "other == 1",
        "lang == 3", "n > 'a'", "abs(n)", "n", "True", "not x > 0.1", "x != 1", "lang == 'dx'",
        "n in other", "maybe in (None, 3)", "maybe == None", "n is None", "n > x", "n + 1 < 5",
        "[n for n in (1,)] == [1]", "n > 20 or len(lang)", "n not in (3,)", "n in {1, 15}",
        "missing == 3", "1 / 0 == n", "n > number + 25", "n in {1, x}",
        "n > len(sample) + 30", "lang in 'dot'", "n in range(99)", "n in set(lang)",
    ],
)  # fmt: skip
def test_what_may_be_true_or_fail_is_kept(text):
    assert may_be_true(text, BOUNDS)


def test_a_column_takes_the_place_of_other_names():
    assert not may_be_true("number > 5", {"number": (1, 2, False)})
    assert may_be_true("n == math", {"n": (10, 20, False), "math": (0, 15, False)})
    columns = {"sample": (1, 2, False), "n": (10, 20, False)}
    assert may_be_true("sample['n'] == 3", columns)
    assert not may_be_true("sample == 3", columns)


VALUES = st.one_of(st.integers(-5, 5), st.floats(-5, 5), st.just(NAN))
COMPARISON = st.builds(
    "{} {} {}".format,
    st.sampled_from(["a", "b", "sample['a']", "1", "-2.5"]),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.sampled_from(["a", "b", "0", "3", "-1.5", "np.float64(2)"]),
)
EXPRESSION = st.recursive(
    st.one_of(COMPARISON, st.just("a in (1, 2, -3.5)"), st.just("-2 < a <= 4")),
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=5,
)


@given(EXPRESSION, st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_no_true_sample_is_ever_pruned(text, rows):
    bounds = {}
    for name, values in zip("ab", zip(*rows)):
        kind = float if any(isinstance(value, float) for value in values) else int
        present = [kind(value) for value in values if value == value]
        if present:
            bounds[name] = min(present), max(present), False
    expression = Expression(text)
    kind = {name: type(low) for name, (low, _, _) in bounds.items()}
    if any(expression(0, {n: kind.get(n, float)(v) for n, v in zip("ab", row)}) for row in rows):
        assert may_be_true(text, bounds)


def test_ranges_are_split_evenly():
    chance = random.Random(1)
    for _ in range(200):
        cuts = sorted(chance.sample(range(1000), 2 * chance.randrange(1, 9)))
        ranges = list(zip(cuts[::2], cuts[1::2]))
        count = chance.randrange(1, 9)
        split = split_ranges(ranges, count)
        assert len(split) == count
        positions = [n for some in split for first, last in some for n in range(first, last)]
        assert positions == [n for first, last in ranges for n in range(first, last)]
        sizes = [sum(last - first for first, last in some) for some in split]
        assert max(sizes) - min(sizes) <= 1
    assert split_ranges([], 1) == [[]]
