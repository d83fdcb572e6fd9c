"""Decoders of sample values by extension, for stages of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from functools import partial as applied
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from streamplug.config import check_flags, parse_bytes
from streamplug.errors import ConfigError, DecodeError, UnsafeTypeError
from streamplug.interfaces import MAX_VALUE_BYTES, Encoding, public_urls
from streamplug.plugin import make
from streamplug.plugin_kit import large_value_error
from streamplug_webdataset.extensions import encoding_of
from streamplug_webdataset.handlers import Handler
from streamplug_webdataset.names import KEY, URL
from streamplug_webdataset.stages import MapStage

Decode = Callable[[str, Any], Any]
"""Function of an extension with a leading dot and the bytes; returns the value, or None if unknown."""

_BYTES_IN_PIPELINES = ("class", "count", "htm", "html")
"""Extensions that data sets decode, but webdataset does not."""
_STUBS = {"BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS"}
"""Formats that Pillow reads only with a plugin, or by running a program, as EPS by Ghostscript."""


class Continue(NamedTuple):
    """Result of a decoder whose output is to be decoded by later decoders.

    Attributes:
        key: Extension of the output, with a leading dot.
        data: Bytes of the output.
    """

    key: str
    data: bytes


class DecodingError(DecodeError):
    """A value of a sample cannot be decoded.

    Attributes:
        url: URL of the archive.
        key: Key of the sample.
        k: Name of the value.
        sample: Type of the value, as text.
    """

    def __init__(self, url: Any = None, key: Any = None, k: Any = None, sample: Any = None) -> None:
        """Create an error for one value; its cause gives the reason."""
        super().__init__(f"{key}.{k} in {public_urls(url)} ({sample}) cannot be decoded")
        self.url, self.key, self.k, self.sample = url, key, k, sample

    def because(self, error: Exception) -> DecodingError:
        """Return this error with the cause in its message."""
        self.args = (f"{self.args[0]}: {type(error).__name__}: {error}",)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _decoding_error, (self.args, self.url, self.key, self.k, self.sample)


def _decoding_error(args: tuple[Any, ...], *what: Any) -> DecodingError:
    error = DecodingError(*what)
    error.args = args
    return error


class Decoder:
    """Decodes samples: each value by the first decoder that knows its extension."""

    def __init__(
        self,
        handlers: Iterable[Decode | str],
        pre: Iterable[Decode] | None = None,
        post: Iterable[Decode] | None = None,
        only: str | Iterable[str] | None = None,
        partial: bool = False,
        *,
        unsafe: bool = False,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        """Combine decoders.

        Args:
            handlers: Decoders, or names of image types.
            pre: Decoders to try first; None decompresses ``.gz``.
            post: Decoders to try last; None decodes text, numbers, JSON, arrays and others by extension.
            only: Extensions to decode; other values stay bytes. None decodes all.
            partial: Whether to leave values that are not bytes unchanged; otherwise they are an error.
            unsafe: Whether to decode values whose decoding can run code.
            max_value_bytes: Maximum bytes of a decoded value, for decoders that are named or None.

        Raises:
            ConfigError: If a handler is not a decoder.
        """
        check_flags(allow_unsafe_types=unsafe)
        limit: dict[str, Any] = {"max_value_bytes": parse_bytes(max_value_bytes, "max_value_bytes")}
        own = [
            applied(imagehandler(decoder), **limit) if isinstance(decoder, str) else decoder
            for decoder in handlers
        ]
        pre = pre if pre is None else list(pre)
        post = post if post is None else list(post)
        self._own, self._limit = (own, pre, post), limit
        self._only = set(only.split()) if isinstance(only, str) else only and set(only)
        self._partial = partial
        first: list[Decode] = [applied(gzfilter, **limit)] if pre is None else pre
        last = [applied(basichandlers, unsafe=unsafe, **limit)] if post is None else post
        self._decoders: list[Decode] = [*first, *own, *last]
        for decoder in self._decoders:
            if not callable(decoder):
                raise ConfigError(
                    f"decode({decoder!r:.60}): expected a function, or name of images"
                )

    def trusting(self) -> Decoder:
        """Return a copy that also decodes values whose decoding can run code."""
        own, pre, post = self._own
        return Decoder(own, pre, post, self._only, self._partial, unsafe=True, **self._limit)

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Return a sample with decoded values.

        Raises:
            DecodeError: If a value cannot be decoded.
            UnsafeTypeError: If decoding a value can run code.
        """
        if not isinstance(sample, Mapping):
            raise ConfigError(f"decode() takes dicts, got {type(sample).__name__}: do it earlier")
        return {
            name: value if name.startswith("__") else self._value(name, value, sample)
            for name, value in sample.items()
        }

    def _value(self, name: str, value: Any, sample: Mapping[str, Any]) -> Any:
        if self._only is not None and name not in self._only:
            return value
        if not isinstance(value, bytes):
            if self._partial:
                return value
            raise DecodeError(
                f"{sample.get(KEY)}: {name!r} is {type(value).__name__}, not bytes, so it has been "
                "decoded before; pass partial=True to leave it as it is"
            )
        try:
            return self._decoded(f".{name}", value)
        except (ConfigError, UnsafeTypeError):  # of all samples
            raise
        except Exception as error:
            kind = f"{len(value)} bytes"
            failure = DecodingError(sample.get(URL), sample.get(KEY), name, kind)
            raise failure.because(error) from error

    def _decoded(self, key: str, data: bytes) -> Any:
        for decode in self._decoders:
            value = decode(key, data)
            if isinstance(value, Continue):
                key, data = value
            elif value is not None:
                return value
        return data


