"""What scripts for mosaicml-streaming type, and what they see."""

from __future__ import annotations

import json
import pickle
import sys
from contextlib import suppress

import numpy as np
import pytest

from streamplug import World
from streamplug.errors import ConfigError, EncodeError, StateError, UnknownNameError
from streamplug.plugin import make, register


@pytest.fixture
def many(streaming, tmp_path):
    """Two data sets of some shards."""
    for name, count in (("a", 40), ("b", 20)):
        out = str(tmp_path / name)
        with streaming.MDSWriter(
            out=out, columns={"n": "int"}, size_limit=250, compression="gz"
        ) as writer:
            for n in range(count):
                writer.write({"n": n})
    return tmp_path


# -- modules that are not there --------------------------------------------------------


@pytest.mark.parametrize("package", ["streaming", "streamplug_mosaic"])
@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("from streaming.base.format.mds import MDSReader", "`LocalDataset`"),
        ("from streaming.base.format.xsv.encodings import xsv_encode", "`LocalDataset`"),
        ("from streaming.base.util import get_import_exception_message", "errors name the package"),
        ("from streaming.base.array import Array", "nothing"),
        ("from streaming.base.storage import S3Uploader", r"streamplug\.plugin\.open_storage"),
        ("import streaming.base.storage.extra", r"streamplug\.plugin\.open_storage"),
        ("from streaming.base.registry_utils import create_registry", "TypedRegistry"),
        ("from streaming.base.shared import SharedArray", "nothing"),
        ("import streaming.base.spanner", "nothing"),
        ("from streaming.base.compression import Zstandard", "`compress` and `decompress`"),
        ("import streaming.text.convert", "streamplug-datasets"),
        ("import streaming.unheard.of", "--list"),
    ],
)
@pytest.mark.usefixtures("streaming")
def test_a_missing_module_says_what_replaces_it(line, instead, package):
    line = line.replace("streaming", package, 1)
    with pytest.raises(ImportError, match=rf"^{package}\..*: streamplug_mosaic has .*{instead}"):
        exec(line, {})


def test_other_missing_modules_are_left_alone(streaming):
    with pytest.raises(ModuleNotFoundError, match="No module named 'unheard_of'"):
        exec("import unheard_of", {})


# -- sizes -----------------------------------------------------------------------------


def test_sizes_and_counts_are_read_as_there(streaming):
    util = sys.modules["streaming.base.util"]
    for given, expected in (
        ("64kb", 65536), ("1.11eb", int(1.11 * 1024**6)), (0.5 * 1024, 512), (1.9, 1), ("7", 7),
        (" 2 MB ", 2 << 20), ("5b", 5), ("-1kb", -1024), (True, 1),
    ):  # fmt: skip
        assert util.bytes_to_int(given) == expected
    for given, expected in (("100k", 100_000), (500.0, 500), ("1.5M", 1_500_000), ("12", 12)):
        assert util.number_abbrev_to_int(given) == expected
    for wrong in ("", "kb", "1 xb", "5.5", "1e9", "nankb", "²"):
        with pytest.raises(ValueError, match=r"Unsupported value/suffix .* expected a number"):
            util.bytes_to_int(wrong)
        with pytest.raises(ValueError, match=r"Unsupported value/suffix .* expected a number"):
            util.number_abbrev_to_int(wrong)
    for parse, wrong in ((util.bytes_to_int, "infgb"), (util.number_abbrev_to_int, "1e400k")):
        with pytest.raises(ConfigError, match="Unsupported value/suffix"):
            parse(wrong)


def test_an_epoch_and_a_cache_may_be_whole_floats(streaming, many):
    dataset = streaming.StreamingDataset(
        remote=f"{many}/a", local=f"{many}/near", epoch_size=1e2, cache_limit=1e6
    )
    assert (dataset.epoch_size, dataset.cache_limit) == (100, 1_000_000)


# -- helpers ---------------------------------------------------------------------------


