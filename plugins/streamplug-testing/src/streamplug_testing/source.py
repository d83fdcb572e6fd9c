"""Conformance tests of sources, for plugin authors to subclass."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError, StreamplugError
from streamplug.stream import Stream
from streamplug.types import World
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.equality import same

_GLOBAL_BATCH = 8


class SourceTests(ConformanceBase):
    """Conformance tests of a source; declare known failures in `deviations`.

    Attributes:
        name: Registered name of the source.
    """

    name: str

    @abstractmethod
    def make_location(self, folder: Path) -> tuple[str, Sequence[dict[str, Any]]]:
        """Write data with at least 20 rows below a folder; return their location and the rows."""

    @pytest.fixture
    def written(self, tmp_path: Path) -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
        """Return the options of a data set of new data, and their rows."""
        location, rows = self.make_location(tmp_path)
        return {"remote": location, "format": self.name}, rows

    def test_reads_the_rows(self, written: Any) -> None:
        options, rows = written
        dataset = StreamingDataset(**options)
        assert dataset.size == len(rows)
        assert same([dict(row) for row in dataset], list(rows))
        assert same([dict(row) for row in dataset[::-1]], list(rows)[::-1])
        assert same(dict(dataset[3]), rows[3])

    def test_reads_selected_rows(self, written: Any) -> None:
        options, rows = written
        dataset = StreamingDataset(**options, select=[2, 11])
        assert same([dict(row) for row in dataset], [rows[2], rows[11]])

    def test_the_order_is_the_same_on_any_world(self, written: Any) -> None:
        options, _ = written
        assert _steps(options, World(ranks_per_node=4)) == _steps(options, World())

    def test_a_pickled_data_set_reads_the_rows(self, written: Any) -> None:
        options, rows = written
        dataset = pickle.loads(pickle.dumps(StreamingDataset(**options)))
        assert same([dict(row) for row in dataset], list(rows))

    def test_several_streams_are_read_together(self, written: Any) -> None:
        options, rows = written
        streams = [Stream(**options), Stream(**options, select=[2, 11]), Stream(**options)]
        dataset = StreamingDataset(streams=streams)
        expected = [*rows, rows[2], rows[11], *rows]
        assert same([dict(row) for row in dataset], expected)
        assert same([dict(row) for row in dataset[::-1]], expected[::-1])

    def test_a_state_is_loaded_into_rows_that_are_opened_again(self, written: Any) -> None:
        options, _ = written
        dataset = StreamingDataset(**options, batch_size=1, shuffle=True)
        samples = [repr(sorted(row.items())) for row in dataset]
        again = StreamingDataset(**options, batch_size=1, shuffle=True)
        again.load_state_dict(dataset.state_dict(5))
        assert [repr(sorted(row.items())) for row in again] == samples[5:]

    def test_a_state_of_other_rows_is_refused(self, written: Any) -> None:
        options, _ = written
        state = StreamingDataset(**options, batch_size=1, select=[2, 11]).state_dict(0)
        with pytest.raises(StateError):
            StreamingDataset(**options, batch_size=1, select=[2, 12]).load_state_dict(state)

    def test_an_opened_stream_has_an_index(self, written: Any) -> None:
        options, rows = written
        opened = Stream(**options).open()
        size = opened.index.size if opened.selection is None else len(opened.selection)
        assert size == len(rows)
        assert opened.where
        with pytest.raises(ConfigError, match="no such column"):
            opened.check_columns(["no such column"], allow_unsafe=False)

    def test_an_unknown_version_is_refused(self, written: Any) -> None:
        options, _ = written
        with pytest.raises(StreamplugError):
            StreamingDataset(**options, version=10**9)


def _steps(options: dict[str, Any], world: World) -> list[list[str]]:
    """Return the samples of each global step, sorted."""
    steps: dict[int, list[str]] = {}
    for rank in range(world.ranks):
        place = World(world.nodes, world.ranks_per_node, rank=rank)
        dataset = StreamingDataset(
            **options,
            shuffle=True,
            batch_size=_GLOBAL_BATCH // world.ranks,
            num_canonical_nodes=1,
            world=place,
        )
        for step, batch in enumerate(dataset.batches()):
            rows = zip(*batch.values())
            steps.setdefault(step, []).extend(repr(list(map(str, row))) for row in rows)
    return [sorted(rows) for rows in steps.values()]


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with Python values, and times without a zone, for comparison with another reader's."""
    plain = {}
    for name, value in row.items():
        python = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(python, datetime):
            python = python.replace(tzinfo=None)
        plain[name] = python
    return plain


def in_any_order(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return rows in a form that is equal for equal rows in another order."""
    return sorted(repr(sorted(plain_row(row).items())) for row in rows)
