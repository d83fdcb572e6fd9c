"""Forked processes whose parent used obstore without streamplug."""

from __future__ import annotations

import multiprocessing

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter
from tests import warm_python

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork"
)

# The user's own code uses obstore; then forked processes read through streamplug, and the user goes on.
PROGRAM = """
import multiprocessing, sys
import obstore
from obstore.store import HTTPStore
{early}
url, way = sys.argv[1:]
store = HTTPStore(url, client_options={{"allow_http": True}})
before = bytes(obstore.get(store, "index.json").bytes())

def read(sender=None):
    from streamplug import StreamingDataset
    rows = [row["n"] for row in StreamingDataset(remote=f"obstore:{{url}}", access="range", batch_size=4)]
    sender.send(rows)

def nested(sender):
    child = multiprocessing.get_context("fork").Process(target=read, args=(sender,))
    child.start()
    child.join()

if way == "loader":
    from torch.utils.data import DataLoader
    from streamplug import StreamingDataset
    dataset = StreamingDataset(remote=f"obstore:{{url}}", access="range", batch_size=4)
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=60)
    for _ in range(2):
        assert sorted(n for batch in loader for n in batch["n"].tolist()) == list(range(20))
else:
    for _ in range(2):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(
            target={{"child": read, "grandchild": nested}}[way], args=(sender,)
        )
        child.start()
        assert receiver.poll(60), "the child hangs"
        assert receiver.recv() == list(range(20))
        child.join(60)
        assert child.exitcode == 0
assert bytes(obstore.get(store, "index.json").bytes()) == before
print("read")
"""
EARLY = "import streamplug_obstore.client"


@pytest.mark.parametrize(
    ("way", "early"),
    [("child", ""), ("child", EARLY), ("grandchild", ""), ("grandchild", EARLY), ("loader", "")],
)
def test_forked_readers_do_not_share_the_users_obstore(tmp_path, way, early):
    with MDSWriter(out=str(tmp_path), columns={"n": "int"}) as out:
        for n in range(20):
            out.write({"n": n})
    with serving(tmp_path) as server:
        program = PROGRAM.format(early=early)
        done = warm_python.run(["-W", "ignore", "-c", program, server.url, way], warm_python.TORCH)
    assert (done.returncode, done.stdout.strip()) == (0, "read"), done.stderr
