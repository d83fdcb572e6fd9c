"""Handlers of samples that fail in a stage of a pipeline."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

from streamplug.errors import ConfigError

Handler = Callable[[Exception], Any]
"""Function of an error that raises it, or returns True to leave the sample out."""

_REFUSED = ("ignore_and_stop", "warn_and_stop")
_LOG = logging.getLogger("streamplug")
_noted: set[str] = set()


def reraise_exception(exn: Exception) -> Any:
    """Raise the error, as all stages do by default."""
    raise exn


def warn_and_continue(exn: Exception) -> bool:
    """Warn about the error, and leave the sample out."""
    warnings.warn(f"a sample is left out: {exn!r:.500}", stacklevel=2)
    return True


def ignore_and_continue(exn: Exception) -> bool:
    """Leave the sample out; the first error of each type is logged once per process."""
    kind = type(exn).__name__
    if kind not in _noted:
        _noted.add(kind)
        _LOG.warning(
            "samples are left out without further notice, as handler=ignore_and_continue asks, the first "
            "one of %.500r",
            exn,
        )
    return True


def ignore_and_stop(exn: Exception) -> bool:
    """Refused: it would end an epoch silently."""
    raise _refusal("ignore_and_stop") from exn


def warn_and_stop(exn: Exception) -> bool:
    """Refused: it would end an epoch at the first error."""
    raise _refusal("warn_and_stop") from exn


def checked(handler: Handler, stage: str) -> Handler:
    """Return a handler of a stage after checking it.

    Raises:
        ConfigError: If it would lose samples silently, or is not callable.
    """
    if getattr(handler, "__name__", "") in _REFUSED:
        raise _refusal(f"{stage}: handler={handler.__name__}")
    if not callable(handler):
        raise ConfigError(f"{stage}: handler={handler!r:.60}: expected a function of an error")
    return handler


def left_out(handler: Handler, error: Exception, stage: str) -> None:
    """Call a handler; returns if the sample is to be left out.

    Raises:
        ConfigError: If the handler asks to end the epoch, which would lose the remaining samples.
    """
    if not handler(error):
        raise ConfigError(
            f"{stage}: the handler returned nothing, or False, to end the epoch: return True to leave the "
            "sample out, or raise the error"
        ) from error


def _refusal(what: str) -> ConfigError:
    return ConfigError(
        f"{what}: samples would be lost in silence; use warn_and_continue, or a function that notes "
        "the error and returns True"
    )
