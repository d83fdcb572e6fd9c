"""Callback that logs events."""

from __future__ import annotations

import json
import logging

from streamplug.errors import ConfigError
from streamplug.interfaces import Callback, Event
from streamplug.types import World

_LOG = logging.getLogger("streamplug.events")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class Log(Callback):
    """Logs each event with its rank and worker as a line of JSON, to the logger ``streamplug.events``."""

    def __init__(self, level: str = "info") -> None:
        """Set the level: ``debug``, ``info`` or ``warning``."""
        if level not in _LEVELS:
            raise ConfigError(f"log:{level}: choose one of {', '.join(_LEVELS)}")
        self._level = _LEVELS[level]

    @classmethod
    def from_spec(cls, argument: str | None) -> Log:
        return cls() if argument is None else cls(argument)

    def on_event(self, event: Event, world: World) -> None:
        if _LOG.isEnabledFor(self._level):
            fields = {**event.as_dict(), "rank": world.rank, "worker": world.worker}
            _LOG.log(self._level, json.dumps(fields))
