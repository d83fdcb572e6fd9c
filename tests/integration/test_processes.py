"""Runs of real processes: scripts with fork and spawn, notebooks, and groups of ranks."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
from streamplug_testing.processes import count_leaks

pytest.importorskip("torch")

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset
from tests import warm_python

SIZE = 61
BATCH = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"id": "int", "text": "str"}, out=out, size_limit=600) as writer:
        for number in range(SIZE):
            writer.write({"id": number, "text": str(number)})
    return str(out)


@pytest.fixture(scope="module")
def epochs(folder) -> list[list[list[int]]]:
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    return [[batch["id"].tolist() for batch in dataset.batches()] for _ in range(4)]


def run(
    program: str,
    *arguments: str,
    as_script: bool = True,
    folder: Path,
    modules: tuple[str, ...] = warm_python.TORCH,
) -> Any:
    """Run a program in an interpreter of its own, and return the JSON of its last line."""
    program = textwrap.dedent(program)
    (folder / "script.py").write_text(program)
    source = ["script.py"] if as_script else ["-c", program]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    environment |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = ["-W", "error::ResourceWarning", *source, *arguments]
    done = warm_python.run(command, modules, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert count_leaks(done.stderr) == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


LOADER = """
    import json, sys, threading
    from streamplug import StreamingDataLoader, StreamingDataset

    def ids(batches):
        return [batch["id"].tolist() for batch in batches]

    def loader(folder, workers, **kwargs):
        dataset = StreamingDataset(local=folder, shuffle=True, batch_size=4)
        if workers:
            kwargs["multiprocessing_context"] = "spawn"
        return StreamingDataLoader(dataset, batch_size=4, num_workers=workers, **kwargs)

    if __name__ == "__main__":
        folder = sys.argv[1]
        first = loader(folder, 2, persistent_workers=True)
        found = {"persistent": [ids(first), ids(first)]}
        it = iter(first)
        for _ in range(5):
            next(it)
        saved = first.state_dict()
        found["saved"] = [saved["epoch"], saved["sample_in_epoch"]]
        second = loader(folder, 1, persistent_workers=True)
        second.load_state_dict(saved)
        found["rest"] = [ids(second), ids(second)]
        third = loader(folder, 0)
        third.load_state_dict(saved)
        found["alone"] = ids(third)
        first.load_state_dict(saved)
        found["again"] = ids(first)
        print(json.dumps(found))
"""


def test_spawned_workers_see_the_same_epochs_and_states(folder, epochs, tmp_path):
    found = run(LOADER, folder, folder=tmp_path)
    assert found["persistent"] == epochs[:2]
    assert found["saved"] == [2, 5 * BATCH]
    assert found["rest"] == [epochs[2][5:], epochs[3]]
    assert found["alone"] == found["again"] == epochs[2][5:]


NOTEBOOK = """
    import json, sys
    import streamplug

    class Reversed(streamplug.Encoding):
        def encode(self, value):
            return value[::-1].encode()

        def decode(self, data):
            return str(data, "utf-8")[::-1]

    streamplug.register_encoding("reversed", Reversed)

    class Louder(streamplug.StreamingDataset):
        def __getitem__(self, at):
            sample = super().__getitem__(at)
            return {**sample, "word": sample["word"].upper()}

    if __name__ == "__main__":
        from torch.utils.data import DataLoader

        out, method = sys.argv[1:]
        with streamplug.MDSWriter(columns={"word": "reversed"}, out=out, exist_ok=True) as writer:
            for number in range(20):
                writer.write({"word": f"word {number}"})
        dataset = Louder(local=out, batch_size=4)
        loader = DataLoader(
            dataset, batch_size=4, num_workers=1, multiprocessing_context=method
        )
        print(json.dumps([word for batch in loader for word in batch["word"]]))
