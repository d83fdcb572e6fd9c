"""Callback that exports OpenTelemetry metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from streamplug.errors import ConfigError
from streamplug.interfaces import Callback, Event, ShardDownloaded, Stalled, Stats
from streamplug.types import World
from streamplug_opentelemetry.totals import totals_of

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Histogram bucket boundaries in seconds."""

_SCHEME = re.compile("([^/]+):/")  # some URLs have one slash, such as dbfs:/path


class OpenTelemetry(Callback):
    """Exports counters and histograms through a meter of opentelemetry-api.

    The counters are those of `dataset.stats()`: the totals of a rank including its loader workers,
    observed in the process that created the data set. Histograms are recorded in the process of each event,
    so those of loader workers require a meter provider there; see the README.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        attributes: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        """Set the meter provider and the attributes.

        Args:
            meter_provider: The meter provider; None is the global one, which spawned workers always use.
            attributes: Attributes added to all metrics.

        Raises:
            ConfigError: If the provider or an attribute is invalid.
        """
        unchecked: Any = {} if attributes is None else attributes
        if not (meter_provider is None or hasattr(meter_provider, "get_meter")):
            raise ConfigError(f"meter_provider={meter_provider!r:.60}: expected a MeterProvider")
        if not (
            isinstance(unchecked, Mapping) and all(isinstance(name, str) for name in unchecked)
        ):
            raise ConfigError(f"attributes={attributes!r:.60}: expected values by name, a dict")
        for name, value in unchecked.items():
            if not isinstance(value, (str, int, float)):
                raise ConfigError(f"attributes: {name}={value!r}: expected text or a number")
        self._provider = meter_provider
        self._attributes = dict(attributes or {})
        self._made: tuple[metrics.Histogram, metrics.Histogram] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_provider": None, "_made": None}

    def on_attach(self, stats: Callable[[], Stats], urls: Sequence[str], world: World) -> None:
        schemes = ",".join(sorted({scheme_of(url) for url in urls}))
        totals_of(self._provider).add(stats, self._with(schemes, world), self)

    def on_event(self, event: Event, world: World) -> None:
        if isinstance(event, ShardDownloaded):
            self._histograms()[0].record(event.seconds, self._with(scheme_of(event.url), world))
        elif isinstance(event, Stalled):
            attributes = {**self._attributes, "streamplug.rank": world.rank}
            self._histograms()[1].record(event.seconds, attributes)

    def _with(self, scheme: str, world: World) -> dict[str, str | int | float | bool]:
        return {
            **self._attributes,
            "streamplug.scheme": scheme,
            "streamplug.rank": world.rank,
        }

    def _histograms(self) -> tuple[metrics.Histogram, metrics.Histogram]:
        # Created on first use, as the provider may be set after the data set is created. A meter returns
        # the same histograms if two threads race here.
        if self._made is None:
            meter = metrics.get_meter("streamplug", meter_provider=self._provider)
            self._made = (
                meter.create_histogram(
                    "streamplug.download.duration",
                    "s",
                    "How long the download of a file took, with all attempts",
                    explicit_bucket_boundaries_advisory=_BOUNDS,
                ),
                meter.create_histogram(
                    "streamplug.wait.duration",
                    "s",
                    "How long iteration waited for the bytes of a shard",
                    explicit_bucket_boundaries_advisory=_BOUNDS,
                ),
            )
        return self._made


def scheme_of(url: str) -> str:
    """Return the scheme of a URL; ``file`` for a path."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else "file"
