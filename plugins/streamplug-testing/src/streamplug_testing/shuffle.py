"""Conformance tests of shuffle algorithms, for plugin authors to subclass."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug.interfaces import Permutation, ShuffleAlgorithm, canonical_node_bounds
from streamplug.plugin import resolve
from streamplug.types import Int64
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.memory import takes_less
from streamplug_testing.processes import other_process

_MIB = 1 << 20

_thorough = settings(max_examples=min(60, settings().max_examples), deadline=None)

_settings = st.fixed_dictionaries(
    {
        "canonical_nodes": st.integers(1, 8),
        "seed": st.integers(0, 2**63),
        "epoch": st.integers(0, 2**31),
        "block_size": st.integers(1, 60),
    }
)
_shards = st.lists(st.integers(0, 30), min_size=1, max_size=30).filter(sum)
_UNEVEN = tuple(17 * number % 50 for number in range(100))

CASES: Mapping[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "small": ((10,), {"canonical_nodes": 1, "seed": 1, "epoch": 0, "block_size": 4}),
    "uneven": (_UNEVEN, {"canonical_nodes": 1, "seed": 9176, "epoch": 0, "block_size": 64}),
    "canonical_nodes": (
        _UNEVEN,
        {"canonical_nodes": 8, "seed": 9176, "epoch": 0, "block_size": 64},
    ),
    "epoch": (_UNEVEN, {"canonical_nodes": 8, "seed": 9176, "epoch": 3, "block_size": 64}),
    "seed": (_UNEVEN, {"canonical_nodes": 8, "seed": 1 << 40, "epoch": 0, "block_size": 64}),
    "large": (
        (4096,) * 256,
        {"canonical_nodes": 2, "seed": 9176, "epoch": 1, "block_size": 1 << 18},
    ),
}
"""Epochs whose digests `ShuffleTests.golden` may hold: shard sizes and arguments."""


class ShuffleTests(ConformanceBase):
    """Conformance tests of a shuffle algorithm; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
        shuffles: Whether seed and epoch change the order.
        eager: Whether it computes whole epochs, so that far positions cost memory and time.
        golden: Digest by name of one of `CASES`, as `digest` returns it. A released order must never
            change: saved states are positions in it.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[ShuffleAlgorithm] | None] = None
    shuffles: ClassVar[bool] = True
    eager: ClassVar[bool] = False
    golden: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def shuffle_class(cls) -> type[ShuffleAlgorithm]:
        """Return the class under test."""
        return cls.cls or resolve("shuffle", cls.name)

    def algorithm(self) -> ShuffleAlgorithm:
        """Return a new instance of the algorithm under test."""
        return self.shuffle_class().from_spec(None)

    def canonical_nodes(self, sizes: object, **arguments: int) -> list[Int64]:
        """Return the ids of each canonical node of an epoch, computed by a new instance."""
        return _canonical_nodes(self.algorithm(), sizes, arguments)

    # -- what it declares -----------------------------------------------------

    def test_name_stands_for_the_class(self) -> None:
        if not self.name:
            pytest.skip("no name given")
        assert resolve("shuffle", self.name) is self.shuffle_class()

    def test_defaults_are_usable(self) -> None:
        algorithm = self.algorithm()
        for nodes in (1, 2, 7, 64, 1000):
            canonical_nodes = algorithm.default_canonical_nodes(nodes)
            assert canonical_nodes >= 1
            assert algorithm.default_block_size(canonical_nodes) >= 1

    # -- the order of an epoch ------------------------------------------------

    def test_every_sample_comes_once(self) -> None:
        @_thorough
        @given(_shards, _settings)
        def check(sizes: list[int], arguments: dict[str, int]) -> None:
            canonical_nodes = self.canonical_nodes(sizes, **arguments)
            total, bounds = (
                sum(sizes),
                canonical_node_bounds(sum(sizes), arguments["canonical_nodes"]),
            )
            assert [len(canonical_node) for canonical_node in canonical_nodes] == np.diff(
                bounds
            ).tolist()
            assert {canonical_node.dtype for canonical_node in canonical_nodes} == {
                np.dtype(np.int64)
            }
            assert sorted(np.concatenate(canonical_nodes).tolist()) == list(range(total))

        check()

    def test_any_position_gives_what_a_sweep_gives(self) -> None:
        @_thorough
        @given(_shards, _settings, st.data())
        def check(sizes: list[int], arguments: dict[str, int], data: st.DataObject) -> None:
            canonical_nodes = self.canonical_nodes(sizes, **arguments)
            order = _order(self.algorithm(), sizes, arguments)
            for _ in range(4):
                # In any order: earlier calls must not affect later ones.
                node = data.draw(st.integers(0, len(canonical_nodes) - 1))
                count = len(canonical_nodes[node])
                wanted = data.draw(
                    st.lists(st.integers(0, count - 1), max_size=9) if count else st.just([])
                )
                at = order.at(node, np.array(wanted, np.int64))
                assert at.tolist() == canonical_nodes[node][wanted].tolist()
                start = data.draw(st.integers(0, count))
                stop = data.draw(st.integers(start, count))
                assert (
                    order.take(node, start, stop).tolist()
                    == canonical_nodes[node][start:stop].tolist()
                )

        check()

    def test_finds_where_a_sample_comes(self) -> None:
        @_thorough
        @given(_shards, _settings, st.data())
        def check(sizes: list[int], arguments: dict[str, int], data: st.DataObject) -> None:
            order = _order(self.algorithm(), sizes, arguments)
            for _ in range(4):
                sample = data.draw(st.integers(0, sum(sizes) - 1))
                node, position = order.find(sample)
                assert order.take(node, position, position + 1).tolist() == [sample]

        check()

    def test_arguments_are_left_as_they_are(self) -> None:
        sizes, positions = np.array(_UNEVEN, np.int64), np.arange(9)
        for array in (sizes, positions):
            array.flags.writeable = False
        order = _order(self.algorithm(), sizes, CASES["canonical_nodes"][1])
        assert order.at(0, positions).tolist() == order.at(0, positions).tolist()

    def test_canonical_nodes_keep_their_samples_from_epoch_to_epoch(self) -> None:
        sizes, arguments = CASES["canonical_nodes"]
        first, *others = (
            [
                set(canonical_node.tolist())
                for canonical_node in self.canonical_nodes(sizes, **{**arguments, "epoch": epoch})
            ]
            for epoch in range(3)
        )
        assert others == [first, first]

    def test_order_differs_by_seed_and_epoch(self) -> None:
        arguments = {"canonical_nodes": 1, "seed": 1, "epoch": 1, "block_size": 1000}
        changes: list[dict[str, int]] = [{}, {"seed": 2}, {"epoch": 2}, {"seed": 2, "epoch": 2}]
        changes += [{"seed": 1 + (1 << bit)} for bit in (8, 16, 31, 40)]
        changes += [{"epoch": epoch} for epoch in (0, 3, 1 + (1 << 8), 1 + (1 << 16))]
        orders = [
            tuple(self.canonical_nodes((100,) * 10, **{**arguments, **change})[0].tolist())
            for change in changes
        ]
        assert len(set(orders)) == (len(changes) if self.shuffles else 1)
        assert self.shuffles == (tuple(range(1000)) not in orders)

    def test_block_size_has_no_effect_unless_it_is_used(self) -> None:
        if self.shuffle_class().uses_block_size:
            pytest.skip("uses_block_size is True")
        sizes, arguments = CASES["uneven"]
        other = {**arguments, "block_size": 5}
        assert digest(self.algorithm(), sizes, arguments) == digest(self.algorithm(), sizes, other)

    # -- the same everywhere --------------------------------------------------

    def test_instances_agree(self) -> None:
        for sizes, arguments in CASES.values():
            assert digest(self.algorithm(), sizes, arguments) == digest(
                self.algorithm(), sizes, arguments
            )

    def test_pickles(self) -> None:
        copy = pickle.loads(pickle.dumps(self.algorithm()))
        assert digests(copy) == digests(self.algorithm())

    def test_another_process_agrees(self) -> None:
        algorithm = self.algorithm()
        with other_process("spawn") as pool:
            spawned_digests = pool.apply_async(digests, (algorithm,)).get(timeout=120)
        assert spawned_digests == digests(algorithm)

    def test_golden_digests(self) -> None:
        current_digests = digests(self.algorithm())
        if not self.golden:
            pytest.skip(f"no golden digests given; today they are {current_digests}")
        assert {name: current_digests.get(name) for name in self.golden} == self.golden

    # -- at any length --------------------------------------------------------

    def test_far_positions_cost_no_more(self) -> None:
        if self.eager:
            pytest.skip("it computes an epoch whole")
        sizes = np.full(10**5, 10**7, np.int64)
        arguments = {"canonical_nodes": 2, "seed": 1, "epoch": 1, "block_size": 1 << 18}
        middle = int(sizes.sum()) // 4

        def look() -> None:
            ids = _order(self.algorithm(), sizes, arguments).take(1, middle, middle + 1000)
            assert len(set(ids.tolist())) == 1000

        assert takes_less(256 * _MIB, look)


