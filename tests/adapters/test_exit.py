"""Programs that end while loops over loaders are alive say nothing of it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.run.test_exit import KEEP, PROGRAM, WAIT, folder, run
from tests.start_methods import EVERY_METHOD
from tests.warm_python import TORCH

__all__ = ["folder"]  # a fixture

LOADERS = {
    "in process": "StreamingDataLoader(data)",
    "workers": "StreamingDataLoader(data, num_workers=2)",
    **{
        f"persistent, {method}": "StreamingDataLoader(data, num_workers=2, persistent_workers=True, "
        f"multiprocessing_context={method!r})"
        for method in EVERY_METHOD
    },
    "torch's": "DataLoader(data, batch_size=4)",
    "torch's with workers": "DataLoader(data, batch_size=4, num_workers=2)",
}
IMPORTS = """
from torch.utils.data import DataLoader
from streamplug import StreamingDataLoader, StreamingDataset
"""


@pytest.mark.parametrize(
    ("keep", "end"), [("in a module", "by itself"), ("as a variable", "by Ctrl-C")]
)
@pytest.mark.parametrize("loader", LOADERS)
def test_a_program_that_ends_with_a_loop_alive_is_silent(folder, loader, keep, end):
    program = PROGRAM.replace("from streamplug.dataset import StreamingDataset", IMPORTS)
    program = program.replace("LOOP", f"iter({LOADERS[loader]})").replace("KEEP", KEEP[keep])
    program = program.replace("WAIT", WAIT[end])
    assert run(program, folder, "", interrupt=end == "by Ctrl-C", modules=TORCH) == ""
