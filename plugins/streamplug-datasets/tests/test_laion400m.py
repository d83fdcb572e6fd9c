from __future__ import annotations

import json
import math
from io import BytesIO

import numpy as np
import pytest
from PIL import ExifTags, Image
from streamplug_testing.http import serving

from streamplug import StreamingDataLoader, StreamingDataset

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
torch = pytest.importorskip("torch")
pytest.importorskip("streamplug_parquet")

LINE = "laion400m --in original --out converted"
CRAWL = (
    "laion400m-crawl --in original --out converted --timeout 30 --retries 0 --threads 4 --part 10 "
    "--allow-private"
)
BAD = {2: "failed_to_download", 5: "failed_to_resize"}


def jpeg(seed, size=(32, 24), kind="JPEG"):
    colours = np.random.default_rng(seed).integers(0, 256, (2, 2, 3), np.uint8)
    out = BytesIO()
    Image.fromarray(colours).resize(size, Image.Resampling.BILINEAR).save(out, kind)
    return out.getvalue()


def row(file, n):
    """Make a row as img2dataset writes it, of types that pandas gives to columns with gaps."""
    good = n not in BAD
    return {
        "NSFW": ["UNLIKELY", None, "NSFW"][n % 3],
        "similarity": None if n == 3 else 0.3 + n / 100,
        "LICENSE": "?" if n % 2 else None,
        "caption": f"picture {file} {n} ✓" if n != 4 else None,
        "url": f"http://example.com/{n}.jpg",
        "key": f"{file:05}{n:04}",
        "status": "success" if good else BAD[n],
        "error_message": None if good else "HTTP Error 404: Not Found",
        "width": 32.0 if good else math.nan,
        "height": 24.0 if good else math.nan,
        "original_width": 640.0 if good else math.nan,
        "original_height": 480.0 if good else math.nan,
        "exif": '{"Image Orientation": "1"}' if good else None,
        "md5": "d41d8cd98f00b204e9800998ecf8427e" if good else None,
        "jpg": jpeg(n) if good else None,
    }


def write(home, file, rows, **stats):
    parquet.write_table(arrow.Table.from_pylist(rows), home / f"{file:05}.parquet")
    good = sum(row["status"] == "success" for row in rows)
    found = {"count": len(rows), "successes": good, "failed_to_download": 1, "failed_to_resize": 1}
    found |= {"duration": 1.5, "status_dict": {"success": good}}
    (home / f"{file:05}_stats.json").write_text(json.dumps({**found, **stats}, indent=4))


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "original"
    home.mkdir()
    for file in range(2):
        write(home, file, [row(file, n) for n in range(8)])
    return home


def test_what_comes_out_is_what_was_there(home, converted):
    [summary] = converted(LINE)
    assert summary["samples"] == 16
    assert summary["failed"] == {"failed_to_download": 2, "failed_to_resize": 2}
    wanted = [row(file, n) for file in range(2) for n in range(8)]
    for sample, truth in zip(StreamingDataset(local="converted")[:], wanted):
        assert sample["nsfw"] == (truth["NSFW"] or "")
        assert sample["license"] == (truth["LICENSE"] or "")
        for name in ("caption", "url", "key", "status", "error_message", "exif"):
            assert sample[name] == (truth[name] or "")
        for name in ("width", "height", "original_width", "original_height"):
            assert sample[name] == (0 if math.isnan(truth[name]) else truth[name])
        assert sample["jpg"] == (truth["jpg"] or b"")
        wanted_similarity = math.nan if truth["similarity"] is None else truth["similarity"]
        np.testing.assert_equal(float(sample["similarity"]), wanted_similarity)
    [summary] = converted(f"{LINE.replace('converted', 'images')} --only-images")
    assert summary["samples"] == 12
    assert all(StreamingDataset(local="images")[n]["jpg"] for n in range(12))


def test_it_trains(home, converted, learns):
    from streamplug_image import ImageArrays

    converted(f"{LINE} --only-images")
    dataset = StreamingDataset(
        local="converted", batch_size=6, columns=["jpg", "similarity"],
        decoders={"jpg": ImageArrays(size=(8, 8))},
    )  # fmt: skip
    batch = next(iter(StreamingDataLoader(dataset)))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 1))
    images, wanted = batch["jpg"].float() / 255, batch["similarity"].float().nan_to_num()
    learns(model, lambda model: (model(images)[:, 0] - wanted).square().mean())


def test_files_must_be_whole(home, refused):
    stats = home / "00001_stats.json"
    for content, message in (
        (
            '{"count": 9, "successes": 6}',
            "00001.parquet: 8 rows with 6 images, 00001_stats.json says 9",
        ),
        ('{"count": 8}', "00001_stats.json is damaged: KeyError: 'successes'"),
        ('{"count": 1e999}', "00001_stats.json is damaged: OverflowError"),
        ("{", "00001_stats.json is damaged: JSONDecodeError"),
    ):
        stats.write_text(content)
        assert message in refused(LINE)
    stats.unlink()
    assert "00001_stats.json: there is no such file" in refused(LINE)


