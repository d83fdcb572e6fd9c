"""Writers of archives without an index, with the arguments of webdataset."""

from __future__ import annotations

import bz2
import gzip
import logging
import lzma
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from streamplug.config import parse_bytes, whole_number
from streamplug.errors import ConfigError, EncodeError, EncodeTypeError, WriterError
from streamplug.interfaces import public_url
from streamplug_webdataset.decoding import encoding
from streamplug_webdataset.headers import Headers
from streamplug_webdataset.image_files import image_file, is_image_extension
from streamplug_webdataset.members import BLOCK
from streamplug_webdataset.names import KEY, URL, extension_problem, key_problem
from streamplug_webdataset.shardlists import local_name
from streamplug_webdataset.writer import default_encoding

Encoder = (
    bool
    | None
    | Mapping[str, Callable[[Any], Any]]
    | Callable[[Mapping[str, Any]], Mapping[str, Any]]
)

_LOG = logging.getLogger("streamplug")
_MAX_VALUE = 8**11 - 1
_MAX_NAME = 31
_SPECS_WITH_NONE = ("json", "pkl", "msgpack", "cbor", "pth")
"""Encodings for which None is a value like any other."""
_PACKAGES = {**dict.fromkeys(("mp", "msg", "msgpack"), "streamplug-msgpack"), "cbor": "cbor2"}


class TarWriter:
    """Writes samples into one archive; use it in a ``with`` statement.

    Args:
        fileobj: The path of the archive, ``-`` for the standard output, or a file that is open for writing.
        user: Name of the owner in the archive, up to 31 bytes.
        group: Name of its group in the archive, up to 31 bytes.
        mode: Permissions of the files in the archive, as for `os.chmod`.
        compress: ``"gz"`` (or True), ``"bz2"`` or ``"xz"``; False for none; None to choose by the extension
            of the path.
        encoder: True to encode values by their extension (bytes and text are written unchanged, except for
            ``….gz``, which are compressed); False or None if all values are bytes; a dict of functions by
            extension, or by its last part, for values that are not bytes or text; or a function that takes a
            sample and returns one with bytes.
        keep_meta: Whether to write values whose names begin with an underscore, which are text. The URL from
            which a sample was read is never written: readers have that of the archive in its place.
        mtime: Modification time of the files, in whole seconds since 1970; fixed, so that the same samples
            give the same bytes. None for the current time.
        format: None only: archives are ustar, with PAX headers for long names.

    Raises:
        ConfigError: If an argument is invalid.
    """

    def __init__(  # noqa: PLR0917 - those of webdataset, in its order
        self,
        fileobj: str | Path | IO[bytes],
        user: str = "bigdata",
        group: str = "bigdata",
        mode: int = 0o444,
        compress: bool | str | None = None,
        encoder: Encoder = True,
        keep_meta: bool = False,
        mtime: float | None = 0,
        format: None = None,  # noqa: A002 - the word that users know
    ) -> None:
        if format is not None:
            raise ConfigError(
                f"format={format!r:.40}: archives are ustar, with names of POSIX (PAX) where these are long; "
                "leave it out"
            )
        seconds = int(time.time()) if mtime is None else whole_number("mtime", _floor(mtime), 0)
        if whole_number("mode", mode, 0) > 0o7777:
            raise ConfigError(f"mode={mode!r:.40}: expected permissions, such as 0o444")
        owner = _name("user", user), _name("group", group)
        if seconds >= 8**11:
            raise ConfigError(f"mtime={mtime}: expected seconds since 1970")
        if isinstance(fileobj, str) and fileobj.startswith("pipe:"):
            raise ConfigError(
                f"{fileobj[:5]!r}: no commands are run; write to a local path, or to an open file such as "
                "the stdin of a subprocess"
            )
        if isinstance(fileobj, str) and "://" in fileobj:
            raise ConfigError(
                f"{public_url(fileobj)!r:.80}: a local path, please; WebDatasetWriter uploads to URLs"
            )
        if isinstance(fileobj, str):
            fileobj = sys.stdout.buffer if fileobj == "-" else local_name(fileobj)
        self._encode = _encoder(encoder)
        self._headers = Headers(seconds, mode=mode, user=owner[0], group=owner[1])
        self._keep_meta = keep_meta
        self._ending: dict[str, Callable[[str, int], bytes]] = {}
        self._last: str | None = None
        self._open = ExitStack()
        opened: Any = _compression(compress, fileobj)
        target: Any = fileobj
        if isinstance(fileobj, (str, Path)):
            target = Path(fileobj).open("wb")  # noqa: SIM115 - close() closes it
            self._open.enter_context(target)
        elif hasattr(target, "flush"):  # after what is compressed
            self._open.callback(target.flush)
        self._out: Any = target
        if opened is not None:
            self._out = self._open.enter_context(opened(target))
        self._closed = False

    def write(self, obj: Mapping[str, Any]) -> int:
        """Write a sample: its values by extension, and its ``__key__``.

        Values whose names begin with an underscore are not written, unless `keep_meta`; nor are those that
        are None, unless their encoding has a None, as JSON does.

        Returns:
            Size of the encoded values in bytes, without headers and padding.

        Raises:
            EncodeError: If a value cannot be stored, or the key is invalid or repeated.
            WriterError: If the archive is closed.
        """
        if self._closed:
            raise WriterError("the archive is complete")
        _check_sample(obj)
        encoded = self._encode(obj)
        key = encoded.get(KEY)
        if not isinstance(key, str):
            raise EncodeTypeError(f"a sample needs a {KEY!r}, a str, got {key!r:.80}")
        problem = key_problem(key) or (key == self._last and "is that of the sample before") or None
        if problem:
            raise EncodeError(f"the key {key!r:.80} {problem}")
        parts = [
            self._member(key, name, encoded[name])
            for name in sorted(encoded)
            if name not in (KEY, URL) and encoded[name] is not None
            if self._keep_meta or not name.startswith("_")
        ]
        if not parts:
            raise EncodeError(f"the sample {key!r} has no values")
        self._out.write(b"".join(piece for part in parts for piece in part))
        self._last = key
        return sum(memoryview(value).nbytes for _, value, _ in parts)

    def _member(self, key: str, name: str, value: Any) -> tuple[bytes, Any, bytes]:
        """Return the header of a value, the value and its padding."""
        if name not in self._ending:
            if not name.startswith("_") and (problem := extension_problem(name)):
                raise EncodeError(f"value {name!r} {problem}")
            self._ending[name] = self._headers.ending(name)
        if isinstance(value, str):
            value = _encode_text(name, value)
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise EncodeTypeError(f"{key}.{name}: expected bytes, got {type(value).__name__}")
        size = memoryview(value).nbytes
        if size > _MAX_VALUE:
            raise EncodeError(f"{key}.{name}: {size} bytes: archives take values below 8 GiB")
        return self._ending[name](key, size), value, bytes(-size % BLOCK)

    def close(self) -> None:
        """Close the archive; a second call has no effect."""
        if not self._closed:
            self._closed = True
            with self._open:
                self._out.write(bytes(2 * BLOCK))

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
        else:  # no end-of-archive marker, so that readers see that it is incomplete
            self._closed = True
            self._open.close()


