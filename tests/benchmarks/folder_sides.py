"""What the sides of directories of files of bench_formats.py do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from format_sides import (
    BATCH,
    FormatSides,
    Pass,
    Rows,
    Side,
    at_random,
    counted,
)


def write_files(folder: Path, rows: Rows) -> None:
    for row in rows:
        path = folder / f"class-{row['id'] % 10}" / f"{row['id']:06d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(20 * row["text"])


def folder_opened(folder: Path) -> Any:
    from streamplug import StreamingDataset

    return StreamingDataset(
        remote=str(folder), format="folder:classes", batch_size=BATCH, shuffle=True
    )


def folder_samples(folder: Path, rows: Rows) -> Pass:
    dataset = folder_opened(folder)
    return lambda: counted(dataset)


def folder_batches(folder: Path, rows: Rows) -> Pass:
    dataset = folder_opened(folder)
    return lambda: sum(len(batch["data"]) for batch in dataset.batches())


def folder_access(folder: Path, rows: Rows) -> Pass:
    return at_random(folder_opened(folder), rows)


class PlainFolder:
    """What data sets of single files in torch do: a list of paths, and a file for each sample."""

    def __init__(self, folder: Path) -> None:
        names = sorted(path.name for path in folder.iterdir())
        classes = [name for name in names if name[0] != "."]
        self._files = [
            (p, n) for n, c in enumerate(classes) for p in sorted((folder / c).iterdir())
        ]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        path, label = self._files[number]
        with open(path, "rb") as file:  # noqa: PTH123 - as they do
            return file.read(), label


def torch_samples(folder: Path, rows: Rows) -> Pass:
    from torch.utils.data import DataLoader  # noqa: TID251 - as its users do

    loader = DataLoader(PlainFolder(folder), batch_size=None, shuffle=True)
    return lambda: counted(loader)


def torch_batches(folder: Path, rows: Rows) -> Pass:
    from torch.utils.data import DataLoader  # noqa: TID251 - as its users do

    loader = DataLoader(PlainFolder(folder), BATCH, shuffle=True)
    return lambda: sum(len(data) for data, _ in loader)


def torch_access(folder: Path, rows: Rows) -> Pass:
    return at_random(PlainFolder(folder), rows)


FOLDER = FormatSides(
    write_files,
    (
        Side("samples", "streamplug", folder_samples),
        Side("batches", "streamplug", folder_batches),
        Side("access", "streamplug", folder_access),
        Side("samples", "files one by one, DataLoader", torch_samples, "torch"),
        Side("batches", "files one by one, DataLoader", torch_batches, "torch"),
        Side("access", "files one by one", torch_access, "torch"),
    ),
)
