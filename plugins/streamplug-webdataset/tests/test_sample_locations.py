"""The file of sample locations: what is written is read, and damage is refused, also under a right digest."""

from __future__ import annotations

import numpy as np
import pytest
from streamplug_webdataset.sample_locations import SampleLocations

from streamplug.errors import CorruptShardError

ARCHIVE = 8192


def make(keys=b"a\xc3\xa9", ends=(1, 3), blocks=((1, 3),), sizes=((5, 600),), extensions=("txt",)):
    return SampleLocations(
        ARCHIVE,
        extensions,
        np.array(blocks),
        np.array(sizes),
        np.array(ends),
        np.frombuffer(keys, np.uint8),
    )


def unpack(data, samples=2, archive=ARCHIVE):
    return SampleLocations.unpack(np.frombuffer(data, np.uint8), samples, archive)


def test_what_is_written_is_read():
    again = unpack(make().pack())
    assert list(again.extensions) == ["txt"]
    assert again.ranges(np.arange(2)).tolist() == [[512, 517], [1536, 2136]]
    assert bytes(again.keys) == "aé".encode()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"keys": b"a\xa0b"}, "the keys: .*invalid start byte"),
        ({"ends": (2, 3)}, "a key begins in a character"),
        ({"ends": (2, 1)}, "the keys"),
        ({"ends": (1, 2)}, "the keys"),
        ({"blocks": ((1, 99),)}, "sample 1 lies beyond"),
        ({"sizes": ((5, 1 << 33),)}, "sample 1 lies beyond"),
        ({"blocks": ((0, 3),)}, "a sample without values"),
        (
            {"extensions": ("txt", "txt"), "blocks": ((1, 3),) * 2, "sizes": ((5, 5),) * 2},
            "its desc",
        ),
    ],
    ids=str,
)
def test_damage_under_a_right_digest_is_refused(change, text):
    with pytest.raises(CorruptShardError, match=text):
        unpack(make(**change).pack())


def test_other_damage_is_refused():
    data = make().pack()
    for at in range(len(data)):
        with pytest.raises(CorruptShardError):
            unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptShardError):
            unpack(data[:at])
    with pytest.raises(CorruptShardError, match="for 2 samples in 8192 bytes, the index says 3"):
        unpack(data, samples=3)