def test_bad_file_is_named(home, refused):
    rows = [row(1, n) for n in range(8)]
    rows[6]["jpg"] = b"<html>"
    write(home, 1, rows)
    assert "00001.parquet: row 7: its status is success, but it has no JPEG" in refused(LINE)
    write(home, 1, [{"status": "success", "jpg": b""}])
    assert "00001.parquet: lacks the columns LICENSE, NSFW, caption" in refused(LINE)
    write(home, 1, [row(1, n) for n in range(8)])
    path = home / "00001.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert "00001.parquet: its footer is damaged: " in refused(LINE)
    damaged = bytearray(whole)
    damaged[4:20] = bytes(16)
    path.write_bytes(damaged)
    assert "00001.parquet: row group 0, column '" in refused(LINE)
    for path in home.iterdir():
        path.unlink()
    assert "there are no *.parquet" in refused(LINE)


def broken_text(count):
    data = arrow.array([b"\xff"] * count)
    return arrow.StringArray.from_buffers(count, data.buffers()[1], data.buffers()[2])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("caption", broken_text(8), "row group 0 is damaged: UnicodeDecodeError"),
        ("width", ["wide"] * 8, "row 1 is damaged: TypeError"),
        ("width", [math.inf] * 8, "row 1 is damaged: OverflowError"),
        ("similarity", [[1]] * 8, "row 1 is damaged: TypeError"),
        ("jpg", ["text"] * 8, "row 1 is damaged: TypeError"),
    ],
)
def test_bad_value_is_named(home, refused, column, values, message):
    path = home / "00001.parquet"
    table = parquet.read_table(path)
    place = table.schema.get_field_index(column)
    parquet.write_table(table.set_column(place, column, [values]), path)
    assert f"00001.parquet: {message}" in refused(LINE)


def test_text_that_expands_too_far_is_refused(home, refused):
    table = parquet.read_table(home / "00001.parquet")
    texts = arrow.array(["x" * 10_000_000]).dictionary_encode()
    repeated = arrow.DictionaryArray.from_arrays([0] * 8, texts.dictionary)
    place = table.schema.get_field_index("caption")
    table = arrow.concat_tables(
        [table.set_column(place, "caption", repeated)] * 200
    ).combine_chunks()
    parquet.write_table(table, home / "00001.parquet", use_dictionary=["caption"])
    message = refused(LINE)
    assert "00001.parquet: row group 0: the values take up to " in message
    assert "more than the limit of 1073741824" in message


@pytest.fixture
def site(tmp_path):
    """A server with a small and a large JPEG, a PNG, and something else."""
    home = tmp_path / "site"
    home.mkdir()
    (home / "small.jpg").write_bytes(jpeg(1))
    (home / "large.jpg").write_bytes(jpeg(2, (640, 480)))
    (home / "a.png").write_bytes(jpeg(3, kind="PNG"))
    (home / "page.jpg").write_bytes(b"<html>no picture</html>")
    with serving(home) as server:
        yield server


def metadata(tmp_path, urls):
    """Write the metadata of LAION-400M: two files, of two row groups each."""
    home = tmp_path / "original"
    home.mkdir()
    rows = [
        {
            "SAMPLE_ID": 1_000_000_000_000.0 + n,
            "URL": url,
            "TEXT": f"picture {n}",
            "HEIGHT": 480,
            "WIDTH": 640,
            "LICENSE": "?",
            "NSFW": "UNLIKELY",
            "similarity": 0.3 + n / 100,
        }
        for n, url in enumerate(urls)
    ]
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        name = f"part-{number:05}-5b54c5d5-bbcf-484d-a2ce-0d6f73df1a36-c000.snappy.parquet"
        parquet.write_table(arrow.Table.from_pylist(part), home / name, row_group_size=3)
    return rows


