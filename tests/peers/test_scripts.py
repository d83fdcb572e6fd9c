"""Scripts print with streamplug what they print with mosaicml-streaming."""

from __future__ import annotations

import pytest

SET = """
import hashlib, json
from pathlib import Path
import torch
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset

def write(out, samples, **settings):
    with MDSWriter(out=out, columns={"n": "int", "text": "str"}, **settings) as writer:
        for sample in samples:
            writer.write(sample)

def digests(out):
    for path in sorted(Path(out).iterdir()):
        print(path.name, hashlib.sha1(path.read_bytes()).hexdigest())
"""

LARGE = """
samples = [{"n": n, "text": "x" * (2000 if n in (3, 4, 9) else n), "more": n} for n in range(12)]
write("large", samples, size_limit=500)
digests("large")
write("rounded", samples, size_limit=1e4)
digests("rounded")
"""

BATCHES = """
write("set", [{"n": n, "text": ""} for n in range(100)], size_limit=600)
settings = {"remote": "set", "batch_size": 4, "shuffle": True, "num_canonical_nodes": 2}
dataset = StreamingDataset(local="near", **settings)
loader = StreamingDataLoader(dataset, batch_size=SIZE, num_workers=WORKERS)
print(len(loader), [len(batch["n"]) for batch in list(loader)], len(loader))
batches = iter(loader)
for _ in range(4):
    print(next(batches)["n"].tolist(), len(loader))
state = loader.state_dict()
print(loader.num_samples_yielded, [state[key] for key in ("epoch", "sample_in_epoch")])
del batches
again = StreamingDataset(local="nearer", **settings)
loader = StreamingDataLoader(again, batch_size=4, num_workers=WORKERS)
loader.load_state_dict(json.loads(json.dumps(state)))
print([batch["n"].tolist() for batch in loader])
"""

WEIGHTS = """
for name, count in (("a", 40), ("b", 20)):
    write(name, [{"n": n, "text": ""} for n in range(count)], size_limit=300)

def streams(*weights):
    return [Stream(remote=name, local=f"{name}-{next(number)}", **w) for name, w in zip("ab", weights)]

number = iter(range(100))
for weights, size in (
    ([{}, {}], None), ([{}, {}], 1e2), ([{"repeat": 0.5}, {"choose": 30}], None),
    ([{"proportion": 3}, {"proportion": 1}], "1k"), ([{"proportion": 1}, {"proportion": 2}], None),
):
    given = streams(*weights)
    dataset = StreamingDataset(streams=given, epoch_size=size, batch_size=5)
    print(dataset.epoch_size, len(dataset), dataset.samples_per_stream.tolist())
    for stream in given:
        print(f"{stream.proportion:.9f} {stream.repeat:.9f} {stream.choose}", stream.download_retry)
"""

EMPTY = """
from streaming.base.util import merge_index

write("set", [{"n": n, "text": ""} for n in range(40)], size_limit=300)
write("other", [{"n": n, "text": ""} for n in range(20)], size_limit=300)
for settings in (
    {"cache_limit": 0}, {"validate_hash": ""}, {"num_canonical_nodes": 0}, {"epoch_size": 10.7},
    {"epoch_size": 0.5}, {"stream_config": {"local": "other"}},
):
    dataset = StreamingDataset(local="set", batch_size=4, shuffle=True, **settings)
    print(dataset.epoch_size, [sample["n"] for sample in dataset])
for name in "ab":
    write(f"whole/{name}", [{"n": n, "text": name} for n in range(3)])
merge_index([f" whole/{name}/index.json " for name in "abbab"], "whole")
dataset = StreamingDataset(local="whole", batch_size=1)
print([dataset[n]["text"] for n in range(dataset.size)])
"""


@pytest.mark.parametrize(
    "script",
    [
        LARGE,
        WEIGHTS,
        EMPTY,
        BATCHES.replace("SIZE", "8").replace("WORKERS", "0"),
        BATCHES.replace("SIZE", "2").replace("WORKERS", "2"),
    ],
    ids=["samples", "weights", "empty arguments", "large batches", "small batches"],
)
def test_a_script_prints_what_it_prints_there(shown, script):
    assert shown(SET + script, "ours") == shown(SET + script, "theirs")