class ShardWriter:
    """Writes samples into numbered archives; use it in a ``with`` statement.

    The archives have no index; `WebDatasetWriter` writes one, and uploads.

    Args:
        pattern: Path with a format for the number, such as ``"train-%06d.tar"``.
        maxcount: Maximum number of samples per archive.
        maxsize: Size of the encoded values of an archive at which the next one is begun, in bytes, or text
            such as ``"1gb"``.
        post: Called with the path of each complete archive.
        start_shard: First number.
        verbose: Whether to log the start of each archive.
        opener: Opens the file for a path; None opens a local one. As in webdataset, files that it opens are
            not closed, but flushed before `post`, and their archives are compressed only if `compress` says
            so, whatever their extension.
        **options: As for `TarWriter`.

    Raises:
        ConfigError: If an argument is invalid.
    """

    def __init__(  # noqa: PLR0917 - those of webdataset, in its order
        self,
        pattern: str | Path,
        maxcount: int = 100_000,
        maxsize: float | str = 3e9,
        post: Callable[[str], Any] | None = None,
        start_shard: int = 0,
        verbose: bool | int = 1,
        opener: Callable[[str], IO[bytes]] | None = None,
        **options: Any,
    ) -> None:
        self._pattern = str(pattern)
        try:
            distinct = self._pattern % 0 != self._pattern % 1
        except (TypeError, ValueError):
            distinct = False
        if not distinct:
            raise ConfigError(
                f"pattern={public_url(self._pattern)!r}: expected a number in it, such as x-%06d.tar"
            )
        self._maxcount = whole_number("maxcount", maxcount, 1)
        self._maxsize = parse_bytes(_floor(maxsize), "maxsize")
        TarWriter(BytesIO(), **options).close()  # raises for invalid options
        self._post, self._opener, self._options = post, opener, options
        self._verbose = verbose
        self.shard = whole_number("start_shard", start_shard, 0)
        self.total = self.count = self.size = 0
        self.fname: str | None = None
        self._archive: TarWriter | None = None
        self._closed = False

    def write(self, obj: Mapping[str, Any]) -> None:
        """Write a sample; see `TarWriter.write`."""
        if self._closed:
            raise WriterError("the archives are complete")
        full = self.count >= self._maxcount or self.size >= self._maxsize
        if self._archive is None or full:
            self.next_stream()
        if self._archive is not None:
            self.size += self._archive.write(obj)
            self.count += 1
            self.total += 1

    def next_stream(self) -> None:
        """Close the archive, and open the next one."""
        self.finish()
        self.fname = self._pattern % self.shard
        if self._verbose:
            _LOG.info("writing %s after %d samples", self.fname, self.total)
        target = self.fname if self._opener is None else self._opener(self.fname)
        self._archive = TarWriter(target, **self._options)
        self.shard += 1
        self.count = self.size = 0

    def finish(self) -> None:
        """Close the archive."""
        archive, self._archive = self._archive, None
        if archive is not None:
            archive.close()
            if self._post is not None and self.fname is not None:
                self._post(self.fname)

    def close(self) -> None:
        """Close the last archive; a second call has no effect."""
        self.finish()
        self._closed = True

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
            return
        self._closed, archive, self._archive = True, self._archive, None  # `post` must not get it
        if archive is not None:
            archive.__exit__(kind, error, traceback)


