from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from streamplug import MDSWriter, StreamingDataset, Writer, merge_index
from streamplug.cli import main
from streamplug.errors import ConfigError, InvalidIndexError, NotFound, OutputExistsError
from streamplug.plugin import open_storage


def part(folder, ids, **options):
    with MDSWriter(columns={"id": "int"}, out=str(folder), size_limit=200, **options) as writer:
        for n in ids:
            writer.write({"id": n})


@pytest.fixture
def place(tmp_path):
    part(tmp_path / "b", range(10, 20), compression="gz", hashes=["xxh64"])
    part(tmp_path / "a" / "x", range(10))
    return tmp_path


def ids(place, **options):
    return [sample["id"] for sample in StreamingDataset(remote=str(place), **options)]


def test_parts_are_read_as_one_in_the_order_given(place):
    shards = merge_index([place / "b", str(place / "a" / "x" / "index.json")], place)
    assert shards == len(json.loads((place / "index.json").read_bytes())["shards"])
    assert ids(place, batch_size=1) == [*range(10, 20), *range(10)]


def test_all_folders_are_found_in_the_order_of_their_names(place):
    assert merge_index(place) == merge_index(str(place))  # its own index is no part of it
    assert ids(place, batch_size=1) == list(range(20))


def test_merged_parts_are_merged_again_as_one(place):
    part(place / "a" / "y" / "z", range(100, 103))
    merge_index(place / "a")
    merge_index(place)
    assert ids(place, batch_size=1) == [*range(10), 100, 101, 102, *range(10, 20)]


def test_parts_below_a_part_with_shards_of_its_own_are_not_left_out(tmp_path):
    for number, folder in enumerate(("a", "a/x", "a/x/y", "b")):
        part(tmp_path / folder, [number])
    assert merge_index(tmp_path) == 4
    assert ids(tmp_path, batch_size=1) == [0, 1, 2, 3]


def test_an_index_of_other_shards_is_not_replaced(place):
    merge_index(place)
    with MDSWriter(out=str(place), append=True) as writer:
        writer.write({"id": 50})
    part(place / "c", [60])
    with pytest.raises(OutputExistsError, match=r"names 'shard.00010.mds', which is in no folder"):
        merge_index(place)
    assert ids(place, batch_size=1) == [*range(20), 50]


def test_a_part_inside_a_merged_part_is_not_repeated(place):
    merge_index(place / "a")
    with pytest.raises(ConfigError, match=r"a/x/shard.00000.mds is in two parts, .*a/x and .*/a,"):
        merge_index([place / "a" / "x", place / "b", place / "a"], place)
    assert not (place / "index.json").exists()


def test_far_parts_get_an_index_near_and_far(tmp_path):
    near, far = tmp_path / "near", f"memory://{tmp_path.name}"
    for name in "ab":
        part(f"{far}/{name}", range(3))
    merge_index([(near / "a", f"{far}/a"), f"{far}/b"], (near, far))
    assert (near / "index.json").exists()
    assert ids(far, local=str(tmp_path / "cache"), batch_size=1) == [0, 1, 2] * 2
    (near / "index.json").unlink()
    merge_index((near, far), keep_local=False)
    assert not (near / "index.json").exists()


def test_near_index_is_read_where_there_is_one(tmp_path):
    near, far = tmp_path / "near", f"memory://{tmp_path.name}"
    part(near / "a", range(3))
    merge_index([(near / "a", f"{far}/a")], (near, far))
    assert ids(near, batch_size=1) == [0, 1, 2]


@pytest.mark.parametrize("second", ["b", "b/", "b/index.json"])
def test_a_part_that_is_named_twice_is_refused(place, second):
    with pytest.raises(ConfigError, match="/b is named twice among the parts"):
        merge_index([place / "b", place / "a" / "x", f"{place}/{second}"], place)
    assert not (place / "index.json").exists()


def test_a_part_that_is_named_near_and_far_is_refused(tmp_path):
    near, far = tmp_path / "near", f"memory://{tmp_path.name}"
    for location in (near, far):
        part(f"{location}/a", range(3))
    with pytest.raises(ConfigError, match="/a is named twice among the parts"):
        merge_index([near / "a", f"{far}/a"], (near, far))


