"""Compressions of shard files."""

from __future__ import annotations

from abc import abstractmethod
from typing import BinaryIO, ClassVar

from streamplug.errors import ConfigError
from streamplug.interfaces.plugin import Plugin
from streamplug.types import Buffer


class Compression(Plugin):
    """A compression of whole files, with or without levels.

    Instances are thread-safe, pickle, and hold no open resources.

    Attributes:
        suffix: File name suffix without a dot; empty for no compression.
        levels: Valid levels, from fastest to smallest; None if there are none.
        default_level: Level if none is given.
    """

    suffix: ClassVar[str]
    levels: ClassVar[range | None] = None
    default_level: ClassVar[int | None] = None

    def __init__(self, level: int | None = None) -> None:
        """Set the level.

        Raises:
            ConfigError: If the level is not in `levels`.
        """
        if level is not None and (self.levels is None or level not in self.levels):
            raise self._refused(level)
        self.level = self.default_level if level is None else level

    @classmethod
    def from_spec(cls, argument: str | None) -> Compression:
        """Return the compression for the argument after its name: ``"11"`` for ``"zstd:11"``.

        Raises:
            ConfigError: If the argument is not in `levels`.
        """
        if argument is None:
            return cls()
        # No codec has levels of four digits, and int() raises for very long ones.
        if not (argument.isascii() and argument.isdigit() and len(argument) < 4):
            raise cls._refused(argument)
        return cls(int(argument))

    @classmethod
    def _refused(cls, level: object) -> ConfigError:
        takes = "no level" if cls.levels is None else f"levels {cls.levels[0]} to {cls.levels[-1]}"
        return ConfigError(f"compression {cls.suffix or 'none'!r} takes {takes}, got {level!r}")

    @abstractmethod
    def compress(self, data: Buffer) -> bytes:
        """Return the compressed data; deterministic for a given level."""

    @abstractmethod
    def decompress(self, data: Buffer, *, max_size: int) -> bytes:
        """Return the decompressed data, stopping as soon as it exceeds `max_size`.

        Raises:
            DecompressError: If the data is damaged, truncated, followed by other bytes, or larger than
                `max_size` when decompressed. Memory in use stays in the order of `max_size` whatever the
                header says.
        """

    def decompress_stream(self, source: BinaryIO, target: BinaryIO, *, max_size: int) -> int:
        """Decompress from one open, seekable file to another; return the number of bytes written.

        The default holds everything in memory; codecs that can should decompress in chunks.

        Raises:
            DecompressError: As for `decompress`; `target` may then hold a part.
        """
        return target.write(self.decompress(source.read(), max_size=max_size))
