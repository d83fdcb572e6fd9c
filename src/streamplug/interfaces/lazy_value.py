"""Values that decode their data on first use."""

from __future__ import annotations

from streamplug.errors import DecodeError


class LazyValue:
    """Base of values that decode their data on first use, with errors that say where these are stored.

    Attributes:
        place: Set by the reader; its `str` names the shard, the sample and the column. None if unknown.
    """

    place: object = None

    def decode_whole(self) -> None:
        """Decode all of the value, to find out whether it is damaged.

        Raises:
            DecodeError: If it is.
        """
        raise NotImplementedError

    def name_place(self, error: DecodeError) -> DecodeError:
        """Return an error of this value with its place in front, unless that is there already."""
        if self.place is None or str(error).startswith(str(self.place)):
            return error
        return DecodeError(f"{self.place}: {error}")


def lazy_values(value: object) -> list[LazyValue]:
    """Return the lazy values in a decoded value: itself, or items of a list, a tuple or a dict."""
    if isinstance(value, LazyValue):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [lazy for item in value for lazy in lazy_values(item)]
    return []
