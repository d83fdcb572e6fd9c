"""What bench_read.py and bench_landing.py measure of other libraries, each as its documentation advises.

All shuffle as they do by default or by their documented way; what they call a batch is collated as they
do it. Sides are as in read_sides.py.
"""

from __future__ import annotations

import json
import pickle
import runpy
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from read_sides import ACCESSES, BATCH, COLLATED, Epochs, Side, at_random

_LEAST = ("jpeg", "tokens", "small")

Transform = Callable[[Any], Any]

# -- litdata ------------------------------------------------------------------------------


def _litdata(data: Path, **options: Any) -> Any:
    import litdata
    from read_data import LENGTH

    tokens = data.parent.name == "tokens"
    loader = litdata.TokensLoader(block_size=LENGTH) if tokens else None
    return litdata.StreamingDataset(str(data), item_loader=loader, shuffle=True, **options)


def litdata_samples(data: Path, samples: int) -> Epochs:
    dataset = _litdata(data)
    while True:
        yield dataset, 1


def litdata_loader(
    data: Path,
    samples: int,
    *,
    workers: int,
    batch: int = BATCH,
    persistent: bool = True,
    **options: Any,
) -> Epochs:
    """Read with a loader; the data set takes further options, such as a transform."""
    import litdata

    persistent &= workers > 0
    loader = litdata.StreamingDataLoader(
        _litdata(data, **options),
        batch_size=batch,
        num_workers=workers,
        persistent_workers=persistent,
    )
    while True:
        yield loader, batch


def litdata_access(data: Path, samples: int) -> Epochs:
    return at_random(_litdata(data), samples)


# -- mosaicml-streaming -------------------------------------------------------------------


def _mosaic(data: Path, batch: int = BATCH, transform: Transform | None = None) -> Any:
    from streaming import StreamingDataset

    class Transformed(StreamingDataset):
        def __getitem__(self, number: Any) -> Any:
            return transform(super().__getitem__(number))

    chosen = Transformed if transform else StreamingDataset
    return chosen(local=str(data), batch_size=batch, shuffle=True)


def mosaic_samples(data: Path, samples: int) -> Epochs:
    dataset = _mosaic(data)
    while True:
        yield dataset, 1


def mosaic_loader(
    data: Path,
    samples: int,
    *,
    workers: int,
    batch: int = BATCH,
    transform: Transform | None = None,
) -> Epochs:
    return torch_loader(_mosaic(data, batch, transform), workers, batch)


def torch_loader(dataset: Any, workers: int, batch: int, **options: Any) -> Epochs:
    from torch.utils.data import DataLoader  # noqa: TID251 - as its users do

    loader = DataLoader(
        dataset, batch, num_workers=workers, persistent_workers=workers > 0, **options
    )
    while True:
        yield loader, batch


def mosaic_access(data: Path, samples: int) -> Epochs:
    return at_random(_mosaic(data), samples)


# -- webdataset ---------------------------------------------------------------------------


def _of_tar(sample: dict[str, Any]) -> Any:
    if "json" in sample:
        return json.loads(sample["json"])
    return np.frombuffer(sample["bin"], np.uint16) if "bin" in sample else sample["jpg"]


def _webdataset(data: Path, transform: Transform = _of_tar) -> Any:
    import webdataset

    shards = sorted(map(str, data.glob("*.tar")))
    return webdataset.WebDataset(shards, shardshuffle=100).shuffle(1000).map(transform)


def webdataset_samples(data: Path, samples: int) -> Epochs:
    while True:
        yield _webdataset(data), 1