def test_helpers_do_as_there(streaming, tmp_path):
    util = sys.modules["streaming.base.util"]
    assert util.get_list_arg("a,b") == ["a", "b"]
    assert util.get_list_arg("") == []
    (tmp_path / "file").touch()
    util.wait_for_file_to_exist(str(tmp_path / "file"), 0.001, 1, "no file: ")
    with pytest.raises(RuntimeError, match=r"no file: 0\.010 < "):
        util.wait_for_file_to_exist(str(tmp_path / "none"), 0.002, 0.01, "no file: ")


def test_a_function_is_called_again_when_it_fails(streaming):
    retry = sys.modules["streaming.base.util"].retry
    seen = []

    @retry(
        [KeyError, RuntimeError],
        clean_up_fn=lambda: seen.append("clean"),
        initial_backoff=0.001,
        max_jitter=0,
    )
    def flaky():
        seen.append("call")
        if seen.count("call") < 3:
            raise RuntimeError
        return "done"

    assert flaky() == "done"
    assert seen == ["call", "clean"] * 2 + ["call"]
    calls = []

    @retry(KeyError, num_attempts=2, initial_backoff=0.001)
    def hopeless():
        calls.append(1)
        raise KeyError("again")

    with pytest.raises(KeyError, match="again"):
        hopeless()
    assert len(calls) == 2
    assert retry(lambda: 5)() == 5  # @retry
    with pytest.raises(ValueError, match="num_attempts=0"):
        retry(num_attempts=0)


def test_values_files_and_digests_are_coded_as_there(streaming):
    encodings = sys.modules["streaming.base.format.mds.encodings"]
    assert encodings.mds_encode("int", 5) == (5).to_bytes(8, "little")
    assert encodings.mds_decode("str", b"abc") == "abc"
    assert encodings.mds_encode("jpeg", b"as it is") == b"as it is"
    assert encodings.get_mds_encoded_size("ndarray:int16:2,3") == 12
    assert encodings.get_mds_encoded_size("str") is None
    assert [encodings.is_mds_encoding(name) for name in ("pil", "int", "nope", "int:3")] == [
        True,
        True,
        False,
        False,
    ]
    assert [encodings.is_mds_encoding_safe(name) for name in ("pkl", "int")] == [False, True]
    register("encoding", "unsafe-test", type(make("encoding", "pkl")))
    assert encodings.is_mds_encoding("unsafe-test")
    assert [encodings.is_mds_encoding_safe(name) for name in ("unsafe-test", "missing")] == [
        False,
        True,
    ]
    compression = sys.modules["streaming.base.compression"]
    assert compression.decompress("gz:3", compression.compress("gz:3", b"abc")) == b"abc"
    assert compression.compress(None, b"abc") == compression.decompress(None, b"abc") == b"abc"
    assert compression.get_compression_extension("bz2:4") == "bz2"
    assert not compression.is_compression("gz:11")
    with pytest.raises(ValueError, match="'zip' is not a supported compression"):
        compression.compress("zip", b"")
    hashing = sys.modules["streaming.base.hashing"]
    assert hashing.get_hash("sha1", b"") == "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    assert hashing.is_hash("xxh64")
    assert "md5" in hashing.get_hashes()
    with pytest.raises(ValueError, match="sha0"):
        hashing.get_hash("sha0", b"")


# -- writers ---------------------------------------------------------------------------


def test_unknown_encodings_and_compressions_raise_what_they_raise_there(streaming, tmp_path):
    encodings = sys.modules["streaming.base.format.mds.encodings"]
    for function, arguments in (
        (encodings.mds_encode, [1]),
        (encodings.mds_decode, [b"1"]),
        (encodings.get_mds_encoded_size, []),
    ):
        with pytest.raises(ValueError, match="unknown encoding 'intt'"):
            function("intt", *arguments)
    settings = {"out": str(tmp_path / "set"), "columns": {"n": "int"}}
    with pytest.raises(TypeError, match=r"column 'n': unknown encoding 'intt'. Did you mean 'int'"):
        streaming.MDSWriter(**{**settings, "columns": {"n": "intt"}})
    with pytest.raises(ValueError, match="unknown compression 'zz'") as caught:
        streaming.MDSWriter(**settings, compression="zz")
    assert isinstance(caught.value, UnknownNameError)


