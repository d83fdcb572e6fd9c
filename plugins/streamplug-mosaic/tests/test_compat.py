from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from streamplug_mosaic import install
from streamplug_mosaic.differences import ALWAYS, BY_DEFAULT, EXCEPTIONS, MISSING
from streamplug_mosaic.names import MODULES

from streamplug.errors import ConfigError, EncodeError, StreamplugError


@pytest.mark.parametrize("name", ["MDSWriter", "JSONWriter", "CSVWriter"])
def test_writers_write_no_digests_unless_they_are_asked_for(streaming, tmp_path, name):
    if name != "MDSWriter":
        pytest.importorskip("streamplug_text")
    for folder, given in (
        ("left-out", {}),
        ("none", {"hashes": None}),
        ("sha1", {"hashes": ["sha1"]}),
    ):
        writer = getattr(streaming, name)
        with writer(out=str(tmp_path / folder), columns={"n": "int"}, **given) as out:
            out.write({"n": 1})
        [entry] = json.loads((tmp_path / folder / "index.json").read_bytes())["shards"]
        assert entry["hashes"] == (given.get("hashes") or [])
        assert list(entry["raw_data"]["hashes"]) == entry["hashes"]


ENCODED = {
    "str": ("a b ü".encode(), "a b ü"),
    "json": (b'{"a":  1}', {"a": 1}),
    "int": (b"\1" + bytes(7), 1),
    "uint8": (b"\5", 5),
    "str_int": (b"-12", -12),
    "ndarray:uint8:2": (b"\1\2", np.uint8([1, 2])),
    "bytes": (b"\xff", b"\xff"),
    "pkl": (b"plain", b"plain"),
}


def test_encoded_values_are_stored_as_they_are(streaming, tmp_path):
    columns = {spec: spec for spec in ENCODED}
    with streaming.MDSWriter(out=str(tmp_path), columns=columns) as out:
        out.write({spec: data for spec, (data, _) in ENCODED.items()})
        out.write({spec: value for spec, (_, value) in ENCODED.items()})
    dataset = streaming.StreamingDataset(local=str(tmp_path), batch_size=1, allow_unsafe_types=True)
    expected = {spec: value for spec, (_, value) in ENCODED.items()}
    np.testing.assert_equal(dataset[0], expected)
    np.testing.assert_equal(dataset[1], expected)
    assert b'{"a":  1}' in (tmp_path / "shard.00000.mds").read_bytes()


@pytest.mark.parametrize(
    ("spec", "data"), [("str", b"\xff"), ("int", b"1"), ("json", b"{"), ("ndarray", b"\xff\1")]
)
def test_bytes_that_are_not_a_value_of_the_column_are_refused(streaming, tmp_path, spec, data):
    writer = streaming.MDSWriter(out=str(tmp_path), columns={"n": spec})
    with pytest.raises(EncodeError, match=r"column 'n': .*bytes"):
        writer.write({"n": data})


def test_extra_keys_are_refused_after_encoded_values_too(streaming, tmp_path):
    for name, extra_keys in (("ignored", {}), ("refused", {"extra_keys": "error"})):
        writer = streaming.MDSWriter(out=str(tmp_path / name), columns={"n": "int"}, **extra_keys)
        writer.write({"n": bytes(8)})
        with pytest.raises(EncodeError, match="m") if extra_keys else nullcontext():
            writer.write({"n": 1, "m": 2})
        writer.finish()


@pytest.mark.parametrize("sample", [[1], None, {"n": "1"}, {"n": b"1"}])
def test_what_is_no_sample_is_refused_as_before(streaming, tmp_path, sample):
    writer = streaming.MDSWriter(out=str(tmp_path), columns={"n": "int"})
    with pytest.raises(EncodeError):
        writer.write(sample)
    writer.write({"n": bytes(8)})
    with pytest.raises(EncodeError):  # also after encoded values
        writer.write(sample)
    writer.write({"n": 2})
    writer.finish()
    dataset = streaming.StreamingDataset(local=str(tmp_path), batch_size=1)
    assert [dataset[n]["n"] for n in range(dataset.size)] == [0, 2]


