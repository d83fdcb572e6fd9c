"""Counters with the totals of all data sets of a process, by attributes."""

from __future__ import annotations

import threading
from collections import Counter
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
    "wait_seconds": ("wait.time", "s", "Time that iteration waited for bytes, added up"),
}
"""Name, unit and description, by name in `Stats`."""


class Totals:
    """Sums of statistics, exported by the observable counters of one meter provider."""

    def __init__(self, provider: MeterProvider | None) -> None:
        """Create the counters."""
        # Replaced as a whole: a finalizer may run while this thread reads it.
        self._state: tuple[tuple[Source, ...], Mapping[Key, Counter[str]]] = ((), {})
        self._lock = threading.RLock()
        meter = metrics.get_meter("streamplug", meter_provider=provider)
        for field, (name, unit, text) in _METRICS.items():
            observe = partial(self._observe, field)
            meter.create_observable_counter(f"streamplug.{name}", [observe], unit, text)

    def add(self, stats: Callable[[], Stats], attributes: Attributes, owner: object) -> None:
        """Add the statistics of `stats`; when `owner` is collected, their last values are kept."""
        source = (stats, _key(attributes))
        with self._lock:
            self._state = ((*self._state[0], source), self._state[1])
        finalize(owner, self._settle, source).atexit = False

    def _settle(self, source: Source) -> None:
        # Counters must not decrease, but the source can be freed.
        stats, key = source
        last = Counter(stats().as_dict())
        with self._lock:
            sources, past = self._state
            total = past.get(key, Counter()) + last
            self._state = (tuple(s for s in sources if s is not source), {**past, key: total})

    def _observe(self, field: str, _options: CallbackOptions) -> Iterable[Observation]:
        sources, past = self._state
        sums = {key: counts[field] for key, counts in past.items()}
        for stats, key in sources:
            sums[key] = sums.get(key, 0) + getattr(stats(), field)
        return [Observation(value, dict(key)) for key, value in sums.items()]


def _key(attributes: Attributes) -> Key:
    return tuple(sorted(attributes.items()))


_of_others: WeakKeyDictionary[MeterProvider, Totals] = WeakKeyDictionary()
_of_global: list[Totals] = []
_making = threading.Lock()


def totals_of(provider: MeterProvider | None) -> Totals:
    """Return the totals of a meter provider, None for the global one; a meter has each counter once."""
    with _making:
        if provider is None:
            if not _of_global:
                _of_global.append(Totals(None))
            return _of_global[0]
        if provider not in _of_others:
            _of_others[provider] = Totals(provider)
        return _of_others[provider]