def test_images_are_fetched_reduced_and_counted(site, tmp_path, converted):
    names = [
        "small.jpg",
        "large.jpg",
        "a.png",
        "page.jpg",
        "gone.jpg",
        "small.jpg",
        "large.jpg",
        "a.png",
    ]
    rows = metadata(tmp_path, [f"{site.url}/{name}" for name in names])
    [summary] = converted(f"{CRAWL} --part 2 --image-size 48")
    assert (summary["samples"], summary["failed"]) == (8, {"no image": 1, "status 404": 1})
    samples = StreamingDataset(local="converted")[:]
    for sample, name, meta in zip(samples, names, rows):
        assert sample["url"] == meta["URL"]
        assert sample["caption"] == meta["TEXT"]
        assert sample["key"] == str(int(meta["SAMPLE_ID"]))
        sizes = [int(sample[n]) for n in ("width", "height", "original_width", "original_height")]
        if name in ("page.jpg", "gone.jpg"):
            assert (sizes, sample["jpg"]) == ([0, 0, 0, 0], b"")
            kind = "failed_to_resize" if name == "page.jpg" else "failed_to_download"
            assert sample["status"] == kind
            assert sample["error_message"]
            continue
        assert sample["status"] == "success"
        image = Image.open(BytesIO(sample["jpg"]))
        assert image.format == "JPEG"
        assert sizes[:2] == list(image.size)
        assert sizes == ([64, 48, 640, 480] if name == "large.jpg" else [32, 24, 32, 24])
        if name == "small.jpg":
            assert sample["jpg"] == (site.root / name).read_bytes()
    [summary] = converted(f"{CRAWL.replace('converted', 'images')} --only-images --image-size 0")
    assert summary["samples"] == 6
    widths = [int(sample["width"]) for sample in StreamingDataset(local="images")[:]]
    assert widths == [32, 640, 32, 32, 640, 32]


def test_a_data_set_with_reports_of_failures_is_replaced(site, tmp_path, converted):
    metadata(tmp_path, [f"{site.url}/{name}" for name in ("gone.jpg", "small.jpg") * 4])
    converted(f"{CRAWL} --part 1 --max-failed 1")
    assert len(list((tmp_path / "converted" / "failures").iterdir())) == 8
    [summary] = converted(f"{CRAWL} --part 4 --image-size 12 --exist-ok")
    assert (summary["samples"], summary["failed"]) == (8, {"status 404": 4})
    widths = [int(sample["width"]) for sample in StreamingDataset(local="converted")[:]]
    assert widths == [0, 16] * 4


def test_fetched_files_of_other_kinds_are_no_images(site, tmp_path, converted, monkeypatch):
    # Pillow would give it to Ghostscript.
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n%%EOF\n"
    (site.root / "drawing.jpg").write_bytes(eps)
    monkeypatch.setattr("subprocess.check_call", pytest.fail)
    Image.fromarray(np.ones((4, 4), np.float32)).save(site.root / "floats.jpg", "TIFF")
    metadata(tmp_path, [f"{site.url}/{name}" for name in ("drawing.jpg", "floats.jpg")])
    [summary] = converted(f"{CRAWL} --max-failed 1")
    assert (summary["samples"], summary["failed"]) == (2, {"no image": 2})
    messages = [s["error_message"] for s in StreamingDataset(local="converted")[:]]
    assert "DecodeError: not an image (JPEG, PNG," in messages[0]
    assert "DecodeError: an image of mode F has values" in messages[1]


@pytest.mark.parametrize("size", [0, 12])
def test_images_of_16_bits_are_scaled(site, tmp_path, converted, size):
    ramp = np.linspace(0, 65535, 24 * 24).astype(np.uint16).reshape(24, 24)
    Image.fromarray(ramp).save(site.root / "deep.png")
    metadata(tmp_path, [f"{site.url}/deep.png"] * 2)
    converted(f"{CRAWL} --image-size {size}")
    for sample in StreamingDataset(local="converted")[:]:
        shown = np.asarray(Image.open(BytesIO(sample["jpg"])).convert("L"), int)
        assert np.abs(shown.mean(1) - np.linspace(5, 250, len(shown))).max() < 6


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_reduced_images_keep_their_orientation(site, tmp_path, converted, ending):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (48, 32)).save(site.root / f"turned.{ending}", exif=exif)
    metadata(tmp_path, [f"{site.url}/turned.{ending}"] * 2)
    converted(f"{CRAWL} --image-size 24")
    sample = StreamingDataset(local="converted")[0]
    with Image.open(BytesIO(sample["jpg"])) as image:
        assert image.size == (36, 24) == (sample["width"], sample["height"])
        assert image.getexif()[ExifTags.Base.Orientation] == 6


def test_crawl_stops_where_all_is_in_vain(site, tmp_path, refused):
    metadata(tmp_path, [f"{site.url}/gone.jpg"] * 20)
    for path in (tmp_path / "original").iterdir():
        table = parquet.read_table(path)
        parquet.write_table(table, path)
    assert "10 of 10 samples failed (status 404: 10)" in refused(CRAWL)
    assert (tmp_path / "converted" / "failures" / "part-00000.json").exists()
    for name, values, message in (
        ("URL", list(range(10)), "the URL 1 is not text"),
        ("similarity", ["x"] * 10, "is damaged: ValueError: could not convert string to float"),
    ):
        place = table.schema.get_field_index(name)
        parquet.write_table(table.set_column(place, name, [values]), path)
        assert message in refused(f"{CRAWL} --max-failed 1")
    parquet.write_table(table.drop_columns("URL"), path)
    assert f"{path.name}: lacks the columns URL" in refused(CRAWL)