def _check_sample(sample: Any) -> None:
    if not isinstance(sample, Mapping) or not all(isinstance(name, str) for name in sample):
        raise EncodeTypeError(f"a sample is a dict of values by extension, got {sample!r:.80}")


def _floor(number: Any) -> Any:
    """Return a float as a whole number; everything else, which checks refuse, as it is."""
    return int(number) if isinstance(number, float) and math.isfinite(number) else number


def _encoder(encoder: Encoder) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    if encoder is True:
        return lambda sample: {name: _encoded(name, value) for name, value in sample.items()}
    if encoder is False or encoder is None:
        return lambda sample: sample
    if isinstance(encoder, Mapping):
        functions = encoder
        return lambda sample: {n: _encoded_by(functions, n, v) for n, v in sample.items()}
    if callable(encoder):
        return encoder
    raise ConfigError(
        f"encoder={encoder!r:.80}: expected True, False, functions by extension, or one"
    )


def _encoded(name: str, value: Any) -> Any:
    if name.startswith("_"):
        return value
    if isinstance(value, str):  # it is taken as encoded, also as JSON
        value = _encode_text(name, value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return gzip.compress(value, mtime=0) if name.endswith(".gz") else value
    spec = default_encoding(name, value)
    if value is None and spec.rpartition(":")[2] not in _SPECS_WITH_NONE:
        return None
    if is_image_extension(name):
        return _named(name, image_file, name, value)
    if spec == "ten" and isinstance(value, np.ndarray):
        value = [value]
    if spec == "bytes":
        needed = _PACKAGES.get(name.rpartition(".")[2])
        advice = f"; install {needed} to write such values" if needed else ""
        raise EncodeTypeError(f"{name!r}: expected bytes, got {type(value).__name__}{advice}")
    return _named(name, encoding(spec).encode, value)


def _encoded_by(functions: Mapping[str, Callable[[Any], Any]], name: str, value: Any) -> Any:
    """Encode a value with the function of its whole extension, or else of the last part of it."""
    if name.startswith("_"):
        return value
    extension = name.removesuffix(".gz").lower()
    function = functions.get(extension) or functions.get(extension.rpartition(".")[2])
    if function is not None and not isinstance(value, (str, bytes, bytearray, memoryview)):
        value = function(value)
    if isinstance(value, str):
        value = _encode_text(name, value)
    return gzip.compress(value, mtime=0) if name.endswith(".gz") and value is not None else value


def _encode_text(name: str, value: str) -> bytes:
    encoded: bytes = _named(name, encoding("str").encode, value)
    return encoded


def _named(name: str, encode: Callable[..., Any], *args: Any) -> Any:
    """Encode a value, with its name in errors."""
    try:
        return encode(*args)
    except ConfigError:
        raise
    except EncodeError as error:
        raise type(error)(f"{name!r}: {error}") from error
    except Exception as error:
        raise EncodeTypeError(f"{name!r}: {type(error).__name__}: {error}") from error


def _name(what: str, name: str) -> bytes:
    """Return the name of a user or a group, encoded.

    Raises:
        ConfigError: If it is invalid.
    """
    encoded = str(name).encode()
    if len(encoded) > _MAX_NAME or b"\x00" in encoded:
        raise ConfigError(f"{what}={name!r:.80}: expected a name of up to {_MAX_NAME} bytes")
    return encoded


_ENDINGS = {".gz": "gz", ".tgz": "gz", ".bz2": "bz2", ".xz": "xz"}
_OPENED: dict[Any, Callable[[Any], Any]] = {
    "gz": lambda target: gzip.GzipFile("", "wb", fileobj=target, mtime=0),
    "bz2": lambda target: bz2.BZ2File(target, "wb"),
    "xz": lambda target: lzma.LZMAFile(target, "wb"),  # noqa: SIM115 - the writer closes it
}


def _compression(compress: Any, target: Any) -> Callable[[Any], Any] | None:
    """Return a function that opens a compressed stream over a file; None for no compression."""
    if compress is None and isinstance(target, (str, Path)):
        compress = _ENDINGS.get(Path(target).suffix)
    kind = "gz" if compress is True else compress
    if kind in (None, False):
        return None
    if kind not in _OPENED:
        raise ConfigError(f"compress={compress!r}: expected gz, bz2, xz, True, False or None")
    return _OPENED[kind]
