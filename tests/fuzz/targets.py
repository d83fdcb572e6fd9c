"""What is fuzzed: every parser of bytes that come from a data set, a cache, a checkpoint or a user.

A target has valid inputs, from which the fuzzer starts, and a function that parses bytes. Whatever the bytes
are, it returns, or raises an error of ours.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from streamplug import Stream, StreamingDataset
from streamplug.cache.quota import CacheQuota
from streamplug.config.config_file import load
from streamplug.config.values import parse_bytes
from streamplug.errors import StreamplugError
from streamplug.plugin.registry import list_names, make
from streamplug.transfer.locks import state_directory
from tests.fuzz import data_sets
from tests.fuzz.parsers import find_parsers, make_archives, with_checksums, with_digest
from tests.fuzz.records import find_records

VALUE_BYTES = 1 << 20
"""What a value may take when it is decoded: far less than the fuzzer allows the process."""

_NUMBERS = re.compile(r"[0-9a-f-]*[0-9][0-9a-f-]*")

VALUES: dict[str, list[Any]] = {
    "bytes": [b"", b"abc"],
    "cbor": [{"a": [1, 2.5, None, "x"], "b": b"y"}],
    "gzipped:json": [{"a": 1}],
    "gzipped:npy": [np.arange(4)],
    "int": [-5],
    "json": [{"a": [1, 2.5, None, "x"]}],
    "msgpack": [{"a": [1, 2.5, None, "x"], "b": b"y"}],
    "ndarray": [np.arange(6, dtype=np.int16).reshape(2, 3)],
    "ndarray:int16": [np.arange(6, dtype=np.int16).reshape(2, 3)],
    "ndarray:int16:2,3": [np.arange(6, dtype=np.int16).reshape(2, 3)],
    "npy": [np.arange(4), np.zeros(3, [("a", "i4"), ("b", "f8")])],
    "npz": [{"a": np.arange(4), "b": np.zeros((2, 2))}],
    "str": ["", "text"],
    "str_decimal": [Decimal("-1.5E+3")],
    "str_float": [0.1],
    "str_int": [10**30],
    "ten": [[np.arange(4, dtype=np.float32), np.zeros((2, 2))]],
    "uint8": [7],
}

# Video and audio are decoded when they are asked for.
_LAZY = {"video": methodcaller("clip", 2, at="center"), "audio": methodcaller("samples", 0.0, 0.1)}


@dataclass(frozen=True)
class Target:
    """A parser, and valid inputs.

    Attributes:
        run: Parses bytes. Errors that are not ours are what is looked for.
        seeds: Valid inputs.
    """

    run: Callable[[bytes], object]
    seeds: list[bytes]


def find_targets(folder: Path) -> dict[str, Target]:
    """Return all targets by name; `folder` is for their files."""
    targets = dict(_encodings())
    targets |= dict(_compressions())
    targets |= dict(_files_of_data_sets(folder))
    targets |= dict(_cache_records(folder / "cache"))
    targets |= dict(_user_input(folder / "input"))
    parsers = chain(find_parsers(folder / "parsers"), find_records(folder / "records"))
    targets |= {name: Target(run, seeds) for name, run, seeds in parsers}
    if tar := targets.get("tar-a.tar"):
        targets["tar-headers"] = Target(lambda data: tar.run(with_checksums(data)), make_archives())
    for name in ("tar-indexed", "tar-ranges"):
        if found := targets.get(f"{name}-shard.n.tar.places"):

            def read(data: bytes, run: Callable[[bytes], object] = found.run) -> None:
                run(with_digest(data))

            targets[f"{name}-places"] = Target(read, found.seeds)
    return dict(sorted(targets.items()))


def _encodings() -> Iterator[tuple[str, Target]]:
    for more in (data_sets.media, data_sets.tensors):
        with suppress(ImportError):
            VALUES.update(more())
    for spec, values in VALUES.items():
        if spec.partition(":")[0] not in list_names("encoding"):
            continue
        encoding = make("encoding", spec).with_max_value_bytes(VALUE_BYTES)

        def decode(data: bytes, spec: str = spec, encoding: Any = encoding) -> None:
            _LAZY.get(spec, type)(encoding.decode(memoryview(data)))

        seeds = [encoding.encode(value) for value in values]
        yield f"encoding-{spec.replace(':', '-').replace(',', 'x')}", Target(decode, seeds)


def _compressions() -> Iterator[tuple[str, Target]]:
    for name in list_names("compression"):
        codec = make("compression", name)

        def decompress(data: bytes, codec: Any = codec) -> None:
            assert len(codec.decompress(data, max_size=VALUE_BYTES)) <= VALUE_BYTES

        seeds = [codec.compress(data) for data in (b"", b"abc", bytes(5000))]
        yield f"compression-{name}", Target(decompress, seeds)


def _files_of_data_sets(folder: Path) -> Iterator[tuple[str, Target]]:
    for name, each in data_sets.DATA_SETS.items():
        place = folder / name
        try:
            each.write(place)
        except ImportError:  # of a library that this environment has not
            continue
        names = set()
        for path in sorted(path for path in place.rglob("*") if path.is_file()):
            # Names have random numbers in them, and one shard is like another.
            kind = _NUMBERS.sub("n", path.relative_to(place).as_posix()).replace("/", "-")
            if kind not in names:
                names.add(kind)
                yield f"{name}-{kind}", _file(path, place, each)


def _file(path: Path, place: Path, each: data_sets.DataSet) -> Target:
    whole = path.read_bytes()

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            dataset = StreamingDataset(
                **each.where(place),
                batch_size=4,
                shuffle=False,
                max_value_bytes=VALUE_BYTES,
                download_retry=0,
                **each.options,
            )
            for batch in dataset.batches():
                len(batch)
            if dataset.size:
                dataset[dataset.size - 1]
        finally:
            path.write_bytes(whole)

    return Target(read, [whole])


def _cache_records(root: Path) -> Iterator[tuple[str, Target]]:
    """Records that other processes, and kills, leave in a cache."""
    records = {"files": b'"a.mds"\n"b/c.mds"\n', "used": b"17 200\n", "files.new": b'"a.mds"\n'}

    def use(name: str, data: bytes) -> None:
        shutil.rmtree(root, ignore_errors=True)
        state_directory(root).mkdir(parents=True)
        for file, text in records.items():
            (state_directory(root) / file).write_bytes(data if file == name else text)
        (root / "a.mds").write_bytes(bytes(100))
        (root.parent / "outside").write_bytes(b"")
        quota = CacheQuota(root, 150)
        quota.remove_stale()
        part = state_directory(root) / "part"
        part.write_bytes(bytes(100))
        with quota.reserve("new.mds", 100) as commit:
            commit(part, root / "new.mds")
        assert (root / "new.mds").exists()
        assert (root.parent / "outside").exists()

    for name, text in records.items():
        yield f"cache-{name}", Target(lambda data, name=name: use(name, data), [text])


def _user_input(folder: Path) -> Iterator[tuple[str, Target]]:
    folder.mkdir(parents=True)
    for suffix, text in {
        "json": '{"remote": "x", "batch_size": 4}',
        "toml": 'remote = "x"\nbatch_size = 4\n',
        "yaml": "remote: x\nbatch_size: 4\nstreams: [{remote: a}]\n",
    }.items():

        def configure(data: bytes, path: Path = folder / f"config.{suffix}") -> None:
            path.write_bytes(data)
            load(path)

        seeds = [text.encode(), b'{"batch_size": 4, "streams": [{"remote": "a"}]}']  # JSON is YAML
        yield f"config-{suffix}", Target(configure, seeds if suffix == "yaml" else seeds[:1])

    data_sets.write_mds(folder / "set")
    dataset = StreamingDataset(local=str(folder / "set"), batch_size=2)
    state = json.dumps(dataset.state_dict(4)).encode()

    def resume(data: bytes) -> None:
        with suppress(ValueError, RecursionError):  # of json, which is not ours
            dataset.load_state_dict(json.loads(data))

    yield "state", Target(resume, [state])

    def select(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        StreamingDataset(streams=[Stream(local=str(folder / "set"), select=text)], batch_size=2)

    expressions = [b"id % 2 == 0 and text != 'a'", b"id in (1, 2) or not (number < 1.5)"]
    yield "select", Target(select, expressions)

    def size(data: bytes) -> None:
        parse_bytes(data.decode("utf-8", "replace"), "cache_limit")

    yield "bytes", Target(size, [b"64mb", b"1.5gb", b"100"])


def is_ours(error: BaseException) -> bool:
    """Return whether a target may raise an error."""
    return isinstance(error, StreamplugError)
