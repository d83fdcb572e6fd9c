"""Scripts for mosaicml-streaming run after the guide's change of import, and under the alias."""

from __future__ import annotations

import re
import runpy

import pytest

pytest.importorskip("torch")

README = """
import numpy as np
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader

columns = {"x": "ndarray:uint8:4,4,3", "class": "int", "label": "str"}
with MDSWriter(out="remote", columns=columns, compression="gz", hashes=["sha1"]) as out:
    for i in range(64):
        image = np.full((4, 4, 3), i, np.uint8)
        out.write({"x": image, "class": i % 10, "label": f"item {i}"})

dataset = StreamingDataset(local="local", remote="remote", split=None, shuffle=True, batch_size=8)
sample = dataset[5]
assert (sample["x"][0, 0, 0], sample["class"], sample["label"]) == (5, 5, "item 5")

dataloader = DataLoader(dataset, batch_size=8)
seen = [int(image[0, 0, 0]) for batch in dataloader for image in batch["x"]]
assert sorted(seen) == list(range(64)) != seen
"""

TEXT = '''
import os

import numpy as np
import torch
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset


class Words:
    """Stands for a tokenizer."""

    eos_token_id = 0

    def __call__(self, text, truncation, padding, max_length):
        ids = [len(word) for word in text.split()][:max_length]
        return {"input_ids": ids + [self.eos_token_id] * (max_length - len(ids))}


class TextDataset(StreamingDataset):
    def __init__(
        self,
        tokenizer,
        max_seq_len,
        streams=None,
        remote=None,
        local=None,
        split=None,
        download_retry=2,
        download_timeout=60,
        validate_hash=None,
        keep_zip=False,
        epoch_size=None,
        predownload=None,
        cache_limit=None,
        partition_algo="relaxed",
        num_canonical_nodes=None,
        batch_size=None,
        shuffle=False,
        shuffle_algo="py1e",
        shuffle_seed=9176,
        shuffle_block_size=None,
        sampling_method="balanced",
        sampling_granularity=1,
        batching_method="random",
        allow_unsafe_types=False,
        replication=None,
        token_encoding_type="int64",
        **kwargs,
    ):
        if kwargs:
            raise ValueError(f"unexpected arguments: {sorted(kwargs)}")
        if local is not None and remote in (None, local) and os.path.isdir(local):
            if split not in os.listdir(local):
                raise ValueError(f"{local} has no directory {split}")
        super().__init__(
            streams=streams,
            remote=remote,
            local=local,
            split=split,
            download_retry=download_retry,
            download_timeout=download_timeout,
            validate_hash=validate_hash,
            keep_zip=keep_zip,
            epoch_size=epoch_size,
            predownload=predownload,
            cache_limit=cache_limit,
            partition_algo=partition_algo,
            num_canonical_nodes=num_canonical_nodes,
            batch_size=batch_size,
            shuffle=shuffle,
            shuffle_algo=shuffle_algo,
            shuffle_seed=shuffle_seed,
            shuffle_block_size=shuffle_block_size,
            sampling_method=sampling_method,
            sampling_granularity=sampling_granularity,
            batching_method=batching_method,
            allow_unsafe_types=allow_unsafe_types,
            replication=replication,
        )
        self.tokenizer = tokenizer
        self.max_seq_len = max_seq_len
        self.token_dtype = getattr(np, token_encoding_type)

    def __getitem__(self, idx):
        sample = super().__getitem__(idx)
        if "text" in sample:
            return self.tokenizer(
                sample["text"], truncation=True, padding="max_length", max_length=self.max_seq_len
            )
        tokens = np.frombuffer(sample["tokens"], self.token_dtype)[: self.max_seq_len]
        return torch.from_numpy(tokens.astype(np.int64))


with MDSWriter(out="docs/train", columns={"text": "str"}) as out:
    for i in range(20):
        out.write({"text": "word " * (i + 1)})
with MDSWriter(out="ids/train", columns={"tokens": "bytes"}) as out:
    for i in range(30):
        out.write({"tokens": np.arange(i, i + 12, dtype=np.int64).tobytes()})

text = TextDataset(Words(), 8, local="docs", split="train", batch_size=4)
assert text[1] == {"input_ids": [4, 4, 0, 0, 0, 0, 0, 0]}
assert len(list(text)) == 20

streams = [
    Stream(remote="ids", local="cache-a", split="train"),
    Stream(remote="ids", local="cache-b", split="train", repeat=2),
]
tokens = TextDataset(
    tokenizer=Words(), max_seq_len=8, streams=streams, shuffle=True, batch_size=5, predownload=16
)
loader = StreamingDataLoader(tokens, batch_size=5, collate_fn=torch.stack, drop_last=False)
batches = iter(loader)
first = [next(batches) for _ in range(3)]
assert first[0].shape == (5, 8) and first[0].dtype == torch.int64
state = loader.state_dict()
rest = list(batches)
assert sum(map(len, first + rest)) == 90

again = TextDataset(
    tokenizer=Words(), max_seq_len=8, streams=streams, shuffle=True, batch_size=5, predownload=16
)
resumed = StreamingDataLoader(again, batch_size=5, collate_fn=torch.stack, drop_last=False)
resumed.load_state_dict(state)
assert torch.equal(torch.cat(list(resumed)), torch.cat(rest))
'''

MIXTURE = """
import streaming
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader


class Labelled(streaming.StreamingDataset):
    def __init__(self, *, names, split, batch_size, **kwargs):
        streams = [
            streaming.Stream(remote=f"bucket/{name}", local=f"cache/{name}", proportion=share)
            for name, share in names.items()
        ]
        super().__init__(streams=streams, split=split, batch_size=batch_size, **kwargs)
        self.split_name = split

    def __getitem__(self, at):
        sample = super().__getitem__(at)
        return sample["n"], sample["source"]


clean_stale_shared_memory()
for source, name in enumerate(("web", "code")):
    for split, count in (("train", 40), ("val", 10)):
        columns = {"n": "int", "source": "int"}
        with streaming.MDSWriter(out=f"bucket/{name}/{split}", columns=columns) as out:
            for n in range(count):
                out.write({"n": n, "source": source})

mix = {"web": 0.75, "code": 0.25}
train = Labelled(names=mix, split="train", batch_size=4, shuffle=True, epoch_size=80)
sources = [int(source) for _, batch in DataLoader(train, batch_size=4) for source in batch]
assert (sources.count(0), sources.count(1)) == (60, 20)
val = Labelled(names={"web": 0.5, "code": 0.5}, split="val", batch_size=4)
assert len(val) == 20 and {stream.split for stream in val.streams} == {"val"}
"""

SCRIPTS = {"readme": README, "text": TEXT, "mixture": MIXTURE}


def change_import(script):
    """Apply the step of the guide: streamplug_mosaic in place of streaming, in every import."""
    script = re.sub(r"^(\s*from )streaming\b", r"\1streamplug_mosaic", script, flags=re.MULTILINE)
    return re.sub(
        r"^(\s*)import streaming$",
        r"\1import streamplug_mosaic as streaming",
        script,
        flags=re.MULTILINE,
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_after_the_change_of_import(name, tmp_path, monkeypatch):
    changed = change_import(SCRIPTS[name])
    assert not re.search(r"^\s*(from|import) streaming\b", changed, re.MULTILINE)
    (tmp_path / "train.py").write_text(changed)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("train.py", run_name="__main__")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_unchanged_under_the_alias(name, streaming, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(SCRIPTS[name])
    monkeypatch.chdir(tmp_path)
    runpy.run_path("train.py", run_name="__main__")
