"""Files of sound or video that are opened on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, wraps
from typing import Any, ClassVar

from streamplug.errors import DecodeError
from streamplug.interfaces import MAX_VALUE_BYTES, LazyValue, StoredRange
from streamplug_av.container import open_container, select_stream
from streamplug_av.value_file import ValueFile


class MediaFile(LazyValue):
    """A file of which one stream is read. `DecodeError`s of its public members name its place."""

    _kind: ClassVar[str]
    """``"audio"`` or ``"video"``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, member in list(vars(cls).items()):
            if name.startswith("_"):
                continue
            if isinstance(member, cached_property):
                member.func = _naming_place(member.func)
            elif isinstance(member, property):
                setattr(cls, name, property(_naming_place(member.fget), doc=member.__doc__))
            elif callable(member):
                setattr(cls, name, _naming_place(member))

    def __init__(
        self, stored: bytes | memoryview | StoredRange, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> None:
        """Take the bytes of a file, or the place from which they are read, and the bound of a result."""
        self.file = ValueFile(stored)
        self.max_value_bytes = max_value_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        value = self.file.value
        stored = bytes(value) if isinstance(value, memoryview) else value
        place = None if self.place is None else str(self.place)
        made = partial(type(self), max_value_bytes=self.max_value_bytes)
        return made, (stored,), {"place": place}

    def __repr__(self) -> str:
        try:
            about = self._describe()
        except DecodeError as error:
            about = str(error)
        return f"<{type(self).__name__}: {about}>"

    def _describe(self) -> str:
        raise NotImplementedError

    @cached_property
    def _container(self) -> Any:
        return open_container(self.file)

    @cached_property
    def _stream(self) -> Any:
        return select_stream(self._container, self._kind)

    def _reopen(self) -> None:
        """Open the file again, so that decoding starts at its begin."""
        for name in ("_container", "_stream"):
            self.__dict__.pop(name, None)

    @property
    def codec(self) -> str:
        """Name of the codec, such as ``"aac"`` or ``"h264"``."""
        return str(self._stream.codec_context.name)


def _naming_place(function: Any) -> Callable[..., Any]:
    """Return a method that names the place of its value in a `DecodeError`."""

    @wraps(function)
    def call(self: MediaFile, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except DecodeError as error:
            raise self.name_place(error) from error.__cause__

    return call
