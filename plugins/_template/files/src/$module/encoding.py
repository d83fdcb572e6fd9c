"""The encoding `$name`: UUIDs, as an example; your own values take their place."""

from __future__ import annotations

from uuid import UUID

from streamplug import Encoding
from streamplug.errors import DecodeError, EncodeTypeError


class $class_name(Encoding):
    """UUIDs, stored as their 16 bytes, most significant first (RFC 9562)."""

    size = 16

    def encode(self, value: object) -> bytes:
        """Return the 16 bytes of a UUID.

        Raises:
            EncodeTypeError: If the value is no UUID.
        """
        if not isinstance(value, UUID):
            raise EncodeTypeError(f"$name takes a UUID, got {type(value).__name__}")
        return value.bytes

    def decode(self, data: memoryview) -> UUID:
        """Return the UUID of 16 bytes.

        Raises:
            DecodeError: If there are not 16.
        """
        if len(data) != self.size:
            raise DecodeError(f"$name needs {self.size} bytes, got {len(data)}")
        return UUID(bytes=bytes(data))
