"""Mistakes of scripts for mosaicml-streaming, each made with whatever has its names."""

from __future__ import annotations

from types import SimpleNamespace


def _write(names, place, samples, **kwargs):
    settings = {"columns": {"n": "int"}, "out": str(place), **kwargs}
    with names.MDSWriter(**settings) as out:
        for sample in samples:
            out.write(sample)
    return str(place)


def _write_text(names, place, text, **kwargs):
    with names.CSVWriter(columns={"text": "str"}, out=str(place), **kwargs) as out:
        out.write({"text": text})


def _set(names, place):
    return _write(names, place, [{"n": n} for n in range(10)])


def _spoilt(names, place, text):
    _set(names, place)
    (place / "index.json").write_text(text)
    return names.StreamingDataset(local=str(place))


MISUSES = {
    "an unknown encoding": lambda s, p: _write(s, p, [], columns={"n": "nope"}),
    "an output that is not empty": lambda s, p: _set(s, p) and _set(s, p),
    "a size that is none": lambda s, p: _write(s, p, [], size_limit="many"),
    "a size below 0": lambda s, p: _write(s, p, [], size_limit="-1kb"),
    "a size above 4 GiB": lambda s, p: _write(s, p, [], size_limit=1 << 32),
    "an unknown compression": lambda s, p: _write(s, p, [], compression="zip"),
    "a level that there is not": lambda s, p: _write(s, p, [], compression="gz:11"),
    "a digest that there is not": lambda s, p: _write(s, p, [], hashes=["sha0"]),
    "digests out of order": lambda s, p: _write(s, p, [], hashes=["sha1", "md5"]),
    "an argument that writers have not": lambda s, p: _write(s, p, [], min_workers=2),
    "a sample without a column": lambda s, p: _write(s, p, [{}]),
    "a value of the wrong type": lambda s, p: _write(s, p, [{"n": "1"}]),
    "bytes of the wrong size": lambda s, p: _write(s, p, [{"n": b"1"}]),
    "neither streams nor a place": lambda s, p: s.StreamingDataset(),
    "streams and a place": lambda s, p: s.StreamingDataset(
        streams=[s.Stream(local=_set(s, p))], local=str(p)
    ),
    "a sampling method that there is not": lambda s, p: s.StreamingDataset(
        local=_set(s, p), sampling_method="mine"
    ),
    "a granularity of 0": lambda s, p: s.StreamingDataset(local=_set(s, p), sampling_granularity=0),
    "a batching method that there is not": lambda s, p: s.StreamingDataset(
        local=_set(s, p), batching_method="mine"
    ),
    "an unknown `shuffle_algo` or `partition_algo`": lambda s, p: next(
        iter(s.StreamingDataset(local=_set(s, p), batch_size=2, shuffle=True, shuffle_algo="mine"))
    ),
    "a separator or newline in a value of `CSVWriter`": lambda s, p: _write_text(s, p, "a,b"),
    "an empty `separator` or `newline`": lambda s, p: _write_text(s, p, "a", newline=""),
    "a seed below 0": lambda s, p: s.StreamingDataset(local=_set(s, p), shuffle_seed=-1),
    "an epoch below 0": lambda s, p: s.StreamingDataset(local=_set(s, p), epoch_size=-5),
    "an epoch that is no number": lambda s, p: s.StreamingDataset(
        local=_set(s, p), epoch_size="many"
    ),
    "a limit that is no size": lambda s, p: s.StreamingDataset(
        remote=_set(s, p), local=f"{p}-near", cache_limit="many"
    ),
    "a replication that does not divide the ranks": lambda s, p: s.StreamingDataset(
        local=_set(s, p), replication=3
    ),
    "a data set that is not there": lambda s, p: s.StreamingDataset(local=str(p)),
    "a remote that is not there": lambda s, p: s.StreamingDataset(
        remote=str(p), local=f"{p}-near", download_retry=1
    ),
    "an index that is no JSON": lambda s, p: _spoilt(s, p, "{"),
    "an index of another version": lambda s, p: _spoilt(s, p, '{"version": 3, "shards": []}'),
    "an index without shards": lambda s, p: _spoilt(s, p, '{"version": 2, "shards": []}'),
    "a column that can run code": lambda s, p: s.StreamingDataset(
        local=_write(s, p, [{"n": 1}], columns={"n": "pkl"})
    ),
    "a sample that there is not": lambda s, p: s.StreamingDataset(local=_set(s, p))[10],
    "a sample index that is not an integer": lambda s, p: s.StreamingDataset(local=_set(s, p))[
        "one"
    ],
    "a digest that the set has not": lambda s, p: s.StreamingDataset(
        remote=_set(s, p), local=f"{p}-near", validate_hash="sha1"
    )[0],
    "two weights": lambda s, p: s.Stream(local=str(p), repeat=1, choose=2),
    "a share below 0": lambda s, p: s.Stream(local=str(p), proportion=-1.0),
    "a repeat below 0": lambda s, p: s.Stream(local=str(p), repeat=-1.0),
    "a choice below 0": lambda s, p: s.Stream(local=str(p), choose=-1),
    "retries below 0": lambda s, p: s.Stream(local=str(p), download_retry=-1),
    "a timeout of 0": lambda s, p: s.Stream(local=str(p), download_timeout=0),
    "shares of some streams alone": lambda s, p: s.StreamingDataset(
        streams=[
            s.Stream(local=_set(s, p / "a"), proportion=1.0),
            s.Stream(local=_set(s, p / "b")),
        ]
    ),
    "an epoch of streams with repeats": lambda s, p: s.StreamingDataset(
        streams=[s.Stream(local=_set(s, p), repeat=1.0)], epoch_size=10
    ),
    "a local data set that is not there": lambda s, p: s.LocalDataset(str(p)),
    "bytes of no unit": lambda s, p: s.util.bytes_to_int("5xb"),
    "a count of no unit": lambda s, p: s.util.number_abbrev_to_int("5x"),
    "bytes of nothing": lambda s, p: s.util.bytes_to_int(None),
    "no attempts": lambda s, p: s.util.retry(num_attempts=0),
    "a file that does not come": lambda s, p: s.util.wait_for_file_to_exist(str(p), 0.01, 0.02, ""),
    "a digest of bytes that there is not": lambda s, p: s.hashing.get_hash("sha0", b""),
    "bytes by a compression that there is not": lambda s, p: s.compression.compress("zip", b""),
    "`mds_encode` with an unknown encoding": lambda s, p: s.mds.mds_encode("nope", 1),
    "a world of other groups": lambda s, p: s.World(1, 4, 1, 0).replicate(3),
}


def outcomes(names, folder) -> dict[str, type | None]:
    """Return the exception of each mistake by its name; None where there is none.

    Args:
        names: What has the names of mosaicml-streaming.
        folder: An empty directory.
    """
    found: dict[str, type | None] = {}
    for number, (what, make) in enumerate(MISUSES.items()):
        try:
            make(names, folder / f"{number}")
            found[what] = None
        except Exception as error:
            found[what] = type(error)
    return found


def spaces(mosaic, ours) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Return what has the names: of mosaicml-streaming, and of here."""
    base = mosaic.base
    common = ("MDSWriter", "CSVWriter", "StreamingDataset", "Stream", "LocalDataset")
    theirs = SimpleNamespace(
        **{name: getattr(mosaic, name) for name in common},
        util=base.util,
        hashing=base.hashing,
        compression=base.compression,
        mds=base.format.mds.encodings,
        World=base.world.World,
    )
    here = SimpleNamespace(
        **{name: getattr(ours, name) for name in common},
        **dict.fromkeys(("util", "hashing", "compression", "mds"), ours),
        World=ours.World,
    )
    return theirs, here
