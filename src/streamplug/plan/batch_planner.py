"""Interface of batches that a plugin composes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from streamplug.errors import ConfigError
from streamplug.plan.curriculum import Curriculum
from streamplug.plan.epoch import Epoch
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.plan.stream_samples import StreamSamples
from streamplug.types import Int64, World


class CurriculumEpochs(ABC):
    """Epochs whose proportions of streams change at global batches of the run."""

    @abstractmethod
    def epoch(self, number: int, world: World) -> Epoch:
        """Return an epoch; see `BatchPlanner.epoch`.

        What is read before a change must not depend on it: changes may be planned anew while a run goes on.
        """

    @abstractmethod
    def steps_before(self, number: int, most: int) -> int:
        """Return the number of global batches of the run before an epoch, or `most` if there are more.

        Raises:
            StateError: If it takes unreasonably long to find, as `number` and `most` are from a state.
        """


class BatchPlanner(ABC):
    """Planner of batches of varying size; its epochs are a pure function of its arguments.

    Each step of its epochs has one batch of each rank; a global batch is a number of them, and the same for
    every world. It is sent to loader workers, so it must pickle.

    Attributes:
        micro_batches: Batches of a global batch over all ranks; None for the number of ranks with which a run
            begins.
    """

    micro_batches: int | None = None

    @abstractmethod
    def epoch(
        self,
        make_order: Callable[[], OrderedSamples],
        number: int,
        *,
        order_key: str,
        world: World,
        canonical_nodes: int,
        micro_batches: int,
        seed: int,
    ) -> Epoch:
        """Return an epoch.

        Args:
            make_order: Returns the samples in the order of the epoch; it can be pickled, the order cannot.
            number: Number of the epoch.
            order_key: Text that differs for different orders, for caches.
            world: The number of nodes and ranks.
            canonical_nodes: Number of canonical nodes of the order.
            micro_batches: Batches of a global batch over all ranks.
            seed: Seed of the run.

        Raises:
            ConfigError: If the ranks do not divide the global batch.
        """

    def curriculum_epochs(
        self,
        curriculum: Curriculum,
        make_streams: Callable[[], Sequence[StreamSamples]],
        first_ids: Sequence[int],
        *,
        order_key: str,
        canonical_nodes: int,
        micro_batches: int,
        seed: int,
    ) -> CurriculumEpochs:
        """Return the epochs of a curriculum, whose steps are global batches of the run; see `epoch`.

        `make_streams` returns the streams, which are read pass after pass, and can be pickled; `first_ids`
        has the first sample id of each, and the total.
        """
        raise ConfigError("this batching_method= has no curriculum=; use another one")

    def options(self) -> dict[str, Any] | None:
        """Return the data set's `batch_budget` as JSON values, for states; None if JSON cannot hold it."""
        return {}

    def order_substitutes(self, sample: int, candidates: Int64) -> Int64:
        """Return candidates for the place of a sample that cannot be read, in the order to try.

        Args:
            sample: The sample id.
            candidates: Other sample ids of its global batch, in the order in which they would be tried.
        """
        return candidates

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what batches depend on besides the order, as JSON values that states compare."""