def test_a_writer_tells_its_config_and_ends_shards(streaming, tmp_path):
    out = str(tmp_path / "set")
    writer = streaming.MDSWriter(
        out=out, columns={"text": "str", "n": "int"}, hashes=["sha1"], size_limit=1e6
    )
    config = writer.get_config()
    assert (config["format"], config["column_names"]) == ("mds", ["n", "text"])
    assert (writer.format, writer.local, writer.remote) == ("mds", out, None)
    assert (writer.column_sizes, writer.size_limit, writer.hashes) == (
        [8, None],
        1_000_000,
        ["sha1"],
    )
    assert writer.encode_sample({"n": 1, "text": "ab"}) == b"\2\0\0\0" + b"\1" + b"\0" * 7 + b"ab"
    writer.flush_shard()  # nothing to write yet
    for n in range(5):
        writer.write({"n": n, "text": "a", "more": None})  # which is no column
        if n == 2:
            assert len(writer.new_samples) == 3
            writer.flush_shard()
            assert [shard["samples"] for shard in writer.shards] == [3]
    writer.finish()
    index = json.loads((tmp_path / "set" / "index.json").read_text())
    assert [shard["samples"] for shard in index["shards"]] == [3, 2]
    assert {key: index["shards"][0][key] for key in config} == config
    with pytest.raises(ValueError, match="complete"):
        writer.flush_shard()


def test_a_sample_without_a_column_is_refused(streaming, tmp_path):
    writer = streaming.MDSWriter(out=str(tmp_path), columns={"n": "int", "m": "int"})
    with pytest.raises(EncodeError, match=r"missing: \['m'\]"):
        writer.write({"n": 1, "other": 2})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            {"min_workers": 1},
            "Invalid Writer argument 'min_workers'. Did you mean 'max_workers'",
        ),
        ({"hashes": ["xxh64", "sha1"]}, "must be sorted"),
        ({"size_limit": 1 << 32}, r"must be less than 2\*\*32 bytes .* got 4294967296"),
        ({"size_limit": "-1kb"}, "above 0, got -1024"),
    ],
)
def test_arguments_without_meaning_are_value_errors(streaming, tmp_path, wrong, text):
    with pytest.raises(ValueError, match=text):
        streaming.MDSWriter(out=str(tmp_path), columns={"n": "int"}, **wrong)


def test_writers_of_text_have_it_too(streaming, tmp_path):
    pytest.importorskip("streamplug_text")
    for number, (name, more) in enumerate(
        [
            ("JSONWriter", {}),
            ("CSVWriter", {}),
            ("TSVWriter", {}),
            ("XSVWriter", {"separator": ";"}),
        ]
    ):
        cls = getattr(streaming, name)
        with cls(
            out=str(tmp_path / str(number)), columns={"n": "int"}, size_limit=None, **more
        ) as out:
            assert out.get_config()["size_limit"] is None
            out.write({"n": 1, "more": 2})
            out.flush_shard()
            out.write({"n": 2})
            assert getattr(out, "separator", ",") in ",\t;"
        assert [s["n"] for s in streaming.LocalDataset(str(tmp_path / str(number)))] == [1, 2]
        assert cls is getattr(sys.modules["streaming.base"], name)


# -- data sets and streams -------------------------------------------------------------


def test_a_data_set_has_the_attributes_that_scripts_read(streaming, many):
    dataset = streaming.StreamingDataset(
        remote=f"{many}/a", local=f"{many}/near", batch_size=4, shuffle=True, replication=1
    )
    assert (dataset.epoch_size, dataset.shuffle_algo, dataset.partition_algo) == (
        40,
        "py1e",
        "relaxed",
    )
    assert (dataset.replication, dataset.cache_limit, dataset.length) == (1, None, 40)
    assert dataset.epoch_seed_change
    assert dataset.initial_physical_nodes is None
    shards = dataset.shards
    assert dataset.stream_per_shard.tolist() == [0] * len(shards)
    assert dataset.sample_offset_per_shard[1] == len(shards[0])
    assert (
        dataset.shard_offset_per_stream.tolist() == dataset.sample_offset_per_stream.tolist() == [0]
    )
    first = shards[0]
    assert (first.samples, first.compression, first.column_names) == (len(first), "gz", ["n"])
    assert (first[1], first[-1], len(first[:2])) == ({"n": 1}, {"n": len(first) - 1}, 2)
    assert [sample["n"] for sample in shards[1]] == list(
        range(len(first), len(first) + len(shards[1]))
    )
    assert first.raw_data.basename == "shard.00000.mds"
    assert first.get_max_size() == first.raw_data.bytes + first.zip_data.bytes
    assert first.get_persistent_size(False) == first.get_raw_size()
    assert (first.dirname, first.split) == (f"{many}/near", "")
    with pytest.raises(AttributeError, match="a shard has no 'colour'"):
        _ = first.colour
    sizes, numbers = dataset.resample_streams(0)
    assert sizes.tolist() == dataset.samples_per_shard.tolist()
    assert numbers.tolist() == list(range(40))


