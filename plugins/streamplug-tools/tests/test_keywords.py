"""A misspelt keyword argument is told with the one that was meant."""

from __future__ import annotations

import inspect

import pytest
import streamplug_tools

import streamplug
from streamplug.errors import UnknownKeywordError

RESULTS = {
    "DatasetInfo",
    "Difference",
    "InlinePage",
    "SampleDifference",
    "ShardKind",
    "WriteResult",
}
TARGETS = [
    getattr(streamplug_tools, name) for name in streamplug_tools.__all__ if name not in RESULTS
]
WITH_KEYWORDS = [
    target
    for target in (*TARGETS, streamplug.merge_index)
    if inspect.Parameter.KEYWORD_ONLY
    in {p.kind for p in inspect.signature(target).parameters.values()}
    or target is streamplug_tools.Output
]


def test_jobs_are_among_them():
    assert {streamplug_tools.sort, streamplug_tools.Columns} < {*WITH_KEYWORDS}
    assert len(WITH_KEYWORDS) > 14


@pytest.mark.parametrize("target", WITH_KEYWORDS, ids=lambda target: target.__name__)
def test_functions_suggest_keywords(target):
    *_, last = inspect.signature(target).parameters
    with pytest.raises(UnknownKeywordError) as caught:
        target(**{last[:-1]: None})
    expected = f"{target.__name__}({last[:-1]}=…): no such argument. Did you mean {last!r}?"
    assert str(caught.value) == expected