class Decoding(MapStage):
    """The stage that decodes values."""

    def __init__(self, decoder: Decoder, handler: Handler) -> None:
        """Decode with `decoder`."""
        super().__init__("decode", decoder, handler)
        self._decoder = decoder

    def trusting(self) -> Decoding:
        """Return a stage that also decodes values that can run code."""
        return Decoding(self._decoder.trusting(), self._handler)


def gzfilter(key: str, data: bytes, *, max_value_bytes: int = MAX_VALUE_BYTES) -> Continue | None:
    """Decompress values with the extension ``.gz``."""
    if not key.endswith(".gz"):
        return None
    return Continue(key[:-3], encoding("gzipped:bytes", max_value_bytes).decode(memoryview(data)))


def basichandlers(
    key: str, data: bytes, *, unsafe: bool = False, max_value_bytes: int = MAX_VALUE_BYTES
) -> Any:
    """Decode a value by the last part of its extension; None if unknown.

    Raises:
        DecodeError: If the value is damaged.
        UnsafeTypeError: If decoding can run code, and `unsafe` is false.
    """
    extension = key.rpartition(".")[2]
    spec = encoding_of(extension)
    if spec == "bytes" or extension in _BYTES_IN_PIPELINES:
        return None
    if extension == "gz":  # `gzfilter` decompresses it
        return None
    if spec == "json" and json.detect_encoding(data) != "utf-8":
        return _decode_other_json(data)
    own = encoding(spec, max_value_bytes)
    if own.unsafe and not unsafe:
        raise UnsafeTypeError(
            f"decoding {key!r} can run code from the data; pass allow_unsafe_types=True to decode() or "
            "WebDataset if you trust its writer, or name what to decode with only="
        )
    return own.decode(memoryview(data))


def _decode_other_json(data: bytes) -> Any:
    """Decode JSON in a Unicode encoding other than UTF-8, which the encoding "json" does not read."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from error


@cache
def encoding(spec: str, max_value_bytes: int = MAX_VALUE_BYTES) -> Encoding:
    """Return the encoding that a spec names."""
    made: Encoding = make("encoding", spec)
    return made.with_max_value_bytes(max_value_bytes)


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Decode:
    """Return a decoder for extensions separated by blanks, such as ``"seg.png jpg"``."""
    endings = tuple(f".{extension}" for extension in extensions.lower().split())

    def handler(key: str, data: bytes) -> Any:
        return f(data) if key.lower().endswith(endings) else None

    return handler


# -- images ---------------------------------------------------------------------------

_MODES = {"l": "L", "rgb": "RGB", "rgba": "RGBA"}

IMAGE_SPECS: Mapping[str, tuple[str, str, str]] = {
    **{f"{mode}8": ("numpy", "uint8", mode) for mode in _MODES},
    **{mode: ("numpy", "float", mode) for mode in _MODES},
    **{f"torch{mode}8": ("torch", "uint8", mode) for mode in _MODES},
    **{f"torch{mode}": ("torch", "float", mode) for mode in _MODES},
    "torch": ("torch", "float", "rgb"),
    **{f"pil{mode}": ("pil", "", mode) for mode in _MODES},
    "pil": ("pil", "", "rgb"),
}
"""Image types by name: kind of value, type of its numbers, and channels."""


def imagehandler(imagespec: str, extensions: Iterable[str] | None = None) -> Decode:
    """Return a decoder of image files.

    Args:
        imagespec: Image type: ``pil``, ``rgb`` (an array of float32 from 0 to 1, height × width × 3)
            or ``torch`` (a tensor, 3 × height × width); ``rgb8``, ``torchrgb8`` of uint8; and all of these
            with ``l`` or ``rgba`` in place of ``rgb``.
        extensions: Extensions of image files; None for those that Pillow reads.

    Raises:
        ConfigError: If there is no such image type, or Pillow or torch is needed and not installed.
    """
    if imagespec not in IMAGE_SPECS:
        raise ConfigError(
            f"decode({imagespec!r}): unknown image type; expected one of {', '.join(IMAGE_SPECS)}"
        )
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(f"decode({imagespec!r}) needs Pillow: pip install pillow") from None
    endings = _readable(Image) if extensions is None else frozenset(extensions)
    kind, numbers, mode = IMAGE_SPECS[imagespec]
    if kind == "torch" and find_spec("torch") is None:
        raise ConfigError(f"decode({imagespec!r}) needs torch: pip install torch")
    return applied(_image, kind, _MODES[mode], numbers == "float", endings)


@cache
def _readable(image: Any) -> frozenset[str]:
    formats_by_ending = image.registered_extensions().items()
    return frozenset(
        ending[1:]
        for ending, name in formats_by_ending
        if name in image.OPEN and name not in _STUBS
    )


@cache
def _formats(image: Any) -> tuple[str, ...]:
    image.init()
    return tuple(name for name in image.ID if name not in _STUBS)


def _image(  # noqa: PLR0917 - key and data are a decoder's
    kind: str,
    mode: str,
    scaled: bool,
    endings: frozenset[str],
    key: str,
    data: bytes,
    *,
    max_value_bytes: int = MAX_VALUE_BYTES,
) -> Any:
    if key.rpartition(".")[2].lower() not in endings:
        return None
    from PIL import Image

    with Image.open(BytesIO(data), formats=_formats(Image)) as opened:
        width, height = opened.size
        if width * height * len(mode) * (4 if scaled else 1) > max_value_bytes:
            raise large_value_error(f"an image of {width} x {height} pixels", max_value_bytes)
        image = opened.convert(mode)
    if kind == "pil":
        return image
    pixels: Any = np.array(image)
    if scaled:
        pixels = pixels.astype(np.float32) / np.float32(255)
    if kind != "torch":
        return pixels
    channels = pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return import_module("torch").from_numpy(channels)