def digest(algorithm: ShuffleAlgorithm, sizes: object, arguments: Mapping[str, int]) -> str:
    """Return a digest of an epoch's order: the ids of all canonical nodes, as little-endian int64."""
    ids = np.concatenate(_canonical_nodes(algorithm, sizes, arguments))
    return hashlib.blake2s(ids.astype("<i8").tobytes(), digest_size=8).hexdigest()


def digests(algorithm: ShuffleAlgorithm) -> dict[str, str]:
    """Return the digest of each of `CASES`, for `ShuffleTests.golden`."""
    return {name: digest(algorithm, *case) for name, case in CASES.items()}


def _order(algorithm: ShuffleAlgorithm, sizes: Any, arguments: Mapping[str, int]) -> Permutation:
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(sizes, np.int64))])
    starts.flags.writeable = False
    order = algorithm.order(starts, **arguments)
    assert isinstance(order, Permutation)
    return order


def _canonical_nodes(
    algorithm: ShuffleAlgorithm, sizes: Any, arguments: Mapping[str, int]
) -> list[Int64]:
    order = _order(algorithm, sizes, arguments)
    lengths = np.diff(canonical_node_bounds(int(np.sum(sizes)), arguments["canonical_nodes"]))
    return [
        order.take(canonical_node, 0, length)
        for canonical_node, length in enumerate(lengths.tolist())
    ]
