"""Directories of files are read in every way that data sets are."""

from __future__ import annotations

import os
import pickle
import random

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from streamplug_files import FileSelection
from streamplug_files import multifile_shards as bundling
from streamplug_files.glob import FileSet
from streamplug_testing.http import serving
from streamplug_tools.verification import verify

from streamplug import MDSWriter, Stream, StreamingDataset, Writer
from streamplug.cache.user_cache import source_cache_dir
from streamplug.cli import main
from streamplug.errors import (
    CacheConflictError,
    ConfigError,
    CorruptShardError,
    DecodeError,
    InvalidIndexError,
    NotFound,
)
from streamplug.interfaces import Encoding
from streamplug.plugin.location import open_storage


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(bundling, "MAX_FILES_PER_SHARD", 7)
    monkeypatch.setattr(bundling, "MAX_SHARD_BYTES", 5000)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def tree(tmp_path):
    draw = random.Random(1)
    for name in ("dog", "cat", "cat-b", "Ä"):
        for inner in ("", "x/", "x-y/z/"):
            for number in range(6):
                size = draw.choice([0, 1, 700, 1500, 9000])
                write(tmp_path / "tree" / name / f"{inner}{number}.jpg", draw.randbytes(size))
    return tmp_path / "tree"


def contents(tree):
    files = (path for path in tree.rglob("*") if path.is_file())
    found = {path.relative_to(tree).as_posix(): path.read_bytes() for path in files}
    return {name: data for name, data in found.items() if "/." not in f"/{name}"}


def opened(tree, spec="folder", **options):
    return StreamingDataset(**{"remote": str(tree), "format": spec, "batch_size": 1, **options})


def by_path(dataset):
    found = {}
    for sample in dataset:  # some come twice where ranks get equally many
        assert found.setdefault(sample["path"], sample["data"]) == sample["data"]
    return found


# -- which files, in which order ----------------------------------------------------------


def test_a_directory_that_is_listed_twice_is_read_twice(tree):
    remote = [f"{tree}/dog/", f"{tree}/cat/", f"{tree}/dog/"]
    dataset = StreamingDataset(remote=remote, format="folder", batch_size=1)
    dogs, cats = (
        sorted(n for n in contents(tree) if n.startswith(f"{a}/")) for a in ("dog", "cat")
    )
    assert [sample["path"] for sample in dataset] == [*cats, *dogs, *dogs]
    assert {sample["path"]: sample["data"] for sample in dataset}.items() <= contents(tree).items()
    assert len(opened(tree)) == len(contents(tree))


def test_all_files_are_samples_in_the_order_of_their_names(tree):
    dataset = opened(tree)
    assert [sample["path"] for sample in dataset] == sorted(contents(tree))
    assert {sample["path"]: sample["data"] for sample in dataset} == contents(tree)
    assert dataset[50] == dict(zip(("path", "data"), sorted(contents(tree).items())[50]))
    assert [each["path"] for each in dataset[[9, 2, 2]]] == [
        sorted(contents(tree))[i] for i in (9, 2, 2)
    ]


def image_folder(root):
    """Return names and labels as ImageFolder of torchvision finds them."""
    endings = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
    classes = sorted(e.name for e in os.scandir(root) if e.is_dir())
    return [
        (os.path.relpath(f"{folder}/{file}", root), label)
        for label, name in enumerate(classes)
        for folder, _, files in sorted(os.walk(f"{root}/{name}", followlinks=True))
        for file in sorted(files)
        if file.lower().endswith(endings)
    ]


def test_images_have_the_order_and_labels_of_image_folder(tree, caplog):
    write(tree / "dog" / "notes.txt", b"")
    write(tree / "dog" / "x" / "UPPER.JPEG", b"u")
    write(tree / "README", b"")
    expected = image_folder(tree)
    dataset = opened(tree, "folder:images,raw")
    assert [(each["path"], each["label"]) for each in dataset] == expected
    assert all(each["class"] == each["path"].split("/")[0] for each in dataset)
    assert {each["path"]: each["image"] for each in dataset}.items() <= contents(tree).items()
    batch = next(dataset.batches())
    assert isinstance(batch["label"], np.ndarray)
    assert "outside of a class's directory are left out, such as 'README'" in caplog.text


def test_classes_of_any_files(tree):
    write(tree / "dog" / "sound.flac", b"bark")
    dataset = opened(tree, "folder:classes")
    assert len(dataset) == len(contents(tree))
    [bark] = [each for each in dataset if each["path"] == "dog/sound.flac"]
    assert bark == {"class": "dog", "data": b"bark", "label": 2, "path": "dog/sound.flac"}


