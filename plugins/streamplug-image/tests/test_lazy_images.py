"""Damaged images that are decoded on first use: where they are read, in transforms, and by `verify`."""

from __future__ import annotations

import pickle
from functools import partial
from io import BytesIO

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from streamplug_image import ImageFiles, RandomResizedCrop

from streamplug import MDSWriter, StreamingDataset
from streamplug.cli import main
from streamplug.errors import DecodeError, TooManyBadSamplesError
from streamplug.interfaces import LazyValue
from streamplug.plugin import make

SIZE, BAD = 32, (7, 8, 20)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM")
PIXELS = np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8)
CROP = RandomResizedCrop((8, 8))


def file_of(kind="JPEG", pixels=PIXELS, **options):
    out = BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


def cut(file):
    return file[: len(file) // 2]


def write(out, good, bad, spec, damaged=BAD):
    with MDSWriter(out=out, columns={"image": spec, "n": "int"}, max_samples_per_shard=5) as writer:
        for n in range(SIZE):
            writer.write({"n": n, "image": bad if n in damaged else good})
    return str(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    good = file_of()
    return write(tmp_path_factory.mktemp("sets") / "jpeg", good, cut(good), "jpeg")


WAYS = {
    "one": lambda dataset: dataset[7],
    "several": lambda dataset: dataset[[0, 7, 31]][1],
    "iterated": lambda dataset: list(dataset)[7],
    "batch": lambda dataset: {k: v[7] for k, v in next(dataset.batches()).items()},
    "threads": lambda dataset: {k: v[7] for k, v in next(dataset.batches(num_threads=2)).items()},
}


@pytest.mark.parametrize("options", [{}, {"access": "range"}], ids=["shard", "range"])
@pytest.mark.parametrize("way", WAYS)
def test_an_error_names_the_place(folder, tmp_path, way, options):
    places = {"local": folder} if not options else {"remote": f"file://{folder}", **options}
    sample = WAYS[way](StreamingDataset(batch_size=16, **places))
    assert sample["n"] == 7
    for _ in range(2):  # Pillow itself would return what it has decoded
        with pytest.raises(
            DecodeError, match=r"shard 1 \(.*00001\.mds\): sample 2, column 'image': c"
        ):
            np.asarray(sample["image"])


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_of_any_kind_of_file_is_found(tmp_path, kind):
    good = file_of(kind)
    out = write(tmp_path / "set", good, cut(good), "bytes")
    dataset = StreamingDataset(local=out, decoders={"image": lambda _: make("encoding", "jpeg")})
    assert (np.asarray(dataset[0]["image"].convert("RGB")).shape) == (40, 30, 3)
    with pytest.raises(DecodeError, match="sample 2, column 'image': cannot decode the image"):
        dataset[7]["image"].convert("L")


def test_images_of_a_list_are_counted(tmp_path):
    good = file_of()
    out = write(tmp_path / "set", [good, good], [good, cut(good)], "jpeg_array")
    dataset = StreamingDataset(local=out)
    np.asarray(dataset[7]["image"][0])
    with pytest.raises(DecodeError, match="sample 2, column 'image', item 1: cannot decode"):
        np.asarray(dataset[7]["image"][1])


def test_an_image_stays_that_of_pillow(folder):
    image = StreamingDataset(local=folder)[0]["image"]
    assert isinstance(image, LazyValue)
    assert isinstance(image, Image.Image)
    assert type(image).__name__ == "JpegImageFile"
    assert image.format == "JPEG"
    copied = pickle.loads(pickle.dumps(image))
    assert (np.asarray(copied) == np.asarray(image)).all()
    assert (np.asarray(image.copy()) == np.asarray(Image.open(BytesIO(file_of())))).all()


def test_a_damaged_image_may_be_sent_to_another_process(folder):
    image = pickle.loads(pickle.dumps(StreamingDataset(local=folder)[7]["image"]))
    with pytest.raises(DecodeError, match=r"shard 1 .*sample 2, column 'image': cannot decode"):
        image.load()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_worker_sends_a_damaged_image(folder):
    loader = make_loader(folder, batch_transform=lambda batch: batch, num_workers=1)
    images = {int(n): image for b in loader for n, image in zip(b["n"], b["image"])}
    assert len(images) == SIZE
    for n, image in images.items():
        if n not in BAD:
            assert np.asarray(image).shape == PIXELS.shape
            continue
        with pytest.raises(DecodeError, match=rf"sample {n % 5}, column 'image': cannot decode"):
            np.asarray(image)


def test_a_closed_image_is_no_damaged_one(folder):
    image = StreamingDataset(local=folder)[0]["image"]
    image.close()
    with pytest.raises(ValueError, match="closed") as raised:
        image.load()
    assert not isinstance(raised.value, DecodeError)


def test_the_file_of_a_folder_is_named(tmp_path):
    for n in range(4):
        path = tmp_path / "tree" / "cat" / f"{n}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cut(file_of()) if n == 2 else file_of())
    for options in ({}, {"access": "range"}):
        dataset = StreamingDataset(remote=str(tmp_path / "tree"), format="folder:images", **options)
        with pytest.raises(DecodeError, match=r"sample 2 \(cat/2\.jpg\), column 'image': cannot"):
            dataset[2]["image"].load()


# -- in transforms --------------------------------------------------------------------


def pixels_of(sample):
    return {"n": sample["n"], "x": np.array(sample["image"])}


def with_number(sample, rng):
    return pixels_of(sample) | {"r": rng.random()}


def pixels_of_batch(columns):
    return {"n": columns["n"], "x": np.stack([np.array(image) for image in columns["image"]])}


def batch_with_number(columns, rng):
    return pixels_of_batch(columns) | {"r": rng.random()}


def collate(samples):
    return pixels_of_batch({name: [s[name] for s in samples] for name in samples[0]})


LOADERS = {
    "transform": {"transform": pixels_of},
    "rng": {"transform": with_number},
    "torch": {"transform": with_number, "seed_torch": True},
    "crop": {"transform": CROP},
    "batch": {"batch_transform": pixels_of_batch},
    "batch-rng": {"batch_transform": batch_with_number},
    "threads": {"batch_transform": pixels_of_batch, "num_threads": 2},
    "collate": {"collate_fn": collate},
}


def make_loader(folder, **options):
    torch = pytest.importorskip("torch")
    from streamplug import StreamingDataLoader

    assert torch
    kwargs = {n: options.pop(n) for n in ("on_error", "max_errors", "decoders") if n in options}
    dataset = StreamingDataset(local=folder, batch_size=8, shuffle=True, **kwargs)
    return StreamingDataLoader(dataset, **options)


@pytest.fixture(scope="module")
def expected(folder):
    """Samples of each step with the substitutes that a damaged stored value would have."""
    dataset = StreamingDataset(
        local=folder,
        batch_size=8,
        shuffle=True,
        on_error="substitute",
        decoders={"image": ImageFiles()},
    )
    return [batch["n"].tolist() for batch in dataset.batches()]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", LOADERS)
def test_what_a_transform_cannot_decode_is_substituted(folder, expected, name, workers):
    loader = make_loader(
        folder, on_error="substitute", max_errors=3, num_workers=workers, **LOADERS[name]
    )
    batches = list(loader)
    assert [[int(n) for n in batch["n"]] for batch in batches] == expected
    assert not {n for step in expected for n in step} & set(BAD)
    assert loader.dataset.stats().substitutions == 3
    if "rng" in name:
        by_sample = make_loader(folder, **{k: numbers_only(v) for k, v in LOADERS[name].items()})
        for batch, planned in zip(batches, by_sample):
            assert np.array_equal(batch["r"], planned["r"])


def numbers_only(transform):
    return lambda value, rng: {"r": transform({**value, "image": [PIXELS] * 8}, rng)["r"]}


@pytest.mark.parametrize("name", LOADERS)
def test_the_error_of_a_transform_is_raised_by_default(folder, name):
    with pytest.raises(DecodeError, match=r"shard . .*: sample ., column 'image': cannot decode"):
        list(make_loader(folder, **LOADERS[name]))


@pytest.mark.parametrize("name", ["transform", "rng", "batch", "batch-rng", "collate"])
@pytest.mark.parametrize("error", [KeyError, ValueError, OSError])
def test_other_errors_of_a_transform_are_raised(folder, name, error):
    [(option, function)] = LOADERS[name].items()

    def fails(value, *rest):
        if 5 in [v["n"] for v in value] if isinstance(value, list) else 5 in np.ravel(value["n"]):
            raise error("mine")
        return function(value, *rest)

    def fails_with_rng(value, rng):
        return fails(value, rng)

    options = {option: fails_with_rng if "rng" in name else partial(fails)}
    with pytest.raises(error, match="mine"):
        list(make_loader(folder, on_error="substitute", **options))


def test_substitutes_of_transforms_count(folder):
    loader = make_loader(folder, on_error="substitute", max_errors=2, transform=pixels_of)
    with pytest.raises(TooManyBadSamplesError, match=r"00001\.mds, row 2"):
        list(loader)


@pytest.mark.parametrize("name", LOADERS)
def test_the_substitute_may_be_damaged_too(tmp_path, name):
    good = file_of()
    damaged = {n for n in range(SIZE) if n % 3}
    out = write(tmp_path / "set", good, cut(good), "jpeg", damaged)
    loader = make_loader(out, on_error="substitute", **LOADERS[name])
    numbers = [[int(n) for n in batch["n"]] for batch in loader]
    assert list(map(len, numbers)) == [8] * 4
    assert not {n for step in numbers for n in step} & damaged
    assert loader.dataset.stats().substitutions >= len(damaged)


def test_crops_of_files_name_the_sample(tmp_path):
    deep = file_of("TIFF", np.full((9, 9), 0.5, np.float32))
    out = write(tmp_path / "set", file_of(), deep, "bytes")
    options = {"transform": CROP, "decoders": {"image": ImageFiles()}}
    with pytest.raises(
        DecodeError, match=r"sample [0-9]+, column 'image': .* of mode F has values"
    ):
        list(make_loader(out, **options))
    loader = make_loader(out, on_error="substitute", **options)
    assert not {int(n) for batch in loader for n in batch["n"]} & set(BAD)


def test_crops_of_16_bits_are_rounded():
    deep = np.full((20, 20), 257 * 90, np.uint16)
    for given in (file_of("PNG", deep), Image.open(BytesIO(file_of("PNG", deep)))):
        pixels = CROP.decode(given, np.random.default_rng(0))
        assert (pixels == 90).all()


# -- verify ---------------------------------------------------------------------------


def damaged_rows(**place):
    verification = pytest.importorskip("streamplug_tools.verification")
    from streamplug import Stream

    problems = verification.verify(Stream(**place), num_threads=2).problems
    assert all("cannot decode the image" in problem.error for problem in problems)
    return [(problem.shard * 5 + problem.index, problem.error) for problem in problems]


@pytest.mark.parametrize("spec", ["jpeg", "png", "list[jpeg]"])
def test_verify_decodes_pixels(tmp_path, spec):
    good = file_of("PNG" if spec == "png" else "JPEG")
    values = ([good, good], [good, cut(good)]) if "list" in spec else (good, cut(good))
    found = damaged_rows(remote=write(tmp_path / "set", *values, spec))
    assert [n for n, _ in found] == list(BAD)
    assert all(", column 'image': cannot decode" in error for _, error in found)
    assert not damaged_rows(remote=write(tmp_path / "good", values[0], values[0], spec))


def test_verify_names_the_file_of_a_folder(tmp_path):
    for n, kind in enumerate(("JPEG", "PNG", "BMP", "TIFF", "PPM")):
        for state, data in (("a", file_of(kind)), ("b", cut(file_of(kind)))):
            path = tmp_path / "tree" / state / f"{n}.{kind.lower()[:4]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    found = damaged_rows(remote=str(tmp_path / "tree"), format="folder:images")
    assert [n for n, _ in found] == list(range(5, 10))
    assert "(b/0.jpeg), column 'image': cannot decode" in found[0][1]
    result = CliRunner().invoke(
        main, ["verify", str(tmp_path / "tree"), "--format", "folder:images"]
    )
    assert "shard 0 (b/4.ppm): sample 9 (b/4.ppm), column 'image': " in result.output
    assert (result.exit_code, "_bundles" in result.output) == (1, False)


def test_verify_decodes_all_frames(tmp_path):
    frames = [Image.fromarray(PIXELS // n) for n in (1, 2, 3)]
    out = BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:])
    good = out.getvalue()
    last = Image.open(BytesIO(good))
    last.seek(2)
    offset = last.tag_v2[273][0].to_bytes(4, "little")
    # The pixels of the last frame lie beyond the end.
    bad = good.replace(offset, (len(good) - 10).to_bytes(4, "little"))
    for n in range(3):
        path = tmp_path / "a" / f"{n}.tif"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bad if n == 1 else good)
    [(row, _)] = damaged_rows(remote=str(tmp_path), format="folder:images")
    assert row == 1
