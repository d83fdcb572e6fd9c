"""Counters with the totals of all data sets of a process, by attributes."""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias
from weakref import WeakKeyDictionary, finalize

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from streamplug.interfaces import Stats

Attributes: TypeAlias = "Mapping[str, str | int | float | bool]"
Key: TypeAlias = "tuple[tuple[str, str | int | float | bool], ...]"
Source: TypeAlias = "tuple[Callable[[], Stats], Key]"

_METRICS: Mapping[str, tuple[str, str, str]] = {
    "samples": ("samples", "{sample}", "Samples handed out"),
    "batches": ("batches", "{batch}", "Batches handed out"),
    "downloads": ("downloads", "{file}", "Files downloaded"),
    "downloaded_bytes": ("downloaded", "By", "Bytes of files downloaded"),
    "download_seconds": ("download.time", "s", "Time that downloads took, added up"),
    "cache_hits": ("cache_hits", "{file}", "Files that were in the cache"),
    "range_requests": ("range_requests", "{request}", "Parts of files asked for"),
    "range_bytes": ("ranged", "By", "Bytes of parts of files"),
    "retries": ("retries", "{attempt}", "Attempts that failed and were made again"),
    "evictions": ("evictions", "{file}", "Files removed from the cache to make room"),
    "evicted_bytes": ("evicted", "By", "Bytes of files removed from the cache to make room"),
    "repairs": ("repairs", "{file}", "Damaged files removed from the cache to come anew"),
    "substitutions": (
        "substitutions",
        "{sample}",
        "Samples that could not be read, in whose place others were handed out",
    ),
}
"""Name, unit and description, by name in `Stats`."""

_CAUSES = ("storage", "decode", "transform", "handover")
_WAITS = {f"{cause}_wait_seconds": {"streamplug.cause": cause} for cause in _CAUSES}
"""Attributes of the counter of waits, by name in `Stats`."""


class Totals:
    """Sums of statistics, exported by the observable counters of one meter provider."""

    def __init__(self, provider: MeterProvider | None) -> None:
        """Create the counters."""
        self.clear()
        meter = metrics.get_meter("streamplug", meter_provider=provider)
        for field, (name, unit, text) in _METRICS.items():
            observe = partial(self._observe, {field: {}})
            meter.create_observable_counter(f"streamplug.{name}", [observe], unit, text)
        meter.create_observable_counter(
            "streamplug.wait.time",
            [partial(self._observe, _WAITS)],
            "s",
            "Time in next() of the loop",
        )

    def clear(self) -> None:
        """Drop all statistics, as in a forked process: those of its parent are exported there."""
        self._sources: list[Source] = []
        self._past: Counter[tuple[Key, str]] = Counter()
        self._lock = threading.Lock()
        # Filled by finalizers. The garbage collector may run them inside any block of this class, so they
        # take no lock.
        self._ended: deque[Source] = deque()

    def add(self, stats: Callable[[], Stats], attributes: Attributes, owner: object) -> None:
        """Add the statistics of `stats`; when `owner` is collected, their last values are kept."""
        source = (stats, _key(attributes))
        with self._lock:
            self._settle()
            self._sources.append(source)
        finalize(owner, self._ended.append, source).atexit = False

    def _settle(self) -> None:
        """Replace the sources of collected owners by their last values, as counters must not decrease."""
        while self._ended:
            stats, key = source = self._ended.popleft()
            self._past.update({(key, field): n for field, n in stats().as_dict().items()})
            self._sources.remove(source)

    def _observe(
        self, fields: Mapping[str, Attributes], _options: CallbackOptions
    ) -> Iterable[Observation]:
        with self._lock:
            self._settle()
            sums = Counter({place: n for place, n in self._past.items() if place[1] in fields})
            for stats, key in self._sources:
                totals = stats()
                for field in fields:
                    sums[key, field] += getattr(totals, field)
        return [Observation(n, {**dict(key), **fields[name]}) for (key, name), n in sums.items()]


def _key(attributes: Attributes) -> Key:
    return tuple(sorted(attributes.items()))


_by_provider: WeakKeyDictionary[MeterProvider, Totals] = WeakKeyDictionary()
_of_global: list[Totals] = []
_creating = threading.Lock()


def _clear_all() -> None:
    for totals in [*_of_global, *_by_provider.values()]:
        totals.clear()
    _creating.release()


# The counters of a rank include its workers, and a push exporter goes on in a forked worker.
os.register_at_fork(
    before=_creating.acquire, after_in_parent=_creating.release, after_in_child=_clear_all
)


def totals_of(provider: MeterProvider | None) -> Totals:
    """Return the totals of a meter provider, None for the global one; a meter has each counter once."""
    with _creating:
        if provider is None:
            if not _of_global:
                _of_global.append(Totals(None))
            return _of_global[0]
        if provider not in _by_provider:
            _by_provider[provider] = Totals(provider)
        return _by_provider[provider]
