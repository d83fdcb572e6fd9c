"""Workers that start late: their loop was left, or a state was loaded, before they began to read."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
import torch.multiprocessing as mp  # noqa: E402, TID251
from torch.utils.data import DataLoader, get_worker_info  # noqa: E402, TID251

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402
from tests.start_methods import METHODS  # noqa: E402

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SIZE, BATCH = 110, 8
STEPS = -(-SIZE // BATCH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int"}, out=out, size_limit=400) as writer:
        writer.write_batch({"n": list(range(SIZE))})
    return str(out)


class Gates:
    """Lets the last worker of a loop wait, in its process, before it reads."""

    gates = None

    @classmethod
    def put(cls, *gates):
        cls.gates = gates

    @classmethod
    def wait(cls):
        info = get_worker_info()
        if cls.gates is not None and info.id == info.num_workers - 1:
            is_open, waits = cls.gates
            waits.set()
            is_open.wait(60)


class Late(StreamingDataset):
    """A data set whose loop begins late in some worker."""

    def __iter__(self):
        Gates.wait()
        yield from super().__iter__()


def put_gates(gates, _worker):
    Gates.put(*gates)


def wait_at(gates, worker):
    put_gates(gates, worker)
    Gates.wait()


@pytest.fixture(params=METHODS)
def context(request):
    return mp.get_context(request.param)


def gates_of(context):
    return context.Event(), context.Event()


def make(folder, cls=StreamingDataset):
    return cls(local=folder, shuffle=True, batch_size=BATCH, num_canonical_nodes=2)


def read(batches):
    return [batch["n"].tolist() for batch in batches]


def epochs(folder, count):
    data = make(folder)
    return [read(data.batches()) for _ in range(count)]


def test_a_loader_follows_a_state_that_is_loaded_before_a_worker_starts(folder, context):
    loader = StreamingDataLoader(make(folder))
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    batches.close()
    gates = gates_of(context)
    late = StreamingDataLoader(
        make(folder),
        num_workers=3,
        multiprocessing_context=context,
        worker_init_fn=partial(wait_at, gates),
    )
    loop = iter(late)
    next(loop)
    assert gates[1].wait(60)
    late.load_state_dict(state)
    gates[0].set()
    with pytest.raises(ConfigError, match="a state was loaded; leave the loop and start another"):
        next(loop)
    assert read(late) == epochs(folder, 1)[0][3:]


def test_persistent_workers_of_torchs_loader_refuse_a_state_that_is_loaded_while_one_is_late(
    folder, context
):
    data, gates = make(folder, Late), gates_of(context)
    gates[0].set()
    options = {"batch_size": BATCH, "num_workers": 2, "multiprocessing_context": context}
    loader = DataLoader(
        data, **options, persistent_workers=True, worker_init_fn=partial(put_gates, gates)
    )
    assert read(loader) == epochs(folder, 1)[0]
    state = data.state_dict(2 * BATCH)
    gates[0].clear()
    gates[1].clear()
    loop = iter(loader)
    next(loop)
    assert gates[1].wait(60)
    data.load_state_dict({**state, "epoch": 5})
    gates[0].set()
    del loop
    with pytest.raises(ConfigError, match="create a new DataLoader, or use StreamingDataLoader"):
        read(loader)
    assert read(DataLoader(data, **options)) == epochs(folder, 6)[5][2:]
    assert data.next_epoch == 6


@pytest.mark.parametrize("is_left", [False, True])
def test_a_late_worker_of_torchs_loader_takes_no_epoch_of_others(folder, context, is_left):
    data, gates = make(folder, Late), gates_of(context)
    options = {"batch_size": BATCH, "num_workers": 2, "multiprocessing_context": context}
    late = DataLoader(data, **options, worker_init_fn=partial(put_gates, gates))
    one = iter(late)
    found = [next(one)["n"].tolist()]
    assert gates[1].wait(60)
    two = iter(DataLoader(data, **options))
    others = [next(two)["n"].tolist()]
    plain = epochs(folder, 3)
    gates[0].set()
    if is_left:
        del one
    else:
        assert found + read(one) == plain[0]
    assert others + read(two) == plain[1]
    assert read(DataLoader(data, **options)) == plain[2]
