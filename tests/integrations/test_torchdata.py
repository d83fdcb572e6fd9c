"""torchdata's StatefulDataLoader: ours has its interface; a data set in it is exact, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")

from torchdata.stateful_dataloader import Stateful, StatefulDataLoader  # noqa: E402

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402

BATCH = 10
STEPS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("set") / "set"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=200) as writer:
        writer.write_batch({"n": np.arange(BATCH * STEPS)})
    return str(out)


def loader(kind, folder, workers=0):
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    return kind(dataset, batch_size=BATCH, num_workers=workers)


def epochs(each, count):
    for _ in range(count):
        for batch in each:
            yield batch["n"].tolist()


@pytest.mark.parametrize(
    ("kind", "workers"),
    [(StreamingDataLoader, 0), (StreamingDataLoader, 2), (StatefulDataLoader, 0)],
)
def test_a_state_of_any_step_is_exact(folder, kind, workers):
    whole = loader(kind, folder, workers)
    assert isinstance(whole, Stateful)
    seen, states = [], []
    for batch in epochs(whole, 2):
        seen.append(batch)
        states.append(whole.state_dict())
    assert len(seen) == 2 * STEPS
    assert seen[:STEPS] != seen[STEPS:]
    for step, state in enumerate(states[:-1], 1):
        again = loader(kind, folder, workers)
        again.load_state_dict(state)
        rest = [batch for batch, _ in zip(epochs(again, 3), seen[step:])]
        assert rest == seen[step:]


def test_a_state_of_ours_is_plain_json(folder):
    ours = loader(StreamingDataLoader, folder)
    next(iter(ours))
    assert json.loads(json.dumps(ours.state_dict())) == ours.state_dict()


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_of_another_loader_are_refused(folder, workers):
    with pytest.raises(Exception, match=r"StateError.*\n(.*\n)*.*use StreamingDataLoader"):
        list(loader(StatefulDataLoader, folder, workers))