def webdataset_loader(
    data: Path, samples: int, *, workers: int, batch: int, transform: Transform = _of_tar
) -> Epochs:
    import webdataset
    from torch.utils.data import default_collate  # noqa: TID251

    loader = webdataset.WebLoader(
        _webdataset(data, transform).batched(batch, collation_fn=default_collate),
        batch_size=None,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    while True:
        yield loader, batch


# -- Hugging Face datasets ----------------------------------------------------------------


def _arrow(data: Path) -> Any:
    import datasets

    return datasets.load_from_disk(str(data))


def _arrays(data: Path) -> Any:
    # Without this, its arrays of tokens are of int64.
    options = {"dtype": np.uint16} if data.parent.name in ("tokens", "documents") else {}
    return _arrow(data).with_format("numpy", **options)


def hf_samples(data: Path, samples: int) -> Epochs:
    rows = _arrays(data).to_iterable_dataset(num_shards=64)
    rows = rows.shuffle(seed=1, buffer_size=1000)
    while True:
        yield rows, 1


def hf_batches(data: Path, samples: int, *, batch: int = BATCH) -> Epochs:
    rows = _arrays(data)
    for seed in range(1 << 30):
        yield rows.shuffle(seed=seed).iter(batch), batch


def hf_loader(
    data: Path, samples: int, *, workers: int, batch: int, transform: Transform | None = None
) -> Epochs:
    rows = _arrow(data).with_transform(transform) if transform else _arrays(data)
    return torch_loader(rows, workers, batch, shuffle=True)


def hf_access(data: Path, samples: int) -> Epochs:
    return at_random(_arrays(data), samples)


# -- Grain with ArrayRecord ---------------------------------------------------------------


def _record(kind: str) -> Callable[[bytes], Any]:
    if kind in ("tokens", "documents"):
        return partial(np.frombuffer, dtype=np.uint16)
    return pickle.loads if kind in ("small", "table") else bytes


def _grain(data: Path, seed: int) -> Any:
    import grain

    source = grain.sources.ArrayRecordDataSource(str(data / "bench.array_record"))
    return grain.MapDataset.source(source).shuffle(seed=seed).map(_record(data.parent.name))


def _no_threads(dataset: Any) -> Any:
    import grain

    # Its documentation advises this for data that is in memory, as that in the page cache is.
    return dataset.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def grain_samples(data: Path, samples: int) -> Epochs:
    for seed in range(1 << 30):
        yield _no_threads(_grain(data, seed)), 1


def grain_batches(data: Path, samples: int) -> Epochs:
    batched = list if data.parent.name in ("documents", "jpeg") else None
    for seed in range(1 << 30):
        yield _no_threads(_grain(data, seed).batch(BATCH, batch_fn=batched)), BATCH


# -- LanceDB ------------------------------------------------------------------------------


def _table(data: Path) -> Any:
    import lancedb

    return lancedb.connect(str(data)).open_table("bench")


def lancedb_samples(data: Path, samples: int) -> Epochs:
    from lancedb.streaming import StreamingDataset

    table = _table(data)
    for epoch in range(1 << 30):  # one that was read to its end gives nothing more
        yield StreamingDataset(table, epoch=epoch, read_batch_size=BATCH, transform=_rows), 1


def _rows(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a batch of Arrow, arrays as numpy has them: quicker than lists of numbers."""
    columns = [_column(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, values)) for values in zip(*columns)]


def _column(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    if pa.types.is_list(column.type):
        return np.split(column.values.to_numpy(), column.offsets.to_numpy()[1:-1])
    return column.to_pylist()


def lance_batches(data: Path, samples: int) -> Epochs:
    """Yield batches as ``take`` gives them, for rows in random order."""
    table = _table(data).to_lance()
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(samples)
        takes = (order[start : start + BATCH] for start in range(0, samples, BATCH))
        yield map(table.take, takes), BATCH


def lance_access(data: Path, samples: int) -> Epochs:
    table = _table(data).to_lance()
    rng = np.random.default_rng(1)
    while True:
        ids = rng.integers(0, samples, ACCESSES).tolist()
        yield (table.take([number]).to_pylist()[0] for number in ids), 1


# -- all ----------------------------------------------------------------------------------


def _sides() -> Iterator[Side]:
    lit, mosaic, hf = ("litdata",), ("streaming",), ("datasets",)
    of_lit = partial(Side, layout="litdata", needs=lit)
    of_mosaic = partial(Side, needs=mosaic)
    of_hf = partial(Side, layout="arrow", needs=hf, kinds=_LEAST)
    of_grain = partial(Side, layout="arrayrecord", needs=("grain", "array_record"), kinds=_LEAST)
    of_lance = partial(Side, layout="lance", needs=("lancedb", "lance"), kinds=_LEAST)
    one, two = {"workers": 0}, {"workers": 2}
    yield of_lit("samples", "litdata, samples", litdata_samples)
    yield of_mosaic("samples", "mosaicml-streaming, samples", mosaic_samples)
    yield Side(
        "samples",
        "webdataset, samples",
        webdataset_samples,
        layout="webdataset",
        needs=("webdataset",),
        kinds=_LEAST,
    )
    yield of_hf("samples", "datasets, samples", hf_samples)
    yield of_grain("samples", "grain, samples", grain_samples)
    yield of_lance("samples", "lancedb, samples", lancedb_samples)
    yield of_lit("batches", "litdata, loader", partial(litdata_loader, **one), kinds=COLLATED)
    loader = partial(of_mosaic, who="mosaicml-streaming, torch's loader", kinds=COLLATED)
    yield loader("batches", read=partial(mosaic_loader, **one))
    yield of_hf("batches", "datasets, iter(256)", hf_batches)
    yield of_grain("batches", "grain, batch(256)", grain_batches)
    yield of_lance("batches", "lance, take of 256", lance_batches)
    in_two = partial(litdata_loader, **two)
    yield of_lit("loader", "litdata, loader", in_two, cores=2, kinds=COLLATED)
    yield loader("loader", read=partial(mosaic_loader, **two), cores=2)
    yield of_lit("access", "litdata, dataset[i]", litdata_access)
    yield of_mosaic("access", "mosaicml-streaming, dataset[i]", mosaic_access)
    yield of_hf("access", "datasets, dataset[i]", hf_access)
    yield of_lance("access", "lance, take of one", lance_access)


PEERS = list(_sides())


def prepare(needs: tuple[str, ...]) -> None:
    """Import what a side needs, before anything is measured."""
    if "streaming" in needs:
        runpy.run_path(str(Path(__file__).parents[1] / "peers" / "stubs.py"))["install"]()
    for name in needs:
        import_module(name)
    # What is imported when it is asked for.
    if "streamplug" in needs:
        from streamplug import StreamingDataset  # noqa: F401
    if {"streamplug", "torch"} <= set(needs):
        from streamplug import StreamingDataLoader  # noqa: F401
