from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug import MDSWriter
from streamplug.adapters.shared_memory import pack_strings

torch = pytest.importorskip("torch")

LARGE = "ä" * 40_000
FILL = 40_000


@given(st.lists(st.binary(max_size=20)))
def test_bytes_come_back(values):
    values = [b"x" * FILL, *values]
    joined = pack_strings(values)
    assert joined.cuts.values(joined.data.copy()) == values


@given(st.lists(st.text(st.characters(), max_size=20)))
def test_texts_come_back_even_those_that_utf8_cannot_hold(values):
    values = [LARGE, "\ud800", "", *values]
    joined = pack_strings(values)
    assert joined.cuts.values(joined.data.copy()) == values


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b"short"] * 9,
        ["x" * FILL, b"x" * FILL],
        [FILL],
        (b"x" * FILL,),
        [bytearray(FILL)],
        None,
    ],
)
def test_other_lists_are_sent_as_they_are(values):
    assert pack_strings(values) is None


def test_a_loader_hands_over_large_bytes_and_texts(tmp_path):
    from streamplug.adapters.torch import StreamingDataLoader, StreamingDataset

    samples = [{"b": bytes([n]) * FILL, "n": n, "s": f"{n}ö" * FILL} for n in range(24)]
    columns = {"b": "bytes", "n": "int", "s": "str"}
    with MDSWriter(out=tmp_path, columns=columns) as out:
        for sample in samples:
            out.write(sample)
    dataset = StreamingDataset(local=tmp_path, batch_size=4)
    seen = []
    for batch in StreamingDataLoader(dataset, num_workers=2, timeout=60):
        seen += [dict(zip(batch, row)) for row in zip(*batch.values())]
    assert sorted(seen, key=lambda sample: sample["n"]) == samples
