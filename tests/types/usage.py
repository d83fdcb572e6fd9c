"""What a type checker knows of the public names, in programs as users write them; only mypy reads it.

Each ``type: ignore`` is a mistake that must be found: one that is not makes mypy fail, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from streamplug_tools.verification import verify
from typing_extensions import assert_type

import streamplug
from streamplug import (
    Encoding,
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    TokenBlocks,
    TokenDataset,
    World,
    Writer,
    register_encoding,
    register_storage,
    write_from,
    write_parts,
)


def writing() -> None:
    with MDSWriter(out="set", columns={"n": "int"}, compression="zstd:3", size_limit="1mb") as out:
        assert_type(out, MDSWriter)
        out.write({"n": 3})
        out.write_batch({"n": np.arange(3)})
        out.write("n")  # type: ignore[arg-type]
    with Writer(out=("here", "s3://there"), columns={"n": "int"}, format="parquet") as other:
        assert_type(other, Writer)
    MDSWriter(columns={"n": "int"})  # type: ignore[call-arg]
    MDSWriter(out="set", columns=["n"])  # type: ignore[arg-type]
    MDSWriter(out="set", columns={"n": "int"}, compresion="zstd")  # type: ignore[call-arg]
    assert_type(write_from([{"n": 1}], out="set"), int)
    assert_type(
        write_parts(lambda part: iter([part]), range(3), out="set", columns={"n": "int"}), int
    )


def reading() -> None:
    stream = Stream(remote="s3://bucket/set", proportion=0.5)
    dataset = StreamingDataset(streams=[stream], shuffle=True, batch_size=8, cache_limit="1gb")
    assert_type(dataset[7], dict[str, Any])
    assert_type(dataset[1:3], list[dict[str, Any]])
    assert_type(dataset[[1, 2]], list[dict[str, Any]])
    assert_type(dataset[np.array([1, 2], np.int64)], list[dict[str, Any]])
    assert_type(iter(dataset), Iterator[dict[str, Any]])
    assert_type(len(dataset), int)
    assert_type(dataset.size, int)
    assert_type(dataset.batch_size, int | None)
    assert_type(dataset.samples_per_shard, NDArray[np.int64])
    for batch in dataset.batches(8, num_threads=2):
        assert_type(batch, dict[str, NDArray[Any] | list[Any]])
    dataset["n"]  # type: ignore[index]
    StreamingDataset(remote="set", shuffel=True)  # type: ignore[call-arg]
    StreamingDataset(remote="set", batch_size="8")  # type: ignore[arg-type]
    Stream(remote="set", proportion="half")  # type: ignore[arg-type]
    StreamingDataset("set")  # type: ignore[call-arg, arg-type]
    assert_type(World(nodes=2, rank=1).ranks, int)


def states(dataset: StreamingDataset) -> None:
    assert_type(dataset.state_dict(), dict[str, Any])
    dataset.load_state_dict(dataset.state_dict(num_samples=80))
    dataset.load_state_dict(3)  # type: ignore[arg-type]
    dataset.state_dict("all")  # type: ignore[arg-type]
    assert_type([use.sample for use in dataset.explain(3, rank=0)], list[int])
    assert_type([rng for _, rng in dataset.samples_with_rng()], list[np.random.Generator])


def loading(dataset: StreamingDataset) -> None:
    loader = StreamingDataLoader(dataset, batch_size=8, num_workers=2, transform=lambda s: s["n"])
    assert_type(next(iter(loader)), Any)
    assert_type(iter(loader).state_dict(), dict[str, Any])
    assert_type(loader.state_dict(), dict[str, Any])
    loader.load_state_dict(loader.state_dict())
    StreamingDataLoader([1, 2])  # type: ignore[arg-type]
    StreamingDataLoader(dataset, batch_size="8")  # type: ignore[arg-type]
    StreamingDataLoader(dataset, transform=lambda s, rng: s["n"] + rng.random(), seed_torch=True)
    StreamingDataLoader(dataset, batch_transform=lambda batch, rng: rng.permuted(batch["n"]))
    StreamingDataLoader(dataset, transform="n")  # type: ignore[arg-type]


def tokens() -> None:
    rows = TokenDataset(tokens=TokenBlocks(column="tokens", length=32), remote="set")
    assert_type(rows[3], dict[str, Any])
    TokenDataset(tokens=32, remote="set")  # type: ignore[arg-type]
    TokenBlocks(column="tokens")  # type: ignore[call-arg]


def configs() -> None:
    assert_type(StreamingDataset.from_config("run.toml"), StreamingDataset)
    assert_type(MDSWriter.from_config({"out": "set"}), MDSWriter)


@register_encoding("reversed")
class Reversed(Encoding):
    """Text, back to front."""

    def encode(self, value: Any) -> bytes:
        return str(value)[::-1].encode()

    def decode(self, data: memoryview) -> str:
        return bytes(data).decode()[::-1]


class Nowhere:
    """No storage."""


def registering() -> None:
    register_storage("mine", Nowhere)  # type: ignore[arg-type]
    assert_type(Reversed().decode(memoryview(b"")), str)  # the decorator leaves it what it is
    register_encoding("again", Reversed, replace=True)
    register_encoding("wrong", dict)  # type: ignore[arg-type]
    register_encoding(Reversed)  # type: ignore[call-overload]


def others() -> None:
    assert_type([each.shard for each in verify(Stream(remote="set")).problems], list[int])
    assert_type(streamplug.__version__, str)
    print(streamplug.MDSWritter)  # type: ignore[attr-defined]