PROGRAM = """
import sys
import numpy as np
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory, merge_index
from torch.utils.data import DataLoader
import beside

clean_stale_shared_memory()
with MDSWriter(out="whole", columns={"x": "ndarray:float32:3", "class": "int"}, compression="gz") as out:
    for number in range(100):
        out.write({"x": np.full(3, number, np.float32), "class": number % 10})

dataset = StreamingDataset(local="cache", remote="whole", batch_size=10, shuffle=True)
assert dataset[13]["class"] == 3
seen = [int(x) for batch in DataLoader(dataset, batch_size=10, num_workers=1) for x in batch["x"][:, 0]]
assert sorted(seen) == list(range(100))
print(__name__, sys.argv, seen != sorted(seen))
"""


def test_a_program_runs_as_it_is(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "train.py").write_text(PROGRAM)
    (tmp_path / "programs" / "beside.py").write_text("")
    command = ["-m", "streamplug_mosaic", "programs/train.py", "--an", "argument"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ ['programs/train.py', '--an', 'argument'] True\n"
    assert "clean_stale_shared_memory() does nothing" in done.stderr


def test_a_program_must_be_named():
    command = [sys.executable, "-m", "streamplug_mosaic"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")


def test_all_names_are_there(streaming):
    pytest.importorskip("torch")
    pytest.importorskip("streamplug_text")
    pytest.importorskip("streamplug_spark")
    pytest.importorskip("streamplug_datasets")
    for module, names in MODULES.items():
        code = f"from {module} import {', '.join(names)}"
        exec(code, {})
    assert streaming.__version__ == "0.13.0"
    assert streaming.base.util is sys.modules["streaming.base.util"]


def test_looking_for_the_names_imports_nothing():
    code = """
        import sys, streamplug_mosaic
        streamplug_mosaic.install()
        import streaming
        print("numpy" in sys.modules, "torch" in sys.modules)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize("name", ["streaming", "streaming.base", "streaming.base.util"])
@pytest.mark.usefixtures("streaming")
def test_modules_are_found_by_their_specs(name):
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert (spec.name, spec.submodule_search_locations) == (name, [])
    assert repr(sys.modules[name]) == f"<module {name!r} (streamplug_mosaic.alias)>"


def test_other_names_are_refused_with_those_that_there_are(streaming):
    with pytest.raises(AttributeError, match=r"streaming\.Spanner: .* it has .*LocalDataset"):
        _ = streaming.Spanner
    with pytest.raises(ImportError, match=r"streaming\.base\.util\.nothing: .* has no such name"):
        exec("from streaming.base.util import nothing", {})


def test_a_library_that_is_imported_already_is_not_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "streaming", type(sys)("streaming"))
    with pytest.raises(ConfigError, match="has been imported already"):
        install()


def test_installing_twice_is_as_once(streaming):
    install()
    assert sys.modules["streaming"] is streaming


def test_the_order_is_that_of_the_defaults_there(streaming, place):
    from streamplug import StreamingDataset

    ours = StreamingDataset(
        local=place, shuffle=True, shuffle_algo="py1e", partition_algo="relaxed", batch_size=4
    )
    theirs = streaming.StreamingDataset(local=place, shuffle=True, batch_size=4)
    assert [s["n"] for s in theirs] == [s["n"] for s in ours] != list(range(20))


def test_get_item_may_be_overridden(streaming, place):
    class Doubled(streaming.StreamingDataset):
        def get_item(self, sample_id, retry=7):
            return 2 * super().get_item(sample_id, retry)["n"]

    class Again(Doubled):
        pass

    for dataset in (Doubled(local=place, batch_size=4), Again(local=place, batch_size=4)):
        assert list(dataset) == list(range(0, 40, 2))
        assert (dataset[3], dataset[-1], dataset[2:4], dataset[[0, 5]]) == (6, 38, [4, 6], [0, 10])
        with pytest.raises(IndexError, match="Invalid sample index 20"):
            _ = dataset[20]
    assert streaming.StreamingDataset(local=place)[4:6] == [{"n": 4}, {"n": 5}]


def test_get_item_may_be_overridden_by_any_class(streaming, place):
    class Doubling:
        def get_item(self, sample_id, retry=7):
            return {"n": 2 * super().get_item(sample_id, retry)["n"]}

    class Mixed(Doubling, streaming.StreamingDataset):
        pass

    class Named(streaming.StreamingDataset):
        def __getitem__(self, at):
            return {**super().__getitem__(at), "name": "sample"}

    class Both(Named):
        def get_item(self, sample_id, retry=7):
            return {"n": 3 * super().get_item(sample_id, retry)["n"]}

    mixed, both = Mixed(local=place, batch_size=4), Both(local=place, batch_size=4)
    assert list(mixed) == [mixed[n] for n in range(20)] == [{"n": 2 * n} for n in range(20)]
    assert list(both) == [{"n": 3 * n, "name": "sample"} for n in range(20)]


def test_overridden_methods_that_are_never_called_are_refused(streaming, place):
    class FirstShards(streaming.Stream):
        def get_shards(self, world, allow_unsafe_types):
            return super().get_shards(world, allow_unsafe_types)[:1]

    class Resampled(streaming.StreamingDataset):
        def resample_streams(self, epoch, stream_id=None):
            return super().resample_streams(0, stream_id)

    with pytest.raises(ConfigError, match=r"FirstShards\.get_shards: it would never be called"):
        streaming.StreamingDataset(streams=[FirstShards(local=place)])
    with pytest.raises(ConfigError, match=r"Resampled\.resample_streams: it would never be called"):
        Resampled(local=place)


@pytest.mark.parametrize("batch_size", [4, 8])
def test_a_loader_takes_the_state_that_a_subclass_adds_to(streaming, place, batch_size):
    pytest.importorskip("torch")

    class Noted(streaming.StreamingDataset):
        note = 0

        def state_dict(self, num_samples, from_beginning):
            return {**super().state_dict(num_samples, from_beginning), "note": self.note}

        def load_state_dict(self, obj):
            self.note = obj["note"]
            super().load_state_dict({name: value for name, value in obj.items() if name != "note"})

    dataset, again = Noted(local=place, batch_size=4), Noted(local=place, batch_size=4)
    dataset.note = 7
    loader = streaming.StreamingDataLoader(dataset, batch_size=batch_size)
    assert loader.state_dict()["sample_in_epoch"] == 0
    batches = iter(loader)
    seen = next(batches)["n"].tolist()
    resumed = streaming.StreamingDataLoader(again, batch_size=batch_size)
    resumed.load_state_dict(loader.state_dict())
    assert again.note == 7
    assert seen + [n for batch in resumed for n in batch["n"].tolist()] == list(range(20))
    assert list(batches)
    assert loader.state_dict()["sample_in_epoch"] == 20


def test_what_has_no_meaning_is_refused(streaming, place):
    with pytest.raises(TypeError, match="samples_in_epoch"):
        streaming.StreamingDataset(local=place, samples_in_epoch=5)
    with pytest.raises(StreamplugError, match="py1b"):
        streaming.StreamingDataset(local=place, shuffle=True, shuffle_algo="py1b")


def test_local_data_sets_are_read_by_number(streaming, place):
    dataset = streaming.LocalDataset(place)
    assert len(dataset) == dataset.size == 20
    assert (dataset[3], dataset[-1], dataset[18:]) == ({"n": 3}, {"n": 19}, [{"n": 18}, {"n": 19}])
    assert [sample["n"] for sample in dataset] == list(range(20))
    with pytest.raises(IndexError):
        _ = dataset[20]


@pytest.mark.parametrize(
    "index", [20, -21, np.int64(20), [1, 25], "1", 1.5, None, np.array([True]), np.array([1.0])]
)
def test_wrong_indices_are_refused_with_the_data_set(streaming, place, index):
    dataset = streaming.StreamingDataset(local=place, batch_size=1)
    local = streaming.LocalDataset(place)
    for each, where in ((dataset, "data set"), (local, "data set"), (local.shards[0], "shard")):
        with pytest.raises(IndexError, match=f"Invalid sample index .*{where} .*{place}") as caught:
            _ = each[index]
        assert isinstance(caught.value, ValueError)  # as there, if it is no integer
        assert "has samples 0 to 19; index by" in str(caught.value)
    if not isinstance(index, (list, np.ndarray)):
        with pytest.raises(IndexError, match=f"Invalid sample index .*data set {place} has"):
            local.get_item(index)


@pytest.mark.parametrize(
    ("index", "numbers"),
    [
        (slice(-2, None), [18, 19]),
        (slice(18, 25), [18, 19]),
        (slice(25, None), []),
        (slice(None, None, -9), [19, 10, 1]),
        (np.array([-1, 3]), [19, 3]),
        ([], []),
    ],
)
def test_several_samples_are_read_by_indices(streaming, place, index, numbers):
    local = streaming.LocalDataset(place)
    for each in (streaming.StreamingDataset(local=place, batch_size=1), local, local.shards[0]):
        assert each[index] == [{"n": number} for number in numbers]


def test_local_data_sets_are_those_of_torch(streaming, place):
    data = pytest.importorskip("torch.utils.data")
    dataset = streaming.LocalDataset(place)
    assert isinstance(dataset, data.Dataset)
    assert (len(dataset + dataset), (dataset + dataset)[21]) == (40, {"n": 1})


@pytest.mark.parametrize("indices", [[[0, 1], [2]], np.int64([[0, 1], [2, 3]]), [np.int64([4])]])
def test_nested_indices_give_nested_samples(streaming, place, indices):
    dataset = streaming.StreamingDataset(local=place, batch_size=1)
    expected = [[{"n": int(index)} for index in part] for part in indices]
    assert dataset[indices] == expected == streaming.LocalDataset(place)[indices]


def test_an_empty_remote_is_none(streaming, place):
    dataset = streaming.StreamingDataset(remote="", local=place, batch_size=1)
    assert (dataset[3], dataset.streams[0].remote) == ({"n": 3}, None)
    streams = [streaming.Stream(remote="", local=place)]
    assert streaming.StreamingDataset(streams=streams, batch_size=1)[3] == {"n": 3}


@pytest.mark.parametrize("named", [False, True])
def test_parts_are_joined_as_there(streaming, tmp_path, named):
    for part in range(2):
        with streaming.MDSWriter(out=str(tmp_path / str(part)), columns={"n": "int"}) as out:
            out.write({"n": part})
    merge_index = sys.modules["streaming.base.util"].merge_index
    parts = [str(tmp_path / str(part) / "index.json") for part in (1, 0)]
    if named:
        assert merge_index(index_file_urls=parts, out=str(tmp_path), keep_local=True) is None
    else:
        merge_index(parts, str(tmp_path), True, 30)
    assert [sample["n"] for sample in streaming.LocalDataset(str(tmp_path))] == [1, 0]
    merge_index(str(tmp_path), True)
    assert [sample["n"] for sample in streaming.LocalDataset(str(tmp_path))] == [0, 1]
    merge_index([parts[0], f" {parts[0]}/ ", parts[1], (parts[1], ""), parts[0]], str(tmp_path))
    assert [sample["n"] for sample in streaming.LocalDataset(str(tmp_path))] == [1, 0]


def test_a_stop_iteration_of_a_local_data_set_is_an_error(streaming, tmp_path):
    class Stopping(streaming.LocalDataset):
        def get_item(self, sample_id):
            return next(iter(()))

    with streaming.MDSWriter(out=str(tmp_path), columns={"n": "int"}) as out:
        out.write({"n": 1})
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(Stopping(str(tmp_path)))


def test_without_a_plugin_its_names_say_what_to_install(streaming, monkeypatch):
    sys.modules["streaming.base.format"].__dict__.pop("JSONWriter", None)
    from streamplug_mosaic.compat.writers import text_writer

    text_writer.cache_clear()
    monkeypatch.setitem(sys.modules, "streamplug_text", None)
    with pytest.raises(
        ImportError, match="JSONWriter comes with a plugin: pip install streamplug-t"
    ):
        _ = streaming.JSONWriter


def test_the_size_of_an_epoch_goes_by_two_names(streaming, place):
    for size in (30, 30.0, "30"):
        assert len(streaming.StreamingDataset(local=place, samples_per_epoch=size)) == 30
    assert len(streaming.StreamingDataset(local=place, samples_per_epoch=2.5)) == 2
    with pytest.raises(StreamplugError, match=r"epoch_size=nan"):
        streaming.StreamingDataset(local=place, samples_per_epoch=float("nan"))
    with pytest.raises(ConfigError, match="either epoch_size= or samples_per_epoch="):
        streaming.StreamingDataset(local=place, samples_per_epoch=30, epoch_size=30)


def test_empty_arguments_are_not_set(streaming, place):
    settings = {"local": place, "batch_size": 4, "shuffle": True}
    expected = list(streaming.StreamingDataset(**settings))
    for empty in (
        {"cache_limit": 0},
        {"cache_limit": ""},
        {"validate_hash": ""},
        {"num_canonical_nodes": 0},
        {"epoch_size": 0},
        {"epoch_size": 0.5},
        {"epoch_size": ""},
    ):
        dataset = streaming.StreamingDataset(**settings, **empty)
        assert list(dataset) == expected
        assert dataset.cache_limit is None
    del settings["local"]
    streams = [streaming.Stream(local=place, validate_hash="")]
    assert list(streaming.StreamingDataset(streams=streams, **settings)) == expected


def test_shards_and_streams_are_counted(streaming, tmp_path):
    with streaming.MDSWriter(out=str(tmp_path), columns={"n": "int"}, size_limit=200) as out:
        for n in range(40):
            out.write({"n": n})
    dataset = streaming.StreamingDataset(local=str(tmp_path))
    assert len(dataset.shards) > 2
    assert [len(shard) for shard in dataset.shards] == list(dataset.samples_per_shard)
    assert sum(shard.samples for shard in dataset.shards) == dataset.num_samples == 40
    assert dataset.shards[0].size == dataset.shards[0].samples
    assert dataset.num_streams == 1


def test_well_known_data_sets_have_its_defaults(streaming, place, tmp_path):
    pytest.importorskip("streamplug_datasets")
    from streamplug import StreamingDataset

    order = {"shuffle": True, "batch_size": 4}
    theirs = streaming.multimodal.StreamingOutsideGIWebVid(local=place, **order)
    order |= {"shuffle_algo": "py1s", "shuffle_block_size": 1 << 18, "partition_algo": "orig"}
    assert list(theirs) == list(StreamingDataset(local=place, **order))
    assert type(theirs) is sys.modules["streaming.multimodal.webvid"].StreamingOutsideGIWebVid
    again = pickle.loads(pickle.dumps(theirs))
    assert again[3] == {"n": 3}
    order["shuffle"] = False
    stored = streaming.vision.StreamingImageNet(local=place, **order)
    assert stored.state_dict() == StreamingDataset(local=place, **order).state_dict()
    assert stored.state_dict()["num_canonical_nodes"] == 64


def test_what_differs_is_listed():
    command = [sys.executable, "-m", "streamplug_mosaic", "--list"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    for module, names in MODULES.items():
        assert f"  {module}: {', '.join(names)}\n" in shown
    for each in (*ALWAYS, *EXCEPTIONS, *BY_DEFAULT):
        assert f"  {each.what}\n    {each.theirs} -> {each.ours}\n" in shown
    for missing, instead in MISSING.items():
        assert f"  {missing} -> {instead}\n" in shown


def test_the_guide_has_the_same_list():
    guide = Path(__file__).parents[3] / "docs" / "moving" / "mosaicml-streaming.md"
    rows = [
        tuple(
            re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell).strip()
            for cell in line.strip("|").split("|")
        )
        for line in guide.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    assert set(ALWAYS) <= set(rows)
    assert set(EXCEPTIONS) <= set(rows)
    assert set(BY_DEFAULT) <= set(rows)
    assert set(MISSING.items()) <= set(rows)


def test_padding_ends_loops_by_index_as_there(streaming, tmp_path):
    with streaming.MDSWriter(out=str(tmp_path), columns={"n": "int"}) as out:
        for n in range(5):
            out.write({"n": n})
    full = streaming.StreamingDataset(local=str(tmp_path), batch_size=1)
    assert [sample["n"] for sample in reversed(full)] == [4, 3, 2, 1, 0]
    padded = streaming.StreamingDataset(local=str(tmp_path), batch_size=4, epoch_size=8)
    assert len(padded) == 8
    assert list(reversed(padded)) == []
    for at in (5, -6, [0, 5], 8):
        with pytest.raises(IndexError):
            padded[at]


@pytest.mark.parametrize("size", [4, 2])
def test_a_loader_of_its_attributes_keeps_its_transform(streaming, tmp_path, size):
    """As Lightning rebuilds one: of the attributes that the signature names."""
    with streaming.MDSWriter(out=str(tmp_path), columns={"n": "int"}) as out:
        for n in range(8):
            out.write({"n": n})
    dataset = streaming.StreamingDataset(local=str(tmp_path), batch_size=4)
    options = {"collate_fn": negate_all} if size == 2 else {"transform": negate}
    loader = streaming.StreamingDataLoader(dataset, batch_size=size, **options)
    names = {*inspect.signature(loader.__init__).parameters, "collate_fn"} & vars(loader).keys()
    attributes = {name: vars(loader)[name] for name in names}
    again = streaming.StreamingDataLoader(**{**attributes, "batch_size": size})
    assert [n for batch in again for n in batch["n"].tolist()] == [-n for n in range(8)]


def negate(sample):
    return {"n": -sample["n"]}


def negate_all(samples):
    torch = pytest.importorskip("torch")
    return {"n": torch.tensor([-sample["n"] for sample in samples])}