def test_what_cannot_be_merged_is_told(place, tmp_path):
    with pytest.raises(ConfigError, match="is not below"):
        merge_index([place / "b"], place / "a")
    with pytest.raises(ConfigError, match="https://host/b' is not below") as caught:
        merge_index(["https://me:secret@host/b?sig=secret"], place / "a")
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="no parts"):
        merge_index(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="keep_local='no': must be True or False"):
        merge_index(tmp_path, keep_local="no")
    for seconds in (0, -1, "5", float("nan")):
        with pytest.raises(
            ConfigError, match=f"download_timeout={seconds!r}: must be a number of sec"
        ):
            merge_index(tmp_path, download_timeout=seconds)
    with pytest.raises(ConfigError, match="expected a list"):
        merge_index(place / "b", place)
    with pytest.raises(ConfigError, match="merge_index"):
        merge_index()
    with pytest.raises(NotFound, match="has not finished"):
        merge_index([place / "c"], place)
    (place / "b" / "index.json").write_text("{")
    with pytest.raises(InvalidIndexError, match=r"b/index\.json"):
        merge_index(place)
    assert not (place / "index.json").exists()


def test_command_merges(place):
    pytest.importorskip("streamplug_tools")
    told = CliRunner().invoke(main, ["merge", str(place), str(place / "b"), "--json"])
    assert (told.exit_code, json.loads(told.stdout)["shards"]) == (
        0,
        merge_index([place / "b"], place),
    )
    assert "in one index.json" in CliRunner().invoke(main, ["merge", str(place)]).stdout
    part("memory://me:secret@host/merged/a", range(3), exist_ok=True)
    merged = CliRunner().invoke(main, ["merge", "memory://me:secret@host/merged"])
    assert merged.stdout.startswith("memory://host/merged: "), merged.output
    refused = CliRunner().invoke(main, ["merge", str(place / "b")])
    assert refused.exit_code == 2
    assert "no parts" in refused.stderr


@pytest.mark.parametrize(
    ("out", "parts"),
    [
        (".", ["b", "a/x/index.json"]),
        ("{place}", ["b/", "./a/x"]),
        ("{place}/a", ["x"]),
        ("a", ["a/x"]),
        ("memory://{name}", ["b", "a/x"]),
    ],
)
def test_command_finds_parts_below_its_location(place, monkeypatch, out, parts):
    monkeypatch.chdir(place if not out.endswith("place}") else place.parent)
    out = out.format(place=place, name=place.name)
    if out.startswith("memory"):
        part(f"{out}/b", range(10, 20))
        part(f"{out}/a/x", range(10))
    told = CliRunner().invoke(main, ["merge", out, *parts])
    assert told.exit_code == 0, told.output
    expected = [*range(10, 20), *range(10)] if len(parts) == 2 else list(range(10))
    assert ids(out, batch_size=1) == expected


def test_command_prefers_a_part_to_a_folder_of_its_name_elsewhere(
    place, tmp_path_factory, monkeypatch
):
    folder = tmp_path_factory.mktemp("elsewhere")
    part(folder / "b", range(90, 99))
    monkeypatch.chdir(folder)
    merged = CliRunner().invoke(main, ["merge", str(place), "b"])
    assert merged.exit_code == 0, merged.output
    assert ids(place, batch_size=1) == list(range(10, 20))


def write(folder, columns, samples, **options):
    with Writer(columns=columns, out=str(folder), **options) as writer:
        for sample in samples:
            writer.write(sample)


@pytest.mark.parametrize(
    ("columns", "sample", "said"),
    [
        ({"id": "str"}, {"id": "x"}, "column 'id' is 'str' in {b}, but 'int' in {a}"),
        ({"id": "float32"}, {"id": 1.5}, "column 'id' is 'float32' in {b}, but 'int' in {a}"),
        ({"n": "int"}, {"n": 1}, "{b} has no column 'id', which is 'int' in {a}"),
        (
            {"id": "int", "n": "int"},
            {"id": 1, "n": 1},
            "{b} has a column 'n' ('int'), which {a} has not",
        ),
    ],
)
def test_parts_whose_columns_differ_are_refused_and_nothing_is_written(
    tmp_path, columns, sample, said
):
    pytest.importorskip("streamplug_tools")
    write(tmp_path / "a", {"id": "int"}, [{"id": 1}])
    write(tmp_path / "b", columns, [sample])
    (tmp_path / "index.json").write_text("of another set")
    refused = CliRunner().invoke(main, ["merge", str(tmp_path)])
    assert refused.exit_code == 2
    assert said.format(a=tmp_path / "a", b=tmp_path / "b") in refused.stderr
    assert (tmp_path / "index.json").read_text() == "of another set"
    with pytest.raises(ConfigError, match="all parts of a data set need the same columns"):
        merge_index(tmp_path)


