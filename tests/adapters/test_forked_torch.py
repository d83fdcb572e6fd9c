"""Data sets are made in processes that were forked after torch had started threads."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug import MDSWriter
from tests import warm_python

pytest.importorskip("torch")

SCRIPT = """
import os, pickle, signal, sys
import torch
from streamplug import StreamingDataset

torch.set_num_threads(4)
torch.ones(1 << 22).mul(2).sum()  # starts threads, which a fork does not copy
made = StreamingDataset(local=sys.argv[1], batch_size=5)
child = os.fork()
if not child:
    signal.alarm(30)
    dataset = pickle.loads(pickle.dumps(StreamingDataset(local=sys.argv[1], batch_size=5)))
    os._exit(len(list(dataset)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_makes_and_copies_data_sets(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        out.write_batch({"n": np.arange(20)})
    done = warm_python.run(["-c", SCRIPT, tmp_path / "set"], warm_python.TORCH)
    assert done.stdout == "20\n", done.stderr
