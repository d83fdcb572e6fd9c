"""Compressions of shard files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, ClassVar

from streamplug.errors import ConfigError, DecompressError
from streamplug.types import Buffer


class Compression(ABC):
    """A whole-file compression, with or without levels.

    An instance may be used by several threads at once, pickles, and holds no open resources.

    Attributes:
        api_version: Version of this interface that a subclass was written for.
        suffix: Ending of a compressed file's name, without a dot; empty if nothing is compressed.
        levels: The levels it takes, from fastest to smallest; None when it has none.
        default_level: The level of the bare name.
    """

    api_version: ClassVar[int] = 1
    suffix: ClassVar[str]
    levels: ClassVar[range | None] = None
    default_level: ClassVar[int | None] = None

    def __init__(self, level: int | None = None) -> None:
        """Choose a level.

        Raises:
            ConfigError: If the level is not one of `levels`.
        """
        if level is not None and (self.levels is None or level not in self.levels):
            raise self._refused(level)
        self.level = self.default_level if level is None else level

    @classmethod
    def from_spec(cls, argument: str | None) -> Compression:
        """Make the compression for what follows its name: ``"11"`` for ``"zstd:11"``.

        Raises:
            ConfigError: If the argument is not one of `levels`.
        """
        if argument is None:
            return cls()
        # No codec has levels of four digits, and int() balks at very long ones.
        if not (argument.isascii() and argument.isdigit() and len(argument) < 4):
            raise cls._refused(argument)
        return cls(int(argument))

    @classmethod
    def _refused(cls, level: object) -> ConfigError:
        takes = "no level" if cls.levels is None else f"levels {cls.levels[0]} to {cls.levels[-1]}"
        return ConfigError(f"compression {cls.suffix or 'none'!r} takes {takes}, got {level!r}")

    @abstractmethod
    def compress(self, data: Buffer) -> bytes:
        """Return `data` compressed; the same input and level give the same bytes each time."""

    @abstractmethod
    def decompress(self, data: Buffer, *, max_size: int) -> bytes:
        """Return the original bytes, stopping as soon as they exceed `max_size`.

        Raises:
            DecompressError: If the data is damaged, ends early, has bytes after its end, or
                expands beyond `max_size`. The bound holds while decompressing: memory in use stays
                in the order of `max_size` whatever the data claims.
        """

    def decompress_stream(self, source: BinaryIO, target: BinaryIO, *, max_size: int) -> int:
        """Decompress from one open, seekable file to another; return the number of bytes written.

        The default goes through memory; codecs that can should do it piece by piece.

        Raises:
            DecompressError: As `decompress` does; `target` may then hold a part.
        """
        return target.write(self.decompress(source.read(), max_size=max_size))


def too_large_error(suffix: str, max_size: int) -> DecompressError:
    """Return the error for data that expands beyond its bound."""
    return DecompressError(f"'{suffix}' data expands beyond the {max_size} bytes announced for it")


def damaged(suffix: str, reason: object) -> DecompressError:
    """Return the error for data that is not a whole compressed file."""
    return DecompressError(f"'{suffix}' data is damaged: {reason}")
