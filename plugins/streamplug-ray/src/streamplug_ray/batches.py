"""Batches that workers of a Ray cluster read and decode, in the order of the data set."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import cycle
from typing import Any

import numpy as np

from streamplug import StreamingDataset, World
from streamplug.config import whole_number
from streamplug.errors import ConfigError, DecodeError, StreamplugError
from streamplug.run import SampleRng
from streamplug.types import ColumnValues
from streamplug_ray.cluster import connected
from streamplug_ray.remote_batches import BatchRequest, DatasetCopy, remote_batches, take

Transform = Callable[[dict[str, ColumnValues], np.random.Generator], Any]

_CALLS_PER_WORKER = 2
"""Concurrent calls per worker, so that one batch is fetched while another is decoded."""


class RayBatches:
    """The batches of a data set, read and decoded by workers of a Ray cluster.

    This process has the plan: it sends sample ids to the workers, and takes batches from Ray's object
    store in the order of `StreamingDataset.batches`, which a state describes. Workers only turn samples
    into batches. Ray replaces lost workers and retries their batches. Workers live for one epoch. Arrays
    are read-only, as they share the memory of the object store.

    Args:
        config: Arguments of `StreamingDataset`, valid on all workers: `remote` is a URL, or a path that
            all machines share; `local` is a directory of each machine.
        batch_size: Samples per batch; None for that in `config`.
        workers: Number of workers.
        transform: Called in a worker with the column values by name and a random generator; returns the
            batch. The generator is that of `StreamingDataLoader` for a ``batch_transform``: it depends on
            `shuffle_seed`, the epoch, the step and the rank, so that retries return the same batch.
        prefetch: Batches requested ahead per worker.
        num_cpus: CPUs that Ray reserves for each worker.
        max_retries: Retries of a batch whose worker was lost.
        address: Address of the cluster, as for `ray.init`.

    Raises:
        ConfigError: If an argument is invalid, or there is no cluster.
        StreamplugError: As `StreamingDataset`.

    Attributes:
        dataset: The data set of this process; it reads only the index.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        batch_size: int | None = None,
        *,
        workers: int = 2,
        transform: Transform | None = None,
        prefetch: int = 2,
        num_cpus: float = 1,
        max_retries: int = 8,
        address: str | None = None,
    ) -> None:
        for name, number in {
            "workers": whole_number("workers", workers, 1),
            "prefetch": whole_number("prefetch", prefetch, 1),
            "max_retries": whole_number("max_retries", max_retries, 0),
        }.items():
            if number is None:
                raise ConfigError(f"{name}=None: must be a whole number")
        cpus: Any = num_cpus  # unchecked so far
        if not (isinstance(cpus, (int, float)) and cpus >= 0):
            raise ConfigError(f"num_cpus={num_cpus!r:.60}: must be a number of at least 0")
        self._config, self._address = dict(config), address
        if batch_size not in (None, self._config.setdefault("batch_size", batch_size)):
            raise ConfigError(
                f"batch_size={batch_size}, but the data set's is {self._config['batch_size']}"
            )
        self.dataset = StreamingDataset(**self._config)
        self._workers, self._ahead = workers, workers * prefetch
        self._transform, self._num_cpus, self._retries = transform, num_cpus, max_retries

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's batches of the next epoch.

        Raises:
            StreamplugError: If a sample cannot be read, or the retries of a batch are exhausted.
        """
        with connected(self._address, "RayBatches") as ray, self._pool(ray) as pool:
            turns = cycle(pool)

            def ask(step: BatchRequest) -> tuple[BatchRequest, Any]:
                return step, next(turns).read.remote(step)

            def answer(request: tuple[BatchRequest, Any]) -> Any:
                step, ref = request
                try:
                    return ray.get(ref)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, Exception) else error from error
                except ray.exceptions.RayError as error:
                    raise StreamplugError(
                        f"step {step.number} of epoch {step.epoch}: {type(error).__name__}: {error}"
                    ) from error

            batches = remote_batches(self.dataset, ask, answer, ahead=self._ahead)
            with closing(batches):
                yield from batches

    @contextmanager
    def _pool(self, ray: Any) -> Generator[list[Any], None, None]:
        """Run workers during a block."""
        make = ray.remote(
            num_cpus=self._num_cpus,
            max_concurrency=_CALLS_PER_WORKER,
            max_restarts=-1,
            max_task_retries=self._retries,
        )(_BatchWorker)
        sent = ray.put(self._worker_arguments())
        pool = [make.remote(sent) for _ in range(self._workers)]
        try:
            yield pool
        finally:
            for worker in pool:
                ray.kill(worker)

    def _worker_arguments(self) -> tuple[DatasetCopy, Transform | None, int, int]:
        session = self.dataset.session
        # Workers get sample ids, so they need no rank.
        config = {**self._config, "world": World(), "replication": None}
        seed, rank = session.run.options.shuffle_seed, session.world.rank
        return DatasetCopy.of(self.dataset, config), self._transform, seed, rank

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last yielded batch.

        It has no random state, as generators depend on the step.
        """
        return self.dataset.state_dict()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from a state, with any number of workers, or without any.

        Args:
            saved: A state of `state_dict`, or of a `StreamingDataset`.

        Raises:
            StateError: If the order of the saved run differs from this one's.
        """
        self.dataset.load_state_dict(saved)


class _BatchWorker:
    """Reads batches by sample ids."""

    def __init__(self, sent: tuple[DatasetCopy, Transform | None, int, int]) -> None:
        copy, self._transform, self._seed, self._rank = sent
        self._dataset = copy.open()
        if copy.config.get("on_error", "raise") != "raise":
            self._dataset.session.reader.remember_failures()

    def read(self, step: BatchRequest) -> Any:
        batch = take(self._dataset, step.ids)
        if self._transform is None:
            return None if step.is_probe else batch
        # A generator of its own for each call, as several run at a time.
        rng = SampleRng(self._seed).of_batch(step.epoch, step.number, self._rank)
        try:
            transformed = self._transform(batch, rng)
        except DecodeError:
            raise
        except Exception:
            if not step.is_probe:  # only samples that cannot be decoded are substituted
                raise
        return None if step.is_probe else transformed