def test_a_part_that_is_refused_can_be_converted_as_the_error_says(tmp_path):
    pytest.importorskip("streamplug_tools")
    write(tmp_path / "a", {"id": "int"}, [{"id": 1}])
    write(tmp_path / "b", {"id": "int8"}, [{"id": 2}])
    refused = CliRunner().invoke(main, ["merge", str(tmp_path)])
    assert "(streamplug convert … --columns id:int)" in refused.stderr
    parts = [str(tmp_path / name) for name in "ac"]
    done = CliRunner().invoke(
        main, ["convert", str(tmp_path / "b"), parts[1], "--columns", "id:int"]
    )
    assert done.exit_code == 0
    assert CliRunner().invoke(main, ["merge", str(tmp_path), *parts]).exit_code == 0
    assert ids(tmp_path, batch_size=1) == [1, 2]


def test_order_of_columns_compression_digests_and_sizes_of_shards_may_differ(tmp_path):
    columns, sample = {"id": "int", "text": "str"}, {"id": 1, "text": "x"}
    write(tmp_path / "a", columns, [sample])
    write(tmp_path / "b", columns, [sample], compression="gz", hashes=["sha1"], size_limit=500)
    write(tmp_path / "c", dict(reversed(columns.items())), [sample])
    merge_index(tmp_path)
    dataset = StreamingDataset(local=str(tmp_path), batch_size=3)
    assert list(dataset) == [sample] * 3
    assert [batch["id"].tolist() for batch in dataset.batches()] == [[1, 1, 1]]


def test_encodings_may_differ_whose_values_are_alike(tmp_path):
    for name, spec, shape in (("a", "int", ",2"), ("b", "int64", ",3")):
        array = np.zeros((1, int(shape[1:])), np.float32)
        columns = {"id": spec, "v": f"ndarray:float32:1{shape}"}
        write(tmp_path / name, columns, [{"id": 1, "v": array}])
    merge_index(tmp_path)
    [batch] = StreamingDataset(local=str(tmp_path), batch_size=2).batches()
    assert batch["id"].tolist() == [1, 1]
    assert [value.shape for value in batch["v"]] == [(1, 2), (1, 3)]


def test_a_set_that_was_merged_otherwise_says_which_shard_and_column_differs(tmp_path):
    write(tmp_path / "a", {"id": "int", "text": "str"}, [{"id": 1, "text": "x"}])
    write(tmp_path / "b", {"id": "int", "text": "json"}, [{"id": 2, "text": "x"}])
    shards = []
    for name in "ab":
        [entry] = json.loads((tmp_path / name / "index.json").read_bytes())["shards"]
        entry["raw_data"]["basename"] = f"{name}/shard.00000.mds"
        shards.append(entry)
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    said = r"'text' is 'json' in shard 1 \(b/shard.00000.mds\), but 'str' in shard 0 \(a/shard"
    with pytest.raises(ConfigError, match=said):
        StreamingDataset(local=str(tmp_path))
    assert ids(tmp_path, columns=["id"], batch_size=1) == [1, 2]


