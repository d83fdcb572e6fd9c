from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st

from streamplug.testing import EncodingTests


class Test$class_name(EncodingTests):
    spec = "$name"
    wrong = ("00010203-0405-0607-0809-0a0b0c0d0e0f", b"0123456789abcdef", None)
    # Bytes that were stored once must be readable for ever: add to these, do not change them.
    golden = ((UUID(int=0x000102030405060708090A0B0C0D0E0F), "000102030405060708090a0b0c0d0e0f"),)

    def values(self) -> st.SearchStrategy[UUID]:
        return st.uuids()