def test_shards_are_fetched_evicted_and_counted(streaming, many):
    dataset = streaming.StreamingDataset(remote=f"{many}/a", local=f"{many}/near")
    index = dataset.cache_usage
    assert index == (many / "near" / "index.json").stat().st_size
    with pytest.raises(ValueError, match="no shard is in the cache"):
        dataset.evict_coldest_shard()
    dataset.prepare_shard(1, blocking=False)
    assert dataset.cache_usage == index + dataset.shards[1].get_raw_size()
    dataset.evict_coldest_shard()
    assert dataset.cache_usage == index


def test_a_stream_tells_its_derived_weights(streaming, many):
    streams = [
        streaming.Stream(remote=f"{many}/a", local=f"{many}/near-a", repeat=0.5),
        streaming.Stream(remote=f"{many}/b", local=f"{many}/near-b", choose=30),
    ]
    dataset = streaming.StreamingDataset(streams=streams, batch_size=5, keep_zip=True)
    for stream in (streams[0], dataset.streams[0]):
        assert (stream.proportion, stream.repeat, stream.choose) == (0.4, 0.5, 20)
        assert (stream.download_retry, stream.keep_zip, stream.split) == (2, True, "")
    assert dataset.streams[1].repeat == 1.5
    again = streaming.StreamingDataset(streams=streams, batch_size=5)
    assert again.epoch_size == 50
    assert pickle.loads(pickle.dumps(dataset)).streams[1].repeat == 1.5


def test_a_stream_gives_its_shards(streaming, many):
    from streamplug.errors import UnsafeTypeError

    stream = streaming.Stream(local=f"{many}/b")
    shards = stream.get_shards(sys.modules["streaming.base.world"].World.detect(), False)
    assert sum(map(len, shards)) == 20
    assert shards[0][0] == {"n": 0}
    with streaming.MDSWriter(out=f"{many}/unsafe", columns={"n": "pkl"}) as out:
        out.write({"n": 1})
    with pytest.raises(UnsafeTypeError):
        streaming.Stream(local=f"{many}/unsafe").get_shards(None, False)


def test_worlds_are_told_as_there(streaming):
    world = sys.modules["streaming.base.world"].World
    here = world.detect()
    assert (here.num_ranks, here.rank, here.is_leader) == (1, 0, True)
    there = world(2, 4, 3, 17)
    assert (there.node, there.rank_of_node, there.worker_of_rank) == (1, 1, 2)
    assert there.copy().to_json() == there.to_json()
    assert there.replicate(2).rank == 2
    with pytest.raises(ValueError, match="replication=3"):
        there.replicate(3)


# -- loaders ---------------------------------------------------------------------------


def test_a_loader_may_have_batches_that_are_lists_of_samples(streaming, many):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=8)
    loader = streaming.StreamingDataLoader(dataset, 8, collate_fn=list)
    for _ in zip(range(3), loader):
        pass
    assert loader.num_samples_yielded == 24
    assert loader.state_dict()["sample_in_epoch"] == 24


class Numbers:
    """A batch that only its own loader can count."""

    def __init__(self, samples):
        self.numbers = [sample["n"] for sample in samples]