def test_parts_of_a_run_that_is_not_finished_are_not_merged(tmp_path):
    columns, sample = {"id": "int", "text": "str"}, {"id": 1, "text": "x"}
    write(tmp_path / "a", columns, [sample])
    write(tmp_path / "b" / "part-00000", columns, [sample])
    (tmp_path / "b" / "parts.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"b/parts.json belongs to an unfinished data set"):
        merge_index(tmp_path)
    assert not (tmp_path / "index.json").exists()


def test_state_is_not_merged_and_hidden_folders_are_refused(tmp_path):
    part(tmp_path / "a", [1])
    part(tmp_path / "b" / ".attempts" / "0-1", [2])
    part(tmp_path / ".streamplug" / "x", [2])
    part(tmp_path / ".a.streamplug" / "x", [2])
    (tmp_path / ".cache" / "tmp").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("x")
    assert merge_index(tmp_path) == 1
    (tmp_path / "index.json").unlink()
    part(tmp_path / "a" / ".old" / "x", [3])
    with pytest.raises(ConfigError, match=r"/a/.old/x is hidden, and its samples would be left"):
        merge_index(tmp_path)
    assert not (tmp_path / "index.json").exists()
    assert merge_index([tmp_path / "a", tmp_path / "a" / ".old" / "x"], tmp_path) == 2
    assert ids(tmp_path, batch_size=1) == [1, 3]


def unfinished(folder, count, **options):
    writer = Writer(columns={"id": "int"}, out=str(folder), size_limit=200, **options)
    for n in range(count):
        writer.write({"id": n})
    writer.__exit__(RuntimeError, RuntimeError(), None)


@pytest.mark.parametrize("root", ["{path}", "memory://{name}"])
@pytest.mark.parametrize("folder", ["part-2", "x/part-2", "part-0/inner", ""])
@pytest.mark.parametrize("options", [{}, {"compression": "gz"}])
def test_a_part_without_an_index_is_not_left_out(tmp_path, root, folder, options):
    root = root.format(path=tmp_path, name=tmp_path.name)
    if folder:
        part(f"{root}/part-0", range(10))
    unfinished(f"{root}/{folder}".rstrip("/"), 20, **options)
    if not folder:
        part(f"{root}/part-0", range(10))
    where = f"{tmp_path.name}/{folder}".rstrip("/")
    with pytest.raises(NotFound, match=f"{where} has shards, but no index.json, as its writer"):
        merge_index(root)
    with pytest.raises(NotFound):
        StreamingDataset(remote=root)
    assert merge_index([f"{root}/part-0"], root) > 0
    assert ids(root, batch_size=1) == list(range(10))


def test_an_empty_folder_is_that_of_an_unfinished_part(tmp_path):
    part(tmp_path / "part-0", [0])
    unfinished(tmp_path / "part-1", 1)  # no shard is full
    with pytest.raises(NotFound, match=r"/part-1 is empty, as a writer leaves it"):
        merge_index(tmp_path)
    (tmp_path / "part-1").rmdir()
    assert merge_index(tmp_path) == 1


def test_shards_of_an_unfinished_append_do_not_hinder(tmp_path):
    part(tmp_path / "a", [0, 1])
    unfinished(tmp_path / "a", 30, append=True)
    merge_index(tmp_path)
    assert ids(tmp_path, batch_size=1) == [0, 1]
    unfinished(tmp_path, 30, append=True)
    assert merge_index(tmp_path) == 1
    assert ids(tmp_path, batch_size=1) == [0, 1]


@pytest.mark.parametrize(
    "target", ["part", "folder of parts", "unfinished", "a part of the same", "up"]
)
def test_linked_parts_are_not_left_out(tmp_path, target):
    root, disk = tmp_path / "root", tmp_path / "disk"
    part(root / "part-0", [0])
    part(disk / "part-1", [1])
    unfinished(disk / "new" / "x", 30)
    targets = {
        "part": disk / "part-1",
        "folder of parts": disk,
        "unfinished": disk / "new",
        "a part of the same": root / "part-0",
        "up": root,
    }
    link = root / "part-1"
    link.symlink_to(targets[target], target_is_directory=True)
    with pytest.raises(ConfigError, match=r"root/part-1 is a link, which is not followed, and its"):
        merge_index(root)
    assert not (root / "index.json").exists()
    if target == "part":
        assert merge_index([root / "part-0", link], root) == 2
        assert ids(root, batch_size=1) == [0, 1]


@pytest.mark.parametrize("name", [".part-1", "part-0/.old"])
def test_hidden_links_to_parts_are_refused_like_hidden_parts(tmp_path, name):
    root = tmp_path / "root"
    part(root / "part-0", [0])
    part(tmp_path / "disk", [1])
    (root / name).symlink_to(tmp_path / "disk", target_is_directory=True)
    with pytest.raises(ConfigError, match=rf"root/{name} is a link, which is not followed"):
        merge_index(root)
    assert not (root / "index.json").exists()


def test_links_without_parts_do_not_hinder_and_broken_ones_do(tmp_path):
    root = tmp_path / "root"
    part(root / "part-0", [0])
    (tmp_path / "logs").mkdir()
    (root / "logs").symlink_to(tmp_path / "logs", target_is_directory=True)
    (root / ".#lock").symlink_to("nobody@nowhere")
    moved = (root / "part-0" / "index.json").rename(tmp_path / "kept.json")
    (root / "part-0" / "index.json").symlink_to(moved)
    assert merge_index(root) == 1
    assert ids(root, batch_size=1) == [0]
    (root / "part-1").symlink_to(tmp_path / "unmounted" / "part-1")
    with pytest.raises(ConfigError, match=r"root/part-1 is a link"):
        merge_index(root)


def test_a_part_that_came_after_a_merge_is_not_left_out(tmp_path):
    part(tmp_path / "a" / "x", [0])
    merge_index(tmp_path / "a")
    part(tmp_path / "a" / "empty", [])
    assert merge_index(tmp_path) == 1
    part(tmp_path / "a" / "y" / "z", [1])
    with pytest.raises(
        ConfigError, match=r"a/y/z is not in .*/a/index.json, and its samples would"
    ):
        merge_index(tmp_path)
    merge_index(tmp_path / "a")
    assert merge_index(tmp_path) == 2
    (tmp_path / "a" / "y" / "z" / "index.json").unlink()  # the index above has its shards
    assert merge_index(tmp_path) == 2
    assert ids(tmp_path, batch_size=1) == [0, 1]


def test_a_second_merge_leaves_no_part_out_whose_own_index_is_gone(tmp_path):
    part(tmp_path / "a", [0])
    part(tmp_path / "b", [1])
    merge_index(tmp_path)
    (tmp_path / "a" / "index.json").unlink()
    with pytest.raises(NotFound, match="/a has shards, but no index"):
        merge_index(tmp_path)
    assert ids(tmp_path, batch_size=1) == [0, 1]


_NAMES = [
    "what?",
    "a*",
    "~",
    "~x",
    "C:",
    "c:x",
    " a",
    "a ",
    "a\\b",
    "a\nb",
    "a\tb",
    "\x7f",
    "x/ y",
    "x/y ",
]


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("call", ["root", "parts", "command"])
def test_a_name_that_an_index_cannot_hold_is_refused_before_writing(tmp_path, name, call):
    part(tmp_path / "a", [0])
    MDSWriter(columns={"id": "int"}, out=tmp_path / name).finish()
    with MDSWriter(columns={"id": "int"}, out=tmp_path / name, exist_ok=True) as writer:
        writer.write({"id": 1})
    if call == "command":
        told = CliRunner().invoke(main, ["merge", str(tmp_path)])
        assert told.exit_code == 2
        assert "an index cannot name files in the folder" in told.stderr
    else:
        with pytest.raises(ConfigError, match="an index cannot name files in the folder"):
            merge_index(*([[tmp_path / name]] if call == "parts" else []), tmp_path)
    assert not (tmp_path / "index.json").exists()


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a~",
        "x/~",
        "x/~y",
        "ab:c",
        "[x]",
        "{a,b}",
        "a%20b",
        "#",
        "ab::c",
        "ä",
        "$HOME",
        "a&b;c",
        "-",
        "x..y",
    ],
)
def test_other_names_are_merged_and_read(tmp_path, name):
    part(f"{tmp_path}/{name}", [1])
    assert merge_index(tmp_path) == 1
    assert ids(tmp_path, batch_size=1) == [1]
    assert merge_index([f"{tmp_path}/{name}"], tmp_path) == 1
    assert ids(tmp_path, local=str(tmp_path / ".cache"), batch_size=1) == [1]


@pytest.mark.parametrize("prefix", ["./p0/", "p0//", "p0/./", ".//p0///"])
@pytest.mark.parametrize("far", [False, True])
def test_an_index_with_longer_names_and_without_digests_is_read(tmp_path, prefix, far):
    root = f"memory://{tmp_path.name}" if far else str(tmp_path)
    part(f"{root}/p0", [1, 2], compression="gz")
    index = json.loads(open_storage(root).read("p0/index.json"))
    for entry in index["shards"]:
        entry["hashes"] = None
        for role in ("raw_data", "zip_data"):
            entry[role] |= {"basename": prefix + entry[role]["basename"], "hashes": None}
    open_storage(root).write("index.json", json.dumps(index).encode())
    local = {"local": str(tmp_path / "cache")} if far else {}
    assert ids(root, batch_size=1, **local) == [1, 2]
    assert CliRunner().invoke(main, ["verify", root]).exit_code == 0
    with MDSWriter(out=root, append=True, compression="gz") as writer:
        writer.write({"id": 3})
    assert [
        s["id"] for s in StreamingDataset(remote=root, local=str(tmp_path / "c2"), batch_size=1)
    ] == [1, 2, 3]
