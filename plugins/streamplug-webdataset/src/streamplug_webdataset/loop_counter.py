"""Number of a loop over a pipeline without a plan, which its loader workers share."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from streamplug.run import CELLS, SharedEpoch, WorkerLoop


class LoopCounter:
    """Counts the loops over a pipeline: those of this process, and those of loader workers.

    Workers that end with their loop have copies of the pipeline, so their numbers are in shared memory.
    """

    def __init__(self) -> None:
        """Start at loop 0."""
        torch = sys.modules.get("torch")
        self._cells: Any = np.zeros(CELLS, np.int64)
        if torch is not None:
            self._cells = _shared(torch.from_numpy(self._cells))

    def begin(self) -> int:
        """Return the number of the loop that begins; the same for all workers of a loader's loop."""
        return SharedEpoch(np.asarray(self._cells)).begin(_worker_loop())[0].epoch

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        if not isinstance(self._cells, np.ndarray) and not self._cells.is_shared():
            self._cells = _shared(self._cells.clone())  # a copy that torch did not send to a worker


def _shared(cells: Any) -> Any:
    from streamplug.adapters import share_memory

    return share_memory(cells)


def _worker_loop() -> WorkerLoop:
    if "torch.utils.data" not in sys.modules:  # then this is no worker of a loader
        return WorkerLoop()
    from streamplug.adapters import worker_loop

    return worker_loop()