def test_globs_braces_and_lists_choose_files(tree):
    write(tree / "dog" / "a.txt", b"t")
    names = sorted(contents(tree))
    for remote, chosen in (
        (f"{tree}/**/*.txt", ["dog/a.txt"]),
        (f"{tree}/{{dog,cat}}/**", [n for n in names if n.startswith(("dog/", "cat/"))]),
        (f"{tree}/{{dog,cat}}", [n for n in names if n.startswith(("dog/", "cat/"))]),
        ([f"{tree}/dog", f"{tree}/cat/x"], [n for n in names if n.startswith(("dog/", "cat/x/"))]),
    ):
        dataset = StreamingDataset(remote=remote, format="folder", batch_size=1)
        assert [each["path"] for each in dataset] == chosen
    split = Stream(remote=str(tree), split="dog/x", format="folder")
    assert [each["path"] for each in StreamingDataset(streams=[split])] == [
        f"{i}.jpg" for i in range(6)
    ]
    with pytest.raises(NotFound, match=r"no files that match \*\*/\*.gif"):
        opened(f"{tree}/**/*.gif")
    with pytest.raises(NotFound, match="there are no files"):
        opened(tree / "none")
    assert len(opened(f"{tree}/**/*.{{gif,txt}}")) == 1
    with pytest.raises(NotFound, match=r"no files that match dog/none/; check"):
        StreamingDataset(remote=[f"{tree}/cat", f"{tree}/dog/none"], format="folder")


def test_what_begins_with_a_dot_is_left_out(tree, caplog):
    before = sorted(contents(tree))
    write(tree / ".cache" / "a.jpg", b"")
    write(tree / "dog" / "._0.jpg", b"")
    assert [sample["path"] for sample in opened(tree)] == before
    assert (
        "that begin with a dot, or that systems make, are left out, such as '.cache/a.jpg'"
        in caplog.text
    )


def test_classes_without_images_are_refused(tree):
    write(tree / "docs" / "a.txt", b"")
    with pytest.raises(
        InvalidIndexError, match=r"tree: directories without a file.*are no classes: docs;"
    ):
        opened(tree, "folder:images")
    write(tree / "flat" / "a.jpg", b"")
    with pytest.raises(InvalidIndexError, match=r"a\.jpg: there are no directories"):
        opened(tree / "flat", "folder:images")


@pytest.mark.parametrize("spec", ["folder:images,raw", "folder:classes"])
def test_directories_of_file_systems_and_archivers_are_no_classes(tree, spec):
    before = sorted(sample["path"] for sample in opened(tree, spec))
    (tree / "lost+found").mkdir()
    write(tree / "__MACOSX" / "dog" / "._0.jpg", b"")
    write(tree / "$RECYCLE.BIN" / "0.jpg", b"")
    write(tree / "System Volume Information" / "WPSettings.dat", b"")
    assert sorted(sample["path"] for sample in opened(tree, spec)) == before


@pytest.mark.parametrize("spec", ["folder:images,raw", "folder:classes"])
def test_a_class_directory_without_files_is_refused(tree, spec):
    assert len(opened(tree, spec)) == len(contents(tree))
    (tree / "bird").mkdir()
    with pytest.raises(InvalidIndexError, match=r"tree: directories without.* classes: bird;"):
        opened(tree, spec)
    write(tree / "bird" / ".gitkeep", b"")
    with pytest.raises(InvalidIndexError, match=r"tree: directories without.* classes: bird;"):
        opened(tree, spec)
    assert len(opened(tree)) == len(contents(tree))
    chosen = opened(f"{tree}/{{cat,dog}}/**", spec)
    assert {sample["class"] for sample in chosen} == {"cat", "dog"}
    (tree / "bird" / ".gitkeep").unlink()
    (tree / "bird").rename(tree / ".bird")
    assert len(opened(tree, spec)) == len(contents(tree))


def test_what_has_no_meaning_is_refused(tree):
    with pytest.raises(ConfigError, match="expected folder, folder:classes, folder:images"):
        opened(tree, "folder:jpg")
    with pytest.raises(ConfigError, match="format folder can only be read"):
        Writer(out=tree / "out", format="folder", columns={"data": "bytes"})
    assert not (tree / "out").exists()


# -- values -------------------------------------------------------------------------------


