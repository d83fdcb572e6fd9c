"""What programs written for webdataset type: pipelines over anything, and arguments by their names."""

from __future__ import annotations

import io
import logging
import pickle
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import streamplug_webdataset as wds
from streamplug_webdataset.loop_counter import LoopCounter

from streamplug.errors import (
    CacheConflictError,
    ConfigError,
    DataError,
    EncodeError,
    StateError,
    UnsafeTypeError,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
COUNT = 9


@pytest.fixture(scope="module")
def tars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tars")
    for name, begin in (("a", 0), ("b", COUNT)):
        with wds.TarWriter(folder / f"{name}.tar") as out:
            for n in range(begin, begin + COUNT):
                out.write({"__key__": f"{n:04d}", "cls": n, "txt": f"text {n}", "pyd": {"n": n}})
    return folder


def classes(outputs):
    return [int(each["cls"]) for each in outputs]


def test_shuffle_without_arguments_and_with_bufsize(tars):
    for changed in (
        wds.WebDataset(f"{tars}/a.tar").shuffle(),
        wds.WebDataset(f"{tars}/a.tar").shuffle(bufsize=100),
        wds.WebDataset(f"{tars}/a.tar").shuffle(100, initial=10),
        wds.WebDataset(f"{tars}/a.tar").detshuffle(),
        wds.DataPipeline(
            wds.SimpleShardList(f"{tars}/a.tar"), wds.tarfile_to_samples(), wds.shuffle()
        ),
    ):
        first, second = classes(changed), classes(changed)
        assert sorted(first) == sorted(second) == list(range(COUNT))
        assert first != second


def test_subclasses_of_a_list_of_stages_are_themselves(tars):
    class Texts(wds.DataPipeline):
        def __init__(self, urls, name="txt"):
            self.name = name
            super().__init__(
                wds.SimpleShardList(urls), wds.tarfile_to_samples(), wds.decode(only=name)
            )

        def __iter__(self):
            return (sample[self.name] for sample in super().__iter__())

    texts = [f"text {n}" for n in range(COUNT)]
    assert list(Texts(f"{tars}/a.tar")) == list(Texts(urls=f"{tars}/a.tar")) == texts
    shuffled = Texts(f"{tars}/a.tar").shuffle(100)
    assert type(shuffled) is Texts
    assert sorted(shuffled) == texts

    class Numbers(wds.DataPipeline):
        def __init__(self, count):
            super().__init__(range(count))

    with pytest.raises(ConfigError, match=r"Numbers: .* subclass IterablePipeline"):
        Numbers(3)

    class Loader(wds.WebLoader):
        pass

    with pytest.raises(ConfigError, match="WebLoader loads a pipeline"):
        Loader(wds.MockDataset(1, 3))


def test_stages_that_are_objects_are_added_to_pipelines_of_archives(tars):
    class Texts(wds.PipelineStage):
        def run(self, source):
            return (sample["txt"].decode() for sample in source)

    texts = [f"text {n}" for n in range(COUNT)]
    dataset = wds.WebDataset(f"{tars}/a.tar")
    assert list(dataset.compose(Texts())) == texts
    assert list(wds.WebLoader(dataset, batch_size=None).compose(Texts())) == texts
    assert list(wds.FluidWrapper(dataset).compose(Texts())) == texts
    pipeline = dataset.compose(Texts())
    outputs = iter(pipeline)
    first, state = next(outputs), pipeline.state_dict()
    again = dataset.compose(Texts())
    again.load_state_dict(state)
    assert [first, *again] == texts
    with pytest.raises(StateError, match="the state is of stages"):
        dataset.compose(lambda source: source).load_state_dict(state)
    for refusing in (dataset, wds.WebLoader(dataset)):
        with pytest.raises(ConfigError, match="Cached"):
            refusing.compose(wds.Cached())


def test_samples_are_printed_in_a_format(tars):
    printed = io.StringIO()
    stage = wds.info("{__key__}: {cls}", n=2, every=4, stream=printed)
    assert classes(wds.WebDataset(f"{tars}/a.tar").decode(only="cls").compose(stage)) == [*range(9)]
    assert printed.getvalue() == "0000: 0\n0001: 1\n0003: 3\n0007: 7\n"
    stage = wds.info("{__key__}\t{cls}", stream=printed)
    list(wds.DataPipeline([{"__key__": "\x1b[2J", "cls": 1}], stage))
    assert printed.getvalue().endswith("7: 7\n\\x1b[2J\t1\n")


@pytest.mark.filterwarnings("error")  # copies of what counts them warn from Python 3.12 on
def test_samples_are_printed_at_the_beginning_of_each_loop(tars):
    printed = io.StringIO()
    stage = wds.info("{__key__}", n=1, stream=printed)
    pipeline = wds.DataPipeline([{"__key__": "a"}, {"__key__": "b"}], stage)
    assert len([*pipeline, *pipeline]) == 4
    assert printed.getvalue() == "a\na\n"
    shown = wds.WebDataset(f"{tars}/a.tar").info(n=1)
    copy = pickle.loads(pickle.dumps(shown))
    assert len(list(copy)) == len(list(shown)) == 9


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_without_batches_collates_each_output(tars, workers):
    batches = wds.WebDataset(f"{tars}/a.tar").decode(only="cls").to_tuple("cls").listed(4)
    loader = wds.WebLoader(batches, batch_size=None, collate_fn=len, num_workers=workers)
    assert list(loader) == [4, 4, 1]
    with pytest.raises(ConfigError, match="drop_last= needs a batch_size"):
        wds.WebLoader(batches, batch_size=None, drop_last=True)


def test_a_data_set_in_a_with_statement(tars):
    with wds.WebDataset(f"{tars}/a.tar").decode(only="cls") as dataset:
        assert classes(dataset) == list(range(COUNT))
        with wds.WebLoader(dataset, batch_size=None, num_workers=1) as loader:
            assert classes(loader) == list(range(COUNT))
        assert classes(loader) == list(range(COUNT))  # begins again, with other workers


def test_a_pipeline_that_begins_with_a_loader(tars):
    dataset = wds.WebDataset(f"{tars}/{{a,b}}.tar").decode(only="cls").to_tuple("cls")
    loader = torch.utils.data.DataLoader(dataset, num_workers=2, batch_size=4)
    pipeline = wds.DataPipeline(loader, wds.unbatched(), wds.shuffle(100), wds.batched(6))
    assert isinstance(pipeline, wds.DataPipeline)
    found = np.concatenate([numbers for (numbers,) in pipeline])
    assert sorted(found.tolist()) == list(range(2 * COUNT))
    with pytest.raises(StateError, match="over an iterable has no state"):
        pipeline.state_dict()
    with pytest.raises(TypeError, match="with_length"):
        len(pipeline)
    assert len(pipeline.with_length(5)) == 5


def test_a_pipeline_over_a_list_or_a_function():
    assert list(wds.DataPipeline([1, 2, 3], wds.map(lambda x: 2 * x))) == [2, 4, 6]
    counts = wds.DataPipeline(lambda: iter(range(4)))
    assert list(counts.with_epoch(6)) == [0, 1, 2, 3, 0, 1]
    assert list(counts.repeat(2)) == [0, 1, 2, 3, 0, 1, 2, 3]
    assert list(wds.DataPipeline(list).repeat()) == []  # rather than going on without end
    counts.append(wds.select(lambda x: x % 2))
    assert (list(counts), counts.stage(1).name) == ([1, 3], "select")
    assert list(pickle.loads(pickle.dumps(wds.DataPipeline([1, 2], wds.batched(2, None))))) == [
        [1, 2]
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_a_pipeline_over_archives_without_a_plan(tars, workers):
    pipeline = wds.DataPipeline(
        wds.SimpleShardList(f"{tars}/{{a,b}}.tar"),
        lambda urls: urls,  # no plan knows what this does
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.decode(only="cls"),
        wds.to_tuple("cls"),
    )
    batches = list(wds.WebLoader(pipeline, batch_size=4, num_workers=workers))
    assert sorted(n for (numbers,) in batches for n in numbers.tolist()) == list(range(2 * COUNT))
    loader = wds.WebLoader(pipeline.batched(4), batch_size=None, num_workers=workers)
    assert sum(len(numbers) for (numbers,) in loader.unbatched().batched(3)) == 2 * COUNT
    assert len(list(wds.WebLoader(wds.FluidWrapper([1, 2, 3]), batch_size=2))) == 2


def test_workers_split_archives_of_an_iterable_pipeline(tars):
    pipeline = wds.DataPipeline(
        wds.SimpleShardList(f"{tars}/{{a,b}}.tar"),
        lambda urls: urls,  # no plan knows what this does
        wds.split_by_node,
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.decode(only="cls"),
    )
    loader = torch.utils.data.DataLoader(pipeline, batch_size=None, num_workers=2)
    assert sorted(classes(loader)) == list(range(2 * COUNT))


@pytest.mark.parametrize("variables", [{}, {"RANK": "1"}, {"WORLD_SIZE": "3"}])
def test_ranks_are_those_of_the_process_group(monkeypatch, variables):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert list(wds.split_by_node(range(9))) == [1, 4, 7]


def test_loops_of_new_workers_shuffle_in_another_order_which_is_that_of_all_workers():
    def loops(pipeline, workers):
        loader = torch.utils.data.DataLoader(pipeline, batch_size=None, num_workers=workers)
        return [list(loader) for _ in range(2)]

    items = list(range(40))
    first, second = loops(wds.DataPipeline(items, wds.shuffle(40), wds.split_by_worker), 2)
    assert sorted(first) == sorted(second) == items
    assert first != second
    copied = pickle.loads(pickle.dumps(wds.DataPipeline(items, wds.rsample(0.5))))
    first, second = loops(copied, 1)
    assert first != second


def test_a_loop_with_the_seed_of_one_that_was_left_before_all_workers_began_is_another(monkeypatch):
    place = "streamplug.adapters.torch_placement"
    counter = LoopCounter()

    def begin(worker, process):
        info = SimpleNamespace(id=worker, num_workers=2, seed=1234 + worker)
        monkeypatch.setattr(f"{place}.get_worker_info", lambda: info)
        monkeypatch.setattr(f"{place}.process_number", lambda: process)
        return counter.begin()

    assert begin(0, 1) == 0  # its other worker, process 2, was stopped before it began
    assert [begin(1, 4), begin(0, 3)] == [1, 1]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at /proc")
def test_few_archives_stay_open(tmp_path):
    urls = [f"{tmp_path}/{n}.tar" for n in range(40)]
    for n, url in enumerate(urls):
        with wds.TarWriter(url) as out:
            out.write({"__key__": f"{n}", "cls": n})
    before = len(list(Path("/proc/self/fd").iterdir()))
    pipeline = wds.DataPipeline([{"url": url} for url in urls], wds.tarfile_to_samples())
    assert classes(pipeline) == classes(pipeline) == list(range(40))
    assert len(list(Path("/proc/self/fd").iterdir())) - before < 20


def test_archives_on_a_plan_have_a_state_and_files_are_selected(tars):
    def pipeline():
        return wds.DataPipeline(
            wds.SimpleShardList(f"{tars}/{{a,b}}.tar"),
            wds.split_by_worker,
            wds.tarfile_to_samples(select_files=lambda name: name.endswith(".cls")),
        )

    first = pipeline()
    outputs = iter(first)
    assert set(next(outputs)) == {"__key__", "__url__", "cls"}
    again = pipeline()
    again.load_state_dict(first.state_dict())
    assert classes(again) == list(range(1, 2 * COUNT))


def test_files_of_a_data_set_are_renamed_but_not_moved(tars):
    dataset = wds.WebDataset(f"{tars}/a.tar", rename_files=lambda n: n.replace("cls", "x.txt"))
    assert set(next(iter(dataset))) == {"__key__", "__url__", "pyd", "txt", "x.txt"}
    moved = wds.WebDataset(f"{tars}/a.tar", rename_files=lambda n: f"z{n}")
    with pytest.raises(DataError, match="only extensions may change"):
        next(iter(moved))


def archive(path, names):
    """Write an archive whose files contain their own names."""
    with tarfile.open(path, "w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    return str(path)


def contents(samples):
    return [{k: v for k, v in sample.items() if k[:2] != "__"} for sample in samples]


def test_select_files_is_given_the_case_of_names(tmp_path):
    url = archive(tmp_path / "a.tar", ["0.JPG", "0.txt", "1.JPG", "1.__x", "2.txt", "2.TXT"])
    expected = [{"jpg": b"0.JPG", "txt": b"0.txt"}, {"jpg": b"1.JPG"}, {"txt": b"2.txt"}]

    def select(name):
        return name.endswith((".JPG", ".txt"))

    for pipeline in (
        wds.WebDataset(url, select_files=select),
        wds.DataPipeline(wds.SimpleShardList(url), wds.tarfile_to_samples(select_files=select)),
        wds.DataPipeline([{"url": url}], wds.tarfile_to_samples(select_files=select)),
    ):
        assert contents(pipeline) == expected
    twice = wds.WebDataset(url, rename_files=lambda name: name)
    with pytest.raises(DataError, match="'2' has two files 'txt'"):
        list(twice)


def test_a_cache_of_chosen_files_is_none_of_all_files(tmp_path):
    url = archive(tmp_path / "a.tar", ["0.jpg", "0.txt"])
    cache = str(tmp_path / "cache")
    assert list(wds.WebDataset(url, cache_dir=cache, select_files=lambda name: True))
    with pytest.raises(CacheConflictError, match=r"has other files of .*, or as another format"):
        list(wds.WebDataset(url, cache_dir=cache))


@pytest.mark.parametrize("access", ["auto", "shard", "range"])
def test_files_are_selected_without_the_column_of_keys(tmp_path, access):
    url = archive(tmp_path / "a.tar", ["0.jpg", "0.cls", "1.jpg", "1.cls"])

    def read(columns):
        return list(
            wds.WebDataset(
                url, select_files=lambda name: name != "1.jpg", columns=columns, access=access
            )
        )

    assert read(["jpg"]) == [{"jpg": b"0.jpg"}]
    assert read(["jpg", "__key__"]) == [{"__key__": "0", "jpg": b"0.jpg"}]
    assert read(["__url__", "cls"])[1] == {"__url__": url, "cls": b"1.cls"}
    for columns in ("jpg", [], 1):
        with pytest.raises(ConfigError, match="columns="):
            read(columns)


def test_columns_of_selected_files_are_named_in_any_case(tmp_path):
    archive(tmp_path / "a.tar", ["0.JPG", "0.cls", "1.jpg", "1.cls"])
    url = archive(tmp_path / "b.tar", ["2.Jpg", "2.cls"])

    def read(columns, where):
        return list(wds.WebDataset(where, select_files=lambda name: True, columns=columns))

    for columns in (["jpg"], ["JPG"], ["Jpg", "jpg"]):
        assert read(columns, f"{tmp_path}/*.tar") == [
            {"jpg": b"0.JPG"},
            {"jpg": b"1.jpg"},
            {"jpg": b"2.Jpg"},
        ]
        assert read(columns, url) == [{"jpg": b"2.Jpg"}]
    with pytest.raises(ConfigError, match=r"has no \['png'\], only \['Jpg',"):
        read(["png"], url)


def test_files_are_renamed_in_their_order_and_without_an_extension(tmp_path):
    url = archive(tmp_path / "a.tar", ["i.0.txt", "i.0.cls", "README", "i.1.txt", "i.1.cls"])

    def rename(name):
        return name.replace("i.", "i_") if "." in name else f"{name}.md"

    pipeline = wds.DataPipeline(
        wds.SimpleShardList(url), wds.tarfile_to_samples(rename_files=rename)
    )
    assert contents(pipeline) == [
        {"txt": b"i.0.txt", "cls": b"i.0.cls"},
        {"md": b"README"},
        {"txt": b"i.1.txt", "cls": b"i.1.cls"},
    ]


def test_a_variable_in_a_url(tars, monkeypatch):
    monkeypatch.setenv("WDS_ARCHIVES", str(tars))
    assert classes(wds.WebDataset("${ARCHIVES}/a.tar")) == list(range(COUNT))
    assert classes(wds.WebDataset(["${ARCHIVES}/b.tar"])) == list(range(COUNT, 2 * COUNT))
    assert wds.SimpleShardList("${ARCHIVES}/{a,b}.tar").urls == [
        f"{tars}/a.tar",
        f"{tars}/b.tar",
    ]
    monkeypatch.delenv("WDS_ARCHIVES")
    with pytest.raises(ConfigError, match="WDS_ARCHIVES, which is not set"):
        wds.WebDataset("${ARCHIVES}/a.tar")


def test_a_decoding_error_says_which_value(tars):
    def faulty(key, data):
        raise ValueError("nothing")

    with pytest.raises(
        wds.DecodingError, match=r"0000\.cls in .*a\.tar .*ValueError: nothing"
    ) as found:
        list(wds.WebDataset(f"{tars}/a.tar").decode(faulty))
    error = pickle.loads(pickle.dumps(found.value))
    assert (error.key, error.k, error.url) == ("0000", "cls", f"{tars}/a.tar")
    assert str(error) == str(found.value)


def test_samples_left_out_without_notice_are_noted_once(tars, caplog):
    def faulty(sample):
        raise LookupError("never mind")

    with caplog.at_level(logging.WARNING, "streamplug"):
        dataset = wds.WebDataset(f"{tars}/a.tar").map(faulty, handler=wds.ignore_and_continue)
        assert list(dataset) == []
    assert len([each for each in caplog.messages if "never mind" in each]) == 1


def test_pickles_are_decoded_in_any_pipeline_only_if_asked_for(tars):
    stages = wds.SimpleShardList(f"{tars}/a.tar"), lambda urls: urls, wds.tarfile_to_samples()
    with pytest.raises(UnsafeTypeError, match="allow_unsafe_types=True to decode"):
        list(wds.DataPipeline(*stages, wds.decode()))
    trusting = wds.DataPipeline(*stages, wds.decode(allow_unsafe_types=True))
    assert next(iter(trusting))["pyd"] == {"n": 0}
    assert next(iter(wds.WebDataset(f"{tars}/a.tar").decode(allow_unsafe_types=True)))["pyd"] == {
        "n": 0
    }


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.full((2, 2), 3.0), "values from 0 to 1, this one from 3.0 to 3.0"),
        (np.full((2, 2), np.nan), "values from 0 to 1"),
        (np.zeros((2, 2), np.int64), "of int64"),
        (np.zeros((2, 2, 2), np.uint8), r"not \[2, 2, 2\]"),
        (np.ma.array(np.zeros((2, 2), np.uint8), mask=True), "an array without a mask"),
        (np.ma.array(np.zeros((2, 2))), "an array without a mask"),
        (7, "array or an image of Pillow, got int"),
    ],
)
def test_an_array_that_is_no_image_is_refused(tmp_path, image, message):
    pytest.importorskip("PIL")
    with wds.TarWriter(tmp_path / "a.tar") as out:
        with pytest.raises(EncodeError, match=f"'png': .*{message}"):
            out.write({"__key__": "a", "png": image})
        out.write({"__key__": "a", "png": np.zeros((2, 2, 1), np.uint8)})
