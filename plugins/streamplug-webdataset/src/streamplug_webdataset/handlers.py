"""What to do about a sample that a stage of a pipeline cannot work with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from streamplug.errors import ConfigError

Handler = Callable[[Exception], Any]
"""Takes an error. Raises it, or returns True to leave the sample out."""

_REFUSED = ("ignore_and_continue", "ignore_and_stop", "warn_and_stop")


def reraise_exception(error: Exception) -> Any:
    """Raise the error: what all stages do by default."""
    raise error


def warn_and_continue(error: Exception) -> bool:
    """Warn of the error, and leave the sample out."""
    warnings.warn(f"a sample is left out: {error!r:.500}", stacklevel=2)
    return True


def ignore_and_continue(_error: Exception) -> bool:
    """Stand for what is refused: leaving samples out in silence."""
    raise _refusal("ignore_and_continue")


def ignore_and_stop(_error: Exception) -> bool:
    """Stand for what is refused: ending an epoch in silence."""
    raise _refusal("ignore_and_stop")


def warn_and_stop(_error: Exception) -> bool:
    """Stand for what is refused: ending an epoch at the first error."""
    raise _refusal("warn_and_stop")


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