def test_images_are_images_of_pillow(tmp_path):
    for number, ending in enumerate(("png", "jpg", "webp", "bmp", "ppm", "pgm", "tif")):
        path = tmp_path / "set" / "a" / f"{number}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = "L" if ending == "pgm" else "RGB"
        Image.new(mode, (4 + number, 3)).save(path)
    write(tmp_path / "set" / "b" / "0.jpg", b"no image")
    dataset = opened(tmp_path / "set", "folder:images")
    assert [dataset[i]["image"].size for i in range(7)] == [(4 + i, 3) for i in range(7)]
    assert [dataset[i]["image"].getpixel((0, 0)) for i in (4, 5)] == [(0, 0, 0), 0]
    for read in (lambda: dataset[7], lambda: list(dataset)):
        with pytest.raises(
            DecodeError, match=r"sample \d \(b/0.jpg\), column 'image': not an image"
        ):
            read()


class Upper(Encoding):
    def encode(self, value):
        raise NotImplementedError

    def decode(self, data):
        return bytes(data).upper()


def upper(encoding):
    return Upper()


def test_columns_are_chosen_and_decoded_as_their_reader_asks(tree):
    dataset = opened(tree, "folder:classes", columns=["class"], decoders={"class": upper})
    assert {each["class"] for each in dataset} == {
        name.encode().upper() for name in ("cat", "dog", "cat-b")
    } | {"Ä".encode().upper()}
    assert dataset[0] == {"class": b"CAT"}


# -- near and far -------------------------------------------------------------------------


def test_files_here_are_read_where_they_lie(tree):
    dataset = opened(tree, shuffle=True)
    assert by_path(dataset) == contents(tree)
    scans = source_cache_dir(str(tree)) / ".streamplug" / "scan"
    state = [path.name for path in scans.rglob("*") if path.is_file()]
    assert state
    assert not [name for name in state if not name.endswith((".files", ".index"))]


@pytest.fixture(params=["shard", "range"])
def access(request):
    return request.param


def test_a_bucket_is_read_through_a_cache_or_by_ranges(tree, s3_server, tmp_path, access):
    import boto3

    secrets = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    client = boto3.client("s3", endpoint_url=s3_server, region_name="us-east-1", **secrets)
    bucket = f"folders-{access}"
    client.create_bucket(Bucket=bucket)
    files = {name: data for name, data in contents(tree).items() if name < "d"}
    for name, data in files.items():
        client.put_object(Bucket=bucket, Key=f"set/{name}", Body=data)
    client.put_object(Bucket=bucket, Key="set/dog/", Body=b"")
    options = {
        "remote": f"s3://{bucket}/set",
        "local": str(tmp_path / "near"),
        "access": access,
        "storage_options": {"key": "k", "secret": "s", "endpoint_url": s3_server},
        "shuffle": True,
    }
    dataset = opened("", **options)
    assert by_path(dataset) == files
    assert [sample["path"] for sample in dataset[list(range(36))]] == sorted(files)
    client.put_object(Bucket=bucket, Key="set/cat/0.jpg", Body=b"longer" * 2000)
    fresh = pickle.loads(pickle.dumps(dataset))
    if access == "range":
        with pytest.raises(CorruptShardError, match=r"set/cat/0.jpg: it does not have the"):
            fresh[sorted(files).index("cat/0.jpg")]
    else:
        assert by_path(fresh) == files


def test_a_cache_with_a_limit_is_kept_to(tree, tmp_path):
    near = tmp_path / "near"
    dataset = opened(tree, local=str(near), cache_limit=60_000, shuffle=True)
    for _ in range(2):
        assert by_path(dataset) == contents(tree)
        kept = sum(path.stat().st_size for path in (near / "_bundles").iterdir())
        assert kept <= 60_000


def test_a_changed_file_is_named(tree, tmp_path):
    name = sorted(contents(tree))[30]
    dataset = opened(tree, download_retry=0)
    cached = opened(tree, local=str(tmp_path / "near"), download_retry=0)
    for content in (contents(tree)[name] + b"!", b"?" * (len(contents(tree)[name]) == 0)):
        write(tree / name, content)
        for each in (dataset, cached):
            with pytest.raises(CorruptShardError, match=rf"tree/{name}: it does not have the"):
                each[30]
    with pytest.raises(CacheConflictError):
        opened(tree, local=str(tmp_path / "near"))
    assert by_path(opened(tree)) == contents(tree)
    (tree / name).unlink()
    with pytest.raises(NotFound, match=f"tree/{name}"):
        dataset[30]