"""


@pytest.mark.parametrize("as_script", [True, False])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_classes_of_a_notebook_work_in_workers(tmp_path, method, as_script):
    program = NOTEBOOK
    if not as_script:  # as with a notebook's cells, there is no file to import them from
        program = program.replace('if __name__ == "__main__":', "if True:")
    found = run(program, str(tmp_path / "set"), method, as_script=as_script, folder=tmp_path)
    assert found == [f"WORD {number}" for number in range(20)]


RANKS = """
    import json, sys, traceback
    import torch
    import torch.multiprocessing as mp
    from streamplug import StreamingDataLoader, StreamingDataset

    def rank_of(rank, ranks, folder, meeting, workers, results):
        try:
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks
            )
            dataset = StreamingDataset(
                remote=folder, local=meeting + "-cache", shuffle=True, batch_size=12 // ranks
            )
            loader = StreamingDataLoader(dataset, batch_size=12 // ranks, num_workers=workers)
            epochs = []
            for _ in range(2):
                epoch = []
                for batch in loader:
                    # Every rank asks the others, as training does.
                    parts = [torch.empty_like(batch["id"]) for _ in range(ranks)]
                    torch.distributed.all_gather(parts, batch["id"])
                    epoch.append(sorted(i for part in parts for i in part.tolist()))
                epochs.append(epoch)
            found = [epochs, loader.state_dict(), len(dataset)]
            torch.distributed.destroy_process_group()
            results.put(found)
        except BaseException:
            results.put(traceback.format_exc())

    if __name__ == "__main__":
        folder, meeting = sys.argv[1:]
        torch.set_num_threads(1)
        context = mp.get_context("fork")
        found = {}
        for ranks, workers in [(1, 0), (2, 0), (4, 0), (2, 2)]:
            results = context.SimpleQueue()
            arguments = (ranks, folder, f"{meeting}-{ranks}-{workers}", workers, results)
            processes = [context.Process(target=rank_of, args=(r, *arguments)) for r in range(ranks)]
            for process in processes:
                process.start()
            found[f"{ranks}-{workers}"] = [results.get() for _ in processes]
            for process in processes:
                process.join()
        print(json.dumps(found))
"""


def test_ranks_of_a_process_group_see_the_same_global_batches(folder, tmp_path):
    found = run(RANKS, folder, str(tmp_path / "meeting"), folder=tmp_path)
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=12)
    expected = [[sorted(b["id"].tolist()) for b in dataset.batches()] for _ in range(2)]
    state = dataset.state_dict()
    assert set(found) == {"1-0", "2-0", "4-0", "2-2"}
    for name, ranks in found.items():
        for epochs, rank_state, length in ranks:
            assert epochs == expected
            assert rank_state == state
            assert length == len(dataset) // int(name[0])


EXIT = """
    import json, sys, threading
    from streamplug import StreamingDataset
    from streamplug.plugin_kit import cancellation as cancel
    from streamplug.builtin.local_storage import LocalStorage

    copy = LocalStorage.download

    def download(self, key, path):
        if key == f"shard.{dataset.num_shards - 1:05}.mds":
            cancel.sleep(250)
        copy(self, key, path)

    LocalStorage.download = download
    dataset = StreamingDataset(remote=sys.argv[1], local=sys.argv[2], batch_size=4, predownload=999)
    held = [iter(dataset), dataset.batches()]
    for it in held:
        next(it)
    print(json.dumps([t.name for t in threading.enumerate() if "prefetch" in t.name] != []))
"""


def test_a_process_ends_with_loops_that_were_never_finished(folder, tmp_path):
    assert run(EXIT, folder, str(tmp_path / "cache"), folder=tmp_path) is True
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.suffix == ".tmp"]


CHILD = """
    import json, multiprocessing, sys
    from streamplug.dataset import StreamingDataset

    def read(dataset, results):
        results.put([dataset[3], [b["id"].tolist() for b in dataset.batches()]])

    if __name__ == "__main__":
        dataset = StreamingDataset(local=sys.argv[1], shuffle=True, batch_size=4)
        dataset[3]
        found = []
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            results = context.SimpleQueue()
            process = context.Process(target=read, args=(dataset, results))
            process.start()
            found.append(results.get())
            process.join()
        print(json.dumps([found, "torch" in sys.modules]))
"""


def test_a_data_set_goes_to_other_processes_without_torch(folder, epochs, tmp_path):
    found, torch_loaded = run(CHILD, folder, folder=tmp_path, modules=warm_python.CORE)
    assert found == [[{"id": 3, "text": "3"}, epochs[0]]] * 2
    assert torch_loaded is False
