"""What to do about a sample that a stage of a pipeline cannot work with."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

from streamplug.errors import ConfigError

Handler = Callable[[Exception], Any]
"""Takes an error. Raises it, or returns True to leave the sample out."""

_REFUSED = ("ignore_and_stop", "warn_and_stop")
_LOG = logging.getLogger("streamplug")
_noted: set[str] = set()


def reraise_exception(exn: Exception) -> Any:
    """Raise the error: what all stages do by default."""
    raise exn


def warn_and_continue(exn: Exception) -> bool:
    """Warn of the error, and leave the sample out."""
    warnings.warn(f"a sample is left out: {exn!r:.500}", stacklevel=2)
    return True


def ignore_and_continue(exn: Exception) -> bool:
    """Leave the sample out; the first error of each type is noted in the log, once in a process."""
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
    """Stand for what is refused: ending an epoch in silence."""
    raise _refusal("ignore_and_stop") from exn


def warn_and_stop(exn: Exception) -> bool:
    """Stand for what is refused: ending an epoch at the first error."""
    raise _refusal("warn_and_stop") from exn


def checked(handler: Handler, stage: str) -> Handler:
    """Return a handler of a stage.

    Raises:
        ConfigError: If it would lose samples in silence, or is no function.
    """
    if getattr(handler, "__name__", "") in _REFUSED:
        raise _refusal(f"{stage}: handler={handler.__name__}")
    if not callable(handler):
        raise ConfigError(f"{stage}: handler={handler!r:.60}: expected a function of an error")
    return handler


def left_out(handler: Handler, error: Exception, stage: str) -> None:
    """Let a handler decide about a sample; returns if it is to be left out.

    Raises:
        ConfigError: If it wants the epoch to end there, which would lose all that follows.
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
