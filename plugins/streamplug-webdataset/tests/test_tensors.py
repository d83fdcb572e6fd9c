"""What values of CBOR may be is told by their encoding; that nothing is lost is tested here."""

from __future__ import annotations

import pytest

from streamplug.errors import DecodeError
from streamplug.plugin import make


@pytest.mark.parametrize("rest", [b"\x02", b"\x00", b"\xf6", b"\xff", b"\x19\x01", b"\x44ab"])
def test_what_follows_a_value_of_cbor_is_not_left_out_silently(rest):
    cbor2 = pytest.importorskip("cbor2")
    encoding = make("encoding", "cbor")
    value = {"a": [1, None, 2.5], "b": bytes(100_000)}
    assert encoding.decode(memoryview(cbor2.dumps(value))) == value
    with pytest.raises(DecodeError):
        encoding.decode(memoryview(cbor2.dumps(value) + rest))