@pytest.mark.parametrize("size", [8, 4])
def test_a_loader_counts_batches_as_its_subclass_says(streaming, many, size):
    pytest.importorskip("torch")

    class Loader(streaming.StreamingDataLoader):
        def _get_batch_size(self, batch):
            return len(batch.numbers)

    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=8)
    loader = Loader(dataset, batch_size=size, collate_fn=Numbers)
    batches = iter(loader)
    numbers = [number for _ in range(16 // size) for number in next(batches).numbers]
    assert (numbers, loader.num_samples_yielded) == (list(range(16)), 16)
    assert loader.state_dict()["sample_in_epoch"] == 16


@pytest.mark.parametrize(("size", "workers"), [(2, 0), (1, 2)])
def test_a_loader_without_batches_counts_samples(streaming, tmp_path, size, workers):
    pytest.importorskip("torch")
    out = str(tmp_path / "set")
    with streaming.MDSWriter(out=out, columns={"a": "ndarray:int16:3", "n": "int"}) as writer:
        for n in range(10):
            writer.write({"a": np.full(3, n, np.int16), "n": n})

    class Pairs(streaming.StreamingDataset):
        def __iter__(self):
            samples = super().__iter__()
            return ({"n": [one["n"], other["n"]]} for one, other in zip(samples, samples))

    def load(kind):
        dataset = kind(local=out, batch_size=size)
        return streaming.StreamingDataLoader(dataset, batch_size=None, num_workers=workers)

    loader, again = load(streaming.StreamingDataset), load(streaming.StreamingDataset)
    samples = iter(loader)
    seen = [next(samples)["n"] for _ in range(4)]
    assert loader.num_samples_yielded == 4
    again.load_state_dict(loader.state_dict())
    assert sorted([*seen, *(sample["n"] for sample in again)]) == list(range(10))
    pairs = load(Pairs)
    next(iter(pairs))
    assert pairs.num_samples_yielded == 2


@pytest.mark.parametrize("empty", [{}, []])
def test_a_batch_that_cannot_be_counted_is_refused(streaming, many, empty):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=8)
    for collate, kind in ((Numbers, "Numbers"), (lambda samples: empty, type(empty).__name__)):
        loader = streaming.StreamingDataLoader(dataset, batch_size=8, collate_fn=collate)
        with pytest.raises(ConfigError, match=f"of type {kind} .*override .*_get_batch_size"):
            next(iter(loader))


def test_the_end_of_a_loop_does_not_move_a_later_one_with_batches_of_another_size(streaming, many):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    loader = streaming.StreamingDataLoader(dataset, 8)
    earlier, batches = iter(loader), iter(loader)
    next(earlier)
    for _ in range(3):
        next(batches)
    next(earlier)
    state = loader.state_dict()
    assert (loader.num_samples_yielded, state["epoch"], state["sample_in_epoch"]) == (16, 0, 16)
    list(earlier)
    state = loader.state_dict()
    assert (loader.num_samples_yielded, state["epoch"], state["sample_in_epoch"]) == (40, 0, 40)
    next(batches)
    state = loader.state_dict()
    assert (loader.num_samples_yielded, state["epoch"], state["sample_in_epoch"]) == (32, 1, 32)
    next(iter(dataset))
    with pytest.raises(StateError, match="another loop over the data set was started, or read"):
        loader.state_dict()


def test_a_loader_may_have_batches_of_another_size(streaming, many):
    pytest.importorskip("torch")
    settings = {"local": f"{many}/a", "batch_size": 4, "shuffle": True}
    order = [sample["n"] for sample in streaming.StreamingDataset(**settings)]
    loader = streaming.StreamingDataLoader(streaming.StreamingDataset(**settings), 8)
    batches = iter(loader)
    seen = [next(batches)["n"].tolist() for _ in range(3)]
    assert seen == [order[:8], order[8:16], order[16:24]]
    assert loader.num_samples_yielded == 24
    state = loader.state_dict()
    assert state["sample_in_epoch"] == 24
    again = streaming.StreamingDataLoader(streaming.StreamingDataset(**settings), batch_size=8)
    again.load_state_dict(state)
    assert [n for batch in again for n in batch["n"].tolist()] == order[24:]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_length_of_a_loader_leaves_its_batches_as_they_are(streaming, many, workers):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    loader = streaming.StreamingDataLoader(dataset, batch_size=16, num_workers=workers)
    assert len(loader) == 3
    sizes = []
    for batch in loader:  # list() calls len() first
        sizes.append(len(batch["n"]))
        assert len(loader) == 3
    assert sizes == [len(batch["n"]) for batch in list(loader)] == [16, 16, 8]
    assert loader.batch_size == 16
    dropping = streaming.StreamingDataLoader(dataset, batch_size=16, drop_last=True)
    assert len(dropping) == len(list(dropping)) == 2
    assert len(streaming.StreamingDataLoader(list(range(10)), batch_size=4)) == 3


def test_a_loader_has_batches_of_one_unless_told(streaming, many):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    assert len(next(iter(streaming.StreamingDataLoader(dataset)))["n"]) == 1


def test_states_between_batches_of_the_data_set_are_refused(streaming, many):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    loader = streaming.StreamingDataLoader(dataset, batch_size=3)
    next(iter(loader))
    with pytest.raises(
        StateError, match="num_samples=3 is not a multiple of the global batch size 4"
    ):
        loader.state_dict()


@pytest.mark.parametrize("ranks", [1, 2])
def test_states_exist_after_a_short_last_batch(streaming, many, ranks):
    settings = {"local": f"{many}/a", "batch_size": 7, "shuffle": True, "world": World(1, ranks)}
    dataset = streaming.StreamingDataset(**settings)
    num_samples = len(list(dataset)) * ranks
    assert num_samples == 40
    state = dataset.state_dict(num_samples, from_beginning=True)
    assert (state["epoch"], state["sample_in_epoch"]) == (0, 42)
    again = streaming.StreamingDataset(**settings)
    again.load_state_dict(state)
    assert list(again) == []
    assert again.next_epoch == 1
    with pytest.raises(StateError, match="num_samples=39 is not a multiple"):
        dataset.state_dict(39, from_beginning=True)


def test_states_after_a_short_last_batch_count_from_where_the_epoch_was_resumed(streaming, many):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=7)
    loader = streaming.StreamingDataLoader(dataset, batch_size=5)
    loader.load_state_dict(dataset.state_dict(14, from_beginning=True))
    assert sum(len(batch["n"]) for batch in loader) == 26
    assert loader.state_dict()["sample_in_epoch"] == 42


