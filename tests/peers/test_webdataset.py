"""Sets of tar archives go both ways between streamplug and webdataset."""

from __future__ import annotations

import gc
import io
import tarfile
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_testing.equality import same

from streamplug import StreamingDataset

wds = pytest.importorskip("webdataset")
plugin = pytest.importorskip("streamplug_webdataset")

COUNT = 25
thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def theirs(pattern, *, decode=True):
    """Return the samples that webdataset reads, without what it says of the file they are from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = wds.WebDataset(pattern, shardshuffle=False, empty_check=False)
        dataset = dataset.decode() if decode else dataset
        found = list(dataset)
    own = ("__url__", "__local_path__")
    return [{name: value for name, value in each.items() if name not in own} for each in found]


def ours(remote, **options):
    """Return the samples that streamplug reads, without the values that they do not have."""
    dataset = StreamingDataset(remote=str(remote), **options)
    return [{name: value for name, value in each.items() if value is not None} for each in dataset]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for mine, other in zip(found, expected):
        assert same(dict(sorted(mine.items())), dict(sorted(other.items())))


def samples():
    draw = np.random.default_rng(0)
    for i in range(COUNT):
        yield {
            "__key__": f"folder.d/{i:06d}",
            "txt": f"tëxt {i}",
            "cls": i,
            "json": {"n": i, "of": [None, "x"]},
            "npy": draw.integers(0, 99, (i % 4, 3)),
            "depth.npz": {"a": draw.random(4), "b": np.arange(i)},
            "seg.png": bytes([i]) * i,
            "note.txt.gz": "compressed",
        }


def test_webdataset_reads_what_we_write(tmp_path):
    with plugin.WebDatasetWriter(str(tmp_path / "set"), maxcount=10) as out:
        for sample in samples():
            out.write(sample)
    pattern = f"{tmp_path}/set/shard.{{00000..00002}}.tar"
    assert_same(theirs(pattern), list(samples()))
    assert_same(ours(tmp_path / "set"), list(samples()))


def test_we_read_what_webdataset_writes(tmp_path):
    with wds.ShardWriter(f"{tmp_path}/x-%06d.tar", maxcount=10, verbose=0) as out:
        for sample in samples():
            out.write(sample)
    expected = theirs(f"{tmp_path}/x-{{000000..000002}}.tar")
    assert_same(expected, list(samples()))
    assert_same(ours(tmp_path, format="webdataset"), expected)
    raw = theirs(f"{tmp_path}/x-{{000000..000002}}.tar", decode=False)
    assert_same(ours(tmp_path, format="webdataset:raw", access="range"), raw)


@pytest.mark.parametrize("ending", ["tar.gz", "tgz"])
def test_we_read_what_webdataset_compresses(tmp_path, ending):
    with wds.TarWriter(f"{tmp_path}/x.{ending}", compress=True) as out:
        for sample in samples():
            out.write(sample)
    assert_same(ours(tmp_path, format="webdataset"), theirs(f"{tmp_path}/x.{ending}"))


def test_compressed_archives_of_ours_are_read_by_webdataset(tmp_path):
    with plugin.WebDatasetWriter(str(tmp_path / "set"), compression="gz") as out:
        for sample in samples():
            out.write(sample)
    assert_same(theirs(f"{tmp_path}/set/shard.00000.tar.gz"), list(samples()))


def test_torch_files_are_read_with_leave(tmp_path):
    torch = pytest.importorskip("torch")
    with wds.ShardWriter(f"{tmp_path}/x-%06d.tar", verbose=0) as out:
        out.write({"__key__": "a", "pth": {"w": torch.arange(3)}, "pyd": {1, 2}})
    (mine,) = ours(tmp_path, format="webdataset", allow_unsafe_types=True)
    assert mine["pth"]["w"].tolist() == [0, 1, 2]
    assert mine["pyd"] == {1, 2}


def test_samples_of_different_extensions(tmp_path):
    with wds.ShardWriter(f"{tmp_path}/x-%06d.tar", maxcount=5, verbose=0) as out:
        for i in range(COUNT):
            optional = {"json": [i]} if i % 3 else {"bin": bytes([i])}
            out.write({"__key__": f"{i:03d}", "txt": str(i), **optional})
    expected = theirs(f"{tmp_path}/x-{{000000..000004}}.tar")
    assert_same(ours(tmp_path, format="webdataset"), expected)


def test_tensors_and_cbor_go_both_ways(tmp_path):
    pytest.importorskip("cbor")
    pytest.importorskip("cbor2")
    kinds = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u8")
    draw = np.random.default_rng(0)
    made = [
        {
            "__key__": f"{i:03d}",
            "ten": [draw.integers(0, 9, (i, 2)[: 1 + i % 2]).astype(kind) for kind in kinds],
            "note.tb": [np.arange(6.0).reshape(2, 3)],
            "cbor": {"n": i, "of": [None, True, 0.5, "x", b"y", {"z": -i}]},
        }
        for i in range(1, 5)
    ]
    with wds.ShardWriter(f"{tmp_path}/x-%06d.tar", verbose=0) as out:
        for sample in made:
            out.write(sample)
    assert_same(ours(tmp_path / "x-000000.tar", format="webdataset"), made)
    with plugin.WebDatasetWriter(
        str(tmp_path / "set"), columns={n: _spec(n) for n in made[0]}
    ) as out:
        for sample in made:
            out.write(sample)
    assert_same(theirs(f"{tmp_path}/set/shard.00000.tar"), made)


def _spec(name):
    return {"__key__": "str", "ten": "ten", "note.tb": "ten", "cbor": "cbor"}[name]


PARTS = st.text("ab.A_-é", min_size=1, max_size=6).filter(lambda part: part not in (".", ".."))
NAMES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_any_names_make_the_same_samples(tmp_path_factory, kind):
    @thorough
    @given(st.lists(st.tuples(NAMES, st.binary(max_size=20)), min_size=1, max_size=12))
    def check(members):
        folder = tmp_path_factory.mktemp("set")
        with tarfile.open(folder / "x.tar", "w", format=kind) as tar:
            for name, content in members:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        expected = None
        try:
            expected = theirs(f"{folder}/x.tar", decode=False)
        except ValueError as error:  # a second file of one kind
            reason = str(error)
        if expected is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gc.collect()  # it has left its file open
            assert "duplicate" in reason
            with pytest.raises(ValueError, match="is its second with the extension"):
                ours(folder, format="webdataset:raw")
            return
        assert_same(ours(folder, format="webdataset:raw") if expected else [], expected)

    check()