def test_digests_are_refused(tree, tmp_path):
    for local in (None, str(tmp_path / "near")):
        with pytest.raises(ConfigError, match="validate_hash"):
            list(opened(tree, local=local, validate_hash="sha1"))


# -- order --------------------------------------------------------------------------------


def test_order_is_that_of_shards_of_these_sizes(tree, tmp_path):
    options = {"shuffle": True, "shuffle_seed": 5, "batch_size": 4}
    dataset = opened(tree, **options)
    names = sorted(contents(tree))
    files = FileSet(str(tree), ("",))
    found = bundling.list_tree(open_storage(str(tree)), files, 0).files
    chosen = FileSelection([n for n, each in enumerate(found) if not each.key.startswith(".")], {})
    sizes = [len(bundle) for bundle in bundling.group_files(found, chosen)]
    assert sum(sizes) == len(names)
    assert max(sizes) == 7
    ends = np.cumsum(sizes)
    with MDSWriter(out=tmp_path / "mds", columns={"path": "str"}, max_samples_per_shard=7) as out:
        for number, name in enumerate(names):
            if number in ends:
                out._flush()
            out.write({"path": name})
    shards = StreamingDataset(local=str(tmp_path / "mds"), **options)
    for _ in range(2):
        assert [each["path"] for each in dataset] == [each["path"] for each in shards]


def test_a_mixture_continues_where_it_stopped(tree, tmp_path):
    with MDSWriter(out=tmp_path / "mds", columns={"path": "str"}) as out:
        for number in range(40):
            out.write({"path": f"m{number}"})

    def mixture():
        streams = [
            Stream(remote=str(tree), format="folder", proportion=0.6),
            Stream(local=str(tmp_path / "mds"), proportion=0.4),
        ]
        return StreamingDataset(streams=streams, columns=["path"], shuffle=True, batch_size=4)

    whole = [each["path"] for each in mixture()]
    first = mixture()
    batches = first.batches()
    begun = [path for _ in range(5) for path in next(batches)["path"]]
    second = mixture()
    second.load_state_dict(first.state_dict())
    assert begun + [each["path"] for each in second] == whole


# -- an index beside the files --------------------------------------------------------------


def test_an_index_beside_the_files_spares_listing_them(tree, access, tmp_path):
    expected = contents(tree)
    for force in ([], ["--force"]):  # the second leaves out what the first has written
        result = CliRunner().invoke(
            main, ["index", "scan", str(tree), "--format", "folder", *force]
        )
        assert result.exit_code == 0, result.output
    assert by_path(StreamingDataset(local=str(tree), batch_size=4)) == expected
    with serving(tree) as server:
        remote = {"remote": server.url, "local": str(tmp_path / "near"), "access": access}
        dataset = StreamingDataset(**remote, batch_size=4, shuffle=True)
        assert by_path(dataset) == expected
    found = verify(Stream(remote=str(tree)))
    assert (found.samples, found.problems) == (len(expected), ())
    write(tree / "cat" / "1.jpg", b"changed, and longer or shorter")
    problems = verify(Stream(remote=str(tree))).problems
    assert ["cat/1.jpg" in problem.error for problem in problems] == [True]


def test_a_list_that_leads_elsewhere_is_refused(tree, tmp_path):
    write(tmp_path / "secret", b"s" * 700)
    main_ = CliRunner().invoke(main, ["index", "scan", f"{tree}/dog/x", "--format", "folder"])
    assert main_.exit_code == 0, main_.output
    [path] = (tree / "dog" / "x" / "_bundles").glob("*0.files")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"0.jpg", b"../.x"))
    (tree / "dog" / ".x").write_bytes((tree / "dog" / "x" / "0.jpg").read_bytes())
    dataset = StreamingDataset(local=str(tree / "dog" / "x"), batch_size=1, download_retry=0)
    if (tree / "dog" / "x" / "0.jpg").stat().st_size:
        with pytest.raises(CorruptShardError, match="leads elsewhere"):
            dataset[0]


@pytest.mark.parametrize("format_", ["folder", "folder:classes"])
def test_a_link_to_a_directory_is_not_left_out_silently(tmp_path, format_):
    write(tmp_path / "elsewhere" / "a", b"a")
    write(tmp_path / "set" / "dog" / "b", b"b")
    (tmp_path / "set" / "cat").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="set/cat is a link to a directory"):
        StreamingDataset(remote=str(tmp_path / "set"), format=format_)
    chosen = StreamingDataset(remote=str(tmp_path / "set" / "dog" / "**"), format="folder")
    assert chosen.size == 1
