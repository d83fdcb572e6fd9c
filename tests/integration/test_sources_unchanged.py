"""A directory that is read is left as it is: not one name or byte of it is new or changed."""

from __future__ import annotations

import csv
import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.cache.user_cache import source_cache_dir
from streamplug.errors import ConfigError

COUNT = 40
Tree = dict[str, tuple[Any, ...]]


def write_mds(root: Path, **options: Any) -> None:
    with MDSWriter(out=root, columns={"n": "int", "t": "str"}, size_limit=300, **options) as out:
        for number in range(COUNT):
            out.write({"n": number, "t": f"text {number}" * (number % 5)})


def write_images(root: Path) -> None:
    for number in range(COUNT):
        path = root / ("cat", "dog", "emu")[number % 3] / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8" + bytes([number]) * 50)


def write_tars(root: Path, ending: str = ".tar", mode: str = "w") -> None:
    root.mkdir()
    for shard in range(2):
        with tarfile.open(root / f"x-{shard}{ending}", mode) as archive:
            for number in range(COUNT // 2):
                for name, content in (("cls", f"{number}"), ("txt", f"text {number}")):
                    member = tarfile.TarInfo(f"{shard}-{number:03d}.{name}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content.encode()))


def write_parquet(root: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    root.mkdir()
    parquet.write_table(pa.table({"n": list(range(COUNT))}), root / "x.parquet", row_group_size=9)


def write_csv(root: Path) -> None:
    root.mkdir()
    with (root / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("n", "t"), *((n, f"text {n}") for n in range(COUNT))])
    (root / "y.csv.gz").write_bytes(gzip.compress((root / "x.csv").read_bytes()))


class Kind:
    def __init__(
        self,
        write: Callable[[Path], None],
        needs: str | None = None,
        fetches: tuple[str, ...] = ("shard", "range"),
        **options: Any,
    ) -> None:
        self.write, self.needs, self.fetches, self.options = write, needs, fetches, options


KINDS = {
    "mds": Kind(write_mds),
    "mds-gz": Kind(lambda root: write_mds(root, compression="gz"), fetches=("shard",)),
    "images": Kind(write_images, "streamplug_folder", format="folder"),
    "tars": Kind(write_tars, "streamplug_webdataset", format="webdataset"),
    "tars-gz": Kind(
        lambda root: write_tars(root, ".tar.gz", "w:gz"),
        "streamplug_webdataset",
        ("shard",),
        format="webdataset",
    ),
    "parquet": Kind(write_parquet, "streamplug_parquet", ("shard",), format="parquet"),
    "csv": Kind(write_csv, "streamplug_text", ("shard",), format="csv"),
}


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    found = KINDS[request.param]
    if found.needs is not None:
        pytest.importorskip(found.needs)
    return found


def tree_of(root: Path) -> Tree:
    """Return every name below a directory, and what would show a change of it."""
    found: Tree = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        name = path.relative_to(root).as_posix()
        found[name] = (status.st_ino, status.st_mode, status.st_mtime_ns, status.st_size, content)
    return found


def read_in_every_way(root: Path, kind: Kind) -> None:
    options: dict[str, Any] = {"batch_size": 4, **kind.options}
    for fetch in kind.fetches:
        for place in ({"remote": str(root)}, {"local": str(root)}):
            dataset = StreamingDataset(**place, access=fetch, shuffle=True, **options)
            assert len(list(dataset)) >= COUNT
            dataset[3], dataset[-2:]
            assert next(iter(dataset.batches()))
    both = StreamingDataset(remote=str(root), local=str(root), cache_limit="1mb", **options)
    assert len(list(both)) >= COUNT
    tools = pytest.importorskip("streamplug_tools.verification")
    assert not tools.verify(Stream(remote=str(root), **kind.options)).problems


def test_reading_adds_and_changes_no_name_of_a_directory(kind, tmp_path):
    root = tmp_path / "set"
    kind.write(root)
    labels, before = sorted(os.listdir(root)), tree_of(root)  # noqa: PTH208 - as users do
    read_in_every_way(root, kind)
    assert sorted(os.listdir(root)) == labels  # noqa: PTH208
    assert tree_of(root) == before


def test_loader_workers_add_no_name_either(kind, tmp_path):
    torch = pytest.importorskip("torch")
    root = tmp_path / "set"
    kind.write(root)
    before = tree_of(root)
    dataset = StreamingDataset(remote=str(root), batch_size=4, **kind.options)
    loader = torch.utils.data.DataLoader(dataset, None, num_workers=2)
    assert len(list(loader)) >= COUNT
    assert tree_of(root) == before


def test_a_directory_without_write_permission_is_read(kind, tmp_path):
    root = tmp_path / "set"
    kind.write(root)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        before = tree_of(root)
        read_in_every_way(root, kind)
        assert tree_of(root) == before
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)


# -- what is kept instead ----------------------------------------------------------------


def unpacked_of(root: Path) -> list[Path]:
    return sorted(source_cache_dir(str(root)).glob("shards-*/*"))


def numbers(root: Path, **options: Any) -> list[int]:
    return [sample["n"] for sample in StreamingDataset(local=str(root), **options)]


@pytest.fixture
def packed(tmp_path) -> Path:
    write_mds(tmp_path / "set", compression="gz")
    return tmp_path / "set"


def test_compressed_shards_are_unpacked_once_in_the_cache_directory(packed):
    assert numbers(packed) == list(range(COUNT))
    first = [(path.name, path.stat().st_ino) for path in unpacked_of(packed)]
    assert len(first) == len(list(packed.glob("*.gz")))
    assert numbers(packed) == list(range(COUNT))
    assert [(path.name, path.stat().st_ino) for path in unpacked_of(packed)] == first


def test_a_set_that_was_written_again_is_unpacked_again(packed):
    assert numbers(packed) == list(range(COUNT))
    with MDSWriter(
        out=packed,
        columns={"n": "int", "t": "str"},
        size_limit=300,
        compression="gz",
        exist_ok=True,
    ) as out:
        for number in range(COUNT):  # of the same sizes when it is unpacked
            out.write({"n": 1000 + number, "t": f"text {number}" * (number % 5)})
    assert numbers(packed) == list(range(1000, 1000 + COUNT))


def test_unpacked_shards_of_an_earlier_version_go_when_no_one_has_opened_it_for_long(packed):
    unpacked = source_cache_dir(str(packed))

    def open_version(number: int) -> Path:
        before = set(unpacked.glob("shards-*"))
        os.utime(packed / "index.json", (number, number))
        assert numbers(packed) == list(range(COUNT))
        (made,) = set(unpacked.glob("shards-*")) - before
        return made

    first, second = open_version(1), open_version(2)
    assert first.exists()
    os.utime(first, (0, 0))
    third = open_version(3)
    assert set(unpacked.glob("shards-*")) == {second, third}
    os.utime(third, (0, 0))
    assert numbers(packed) == list(range(COUNT))
    assert third.stat().st_mtime > 0


def test_raw_shards_beside_compressed_ones_are_read_and_need_no_cache(packed):
    for path in packed.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    before = tree_of(packed)
    assert numbers(packed) == list(range(COUNT))
    assert unpacked_of(packed) == []
    damaged = sorted(packed.glob("*.mds"))[1]
    content = bytearray(damaged.read_bytes())
    content[0:4] = b"\xff\xff\xff\xff"
    damaged.write_bytes(content)
    before = tree_of(packed)
    assert numbers(packed) == list(range(COUNT))
    assert [path.name for path in unpacked_of(packed)] == [damaged.name]
    assert tree_of(packed) == before


def test_cache_limit_bounds_what_is_unpacked(packed):
    largest = max(len(gzip.decompress(path.read_bytes())) for path in packed.glob("*.gz"))
    limit = 3 * largest + max(path.stat().st_size for path in packed.glob("*.gz"))
    for _ in range(2):
        assert numbers(packed, cache_limit=limit, predownload=0) == list(range(COUNT))
        assert 0 < sum(path.stat().st_size for path in unpacked_of(packed)) <= limit


def test_the_environment_says_where_it_is_kept(packed, tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", str(tmp_path / "scratch"))
    assert numbers(packed) == list(range(COUNT))
    (kept,) = (tmp_path / "scratch").iterdir()
    assert kept.name.startswith("set-")  # tells whoever cleans up what it is of
    assert list(kept.glob("shards-*/*.mds"))


def test_a_directory_of_the_environment_that_cannot_be_written_to_is_named(
    packed, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"STREAMPLUG_CACHE_DIR=.*file: .*directory that can be"):
        numbers(packed)


def test_an_empty_directory_of_the_environment_is_none(packed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", " ")
    assert numbers(packed) == list(range(COUNT))
    assert not (tmp_path / " ").exists()


def test_a_url_in_the_environment_is_no_directory(packed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", "s3://bucket/cache")
    with pytest.raises(
        ConfigError, match=r"^STREAMPLUG_CACHE_DIR=s3://bucket/cache: must be a path"
    ):
        numbers(packed)
    assert not (tmp_path / "s3:").exists()


def test_what_a_killed_reader_left_there_is_removed(packed):
    assert numbers(packed) == list(range(COUNT))
    left = source_cache_dir(str(packed)) / ".streamplug" / "tmp" / "007-0-dead"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half a shard")
    numbers(packed)
    assert not left.exists()


def test_the_cache_directory_may_be_removed(packed):
    import shutil

    assert numbers(packed) == list(range(COUNT))
    shutil.rmtree(source_cache_dir(str(packed)))
    assert numbers(packed) == list(range(COUNT))