def test_states_while_workers_are_inside_batches_of_the_data_set_are_refused(streaming, many):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    loader = streaming.StreamingDataLoader(dataset, batch_size=2, num_workers=2)
    numbers, states = [], {}
    for batch in loader:
        numbers += batch["n"].tolist()
        with suppress(StateError):
            states[len(numbers)] = loader.state_dict()
    # After 4 samples, each worker has yielded half of a batch of the data set.
    assert list(states) == [8, 16, 24, 32, 40]
    assert all(states[seen]["sample_in_epoch"] == seen for seen in states)
    assert loader.state_dict()["sample_in_epoch"] == 40
    assert sorted(numbers[:24]) == list(range(24))
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    with pytest.raises(StateError, match="the 2 workers have yielded 4 samples, which are not"):
        loader.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("size", "drop_last"), [(2, False), (7, False), (7, True)])
def test_a_state_after_an_epoch_with_a_short_last_batch(streaming, many, size, drop_last, workers):
    pytest.importorskip("torch")
    settings = {"local": f"{many}/a", "batch_size": 6}  # 40 samples
    options = {"batch_size": size, "drop_last": drop_last, "num_workers": workers}
    loader = streaming.StreamingDataLoader(streaming.StreamingDataset(**settings), **options)
    assert sum(len(batch["n"]) for batch in loader) <= 40
    state = loader.state_dict()
    again = streaming.StreamingDataLoader(streaming.StreamingDataset(**settings), **options)
    again.load_state_dict(state)
    assert [len(list(again)), again.dataset.next_epoch] == [0, 1]


def test_a_loader_takes_what_torch_takes(streaming, many):
    torch = pytest.importorskip("torch")
    loader = streaming.StreamingDataLoader(list(range(10)), 5, False, num_workers=0)
    assert "list" in loader._repr_html_()
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert loader.state_dict() is None
    loader.set_epoch(1)
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    with pytest.raises(ConfigError, match=r"\['num_threads'\]: only if batch_size=8"):
        streaming.StreamingDataLoader(dataset, batch_size=8, num_threads=2)
    with pytest.raises(
        ConfigError, match="in_order=False: a state says how many samples were used"
    ):
        streaming.StreamingDataLoader(dataset, batch_size=8, in_order=False)
    with pytest.raises(ConfigError, match="with batch_size=8, which is not that"):
        streaming.StreamingDataLoader(dataset, batch_size=8).resize(World(1, 2))
    same = streaming.StreamingDataLoader(dataset, 4, False, None)
    assert isinstance(same, torch.utils.data.DataLoader)
    assert sum(len(batch["n"]) for batch in same) == same.num_samples_yielded == 40


def test_a_state_that_was_loaded_into_a_loader_is_its_state(streaming, many):
    pytest.importorskip("torch")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    loader = streaming.StreamingDataLoader(dataset, batch_size=2)
    batches = iter(loader)
    numbers = [next(batches)["n"].tolist() for _ in range(4)]
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    with pytest.raises(ConfigError, match="a state was loaded; leave the loop"):
        next(batches)
    numbers += [batch["n"].tolist() for batch in loader]
    again = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    assert [number for batch in numbers for number in batch] == [sample["n"] for sample in again]


def test_a_loader_of_batches_of_the_data_set_reads_columns(streaming, many):
    pytest.importorskip("torch")
    settings = {"local": f"{many}/a", "batch_size": 4, "shuffle": True}
    order = [sample["n"] for sample in streaming.StreamingDataset(**settings)]
    for options in ({}, {"num_threads": 1}, {"num_workers": 1}, {"batch_transform": dict}):
        dataset = streaming.StreamingDataset(**settings)
        dataset.session.reader.rows = None  # no samples are read
        loader = streaming.StreamingDataLoader(dataset, batch_size=4, **options)
        assert [n for batch in loader for n in batch["n"].tolist()] == order


def test_samples_that_a_subclass_changes_are_read_one_by_one(streaming, many):
    pytest.importorskip("torch")

    class Negated(streaming.StreamingDataset):
        def __iter__(self):
            return ({"n": -sample["n"]} for sample in super().__iter__())

    class Doubled(streaming.StreamingDataset):
        def get_item(self, sample_id, retry=7):
            return {"n": 2 * super().get_item(sample_id)["n"]}

    for cls, factor in ((Negated, -1), (Doubled, 2)):
        loader = streaming.StreamingDataLoader(cls(local=f"{many}/a", batch_size=4), batch_size=4)
        assert [n for b in loader for n in b["n"].tolist()] == [factor * n for n in range(40)]
        with pytest.raises(ConfigError, match=f"{cls.__name__} makes samples of its own"):
            streaming.StreamingDataLoader(loader.dataset, batch_size=4, num_threads=1)


def test_batches_of_columns_are_checked_at_the_start_of_an_epoch(streaming, many):
    settings = {"local": f"{many}/a", "shuffle": True, "num_canonical_nodes": 64}
    with pytest.raises(ConfigError, match="samples assigned to a canonical node is 0: 40 samples"):
        next(streaming.StreamingDataset(batch_size=4, **settings).batches())


def test_batches_of_a_budget_are_loaded(streaming, many):
    pytest.importorskip("torch")
    pytest.importorskip("streamplug_budget")
    budget = {"limit": 50, "column": "n", "measure": "value"}
    options = {"partition_algo": "elastic", "batching_method": "budget", "batch_budget": budget}
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=8, **options)
    loader = streaming.StreamingDataLoader(dataset, batch_size=8)
    batches = [batch["n"].tolist() for batch in loader]
    assert sorted(n for batch in batches for n in batch) == list(range(40))
    assert max(map(sum, batches)) <= 50
    without_size = streaming.StreamingDataset(local=f"{many}/a", **options)
    assert sum(len(batch["n"]) for batch in without_size.batches()) == 40


def test_data_sets_are_packed(streaming, many):
    packing = pytest.importorskip("streamplug_packing")
    dataset = streaming.StreamingDataset(local=f"{many}/a", batch_size=4)
    packs = packing.PackedSamples(
        dataset, length=50, size=lambda sample: 1 + sample["n"], open_bins=1
    )
    assert list(next(iter(packs))["n"]) == list(range(9))
