from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import struct
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps, features
from streamplug_image import ImageArrays, ImageFiles
from streamplug_image.fit import FITS, fit
from streamplug_image.pictures import CHANNELS
from streamplug_image.threads import run_numbered
from streamplug_testing.encoding import EncodingTests

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset  # without torch, which processes would import
from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import GatherBuffer
from streamplug.plugin import make

# Other builds of libjpeg round otherwise.
CLOSE = 0 if features.check("libjpeg_turbo") else 3


def picture(size=(50, 30), mode="RGB", seed=0):
    """Smooth shapes, and a little noise."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
    smooth = np.asarray(small.resize(size, Image.Resampling.BICUBIC), np.int16)
    pixels = smooth + rng.integers(-8, 9, smooth.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert(mode)


def file_of(image, kind="JPEG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def read(data, spec="jpeg", **options):
    return ImageArrays(**options)(make("encoding", spec)).decode(memoryview(data))


def laid_out(values):
    sizes = np.array([len(value) for value in values])
    return GatherBuffer(np.frombuffer(b"".join(values), np.uint8)), np.cumsum(sizes) - sizes, sizes


def differ(array, image):
    return int(np.abs(array.astype(int) - np.asarray(image).reshape(array.shape)).max())


@st.composite
def images(draw, modes=("1", "L", "LA", "RGB", "RGBA", "CMYK")):
    size = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    blank = Image.new(draw(st.sampled_from(modes)), size)
    count = len(blank.tobytes())
    return Image.frombytes(blank.mode, size, draw(st.binary(min_size=count, max_size=count)))


# -- as an encoding -----------------------------------------------------------------


class Arrays(EncodingTests):
    wish = ImageArrays()
    wrong = (5, None, object())

    def encoding(self):
        return self.wish(super().encoding())

    def values(self):
        return images()

    def decoded(self, value):
        return np.asarray(value.convert("RGB"))


class TestPilAsArrays(Arrays):
    spec = "pil"


class TestPngAsArrays(Arrays):
    spec = "png"

    def values(self):
        return images(("1", "L", "LA", "RGB", "RGBA"))


class TestPngAsArraysOfOneSizeByThreads(TestPngAsArrays):
    wish = ImageArrays(size=(5, 7), mode="RGBA", layout="NCHW", num_threads=3)

    def decoded(self, value):
        resized = value.convert("RGBA").resize((7, 5), Image.Resampling.BILINEAR)
        return np.moveaxis(np.asarray(resized), -1, 0)


class TestJpegAsArrays(Arrays):
    spec = "jpeg"

    def values(self):
        return images(("L", "RGB", "CMYK"))

    def decoded(self, value):
        return np.asarray(Image.open(io.BytesIO(file_of(value))).convert("RGB"))

    def equal(self, a, b):
        return a.dtype == b.dtype == np.uint8 and a.shape == b.shape and differ(a, b) <= CLOSE


class TestListAsArrays(Arrays):
    spec = "list[png]"
    wish = ImageArrays(size=(4, 4), mode="L")

    def values(self):
        return st.lists(images(("L",)), max_size=4)

    def decoded(self, value):
        pages = [np.asarray(image.resize((4, 4), Image.Resampling.BILINEAR)) for image in value]
        return np.array(pages, np.uint8).reshape(-1, 4, 4, 1)


# -- what is in them ----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize(
    "options", [{"quality": 75}, {"quality": 95, "subsampling": 0}, {"progressive": True}]
)
def test_jpeg_files_have_the_pixels_that_pillow_decodes(mode, options):
    data = file_of(picture((61, 47)), **options)
    array = read(data, mode=mode)
    opened = Image.open(io.BytesIO(data))
    if mode == "L":
        opened.draft("L", None)  # the luminance as it is stored
    assert array.shape == (47, 61, CHANNELS[mode])
    assert array.dtype == np.uint8
    assert differ(array, opened.convert(mode)) <= CLOSE


def test_grey_files_become_colours():
    data = file_of(picture(mode="L"))
    array = read(data)
    assert differ(array, Image.open(io.BytesIO(data)).convert("RGB")) <= CLOSE


def test_cmyk_files_are_converted_as_pillow_does():
    data = file_of(picture(mode="CMYK"))
    assert differ(read(data), Image.open(io.BytesIO(data)).convert("RGB")) == 0
    assert read(data, size=(8, 9)).shape == (8, 9, 3)


def test_files_that_only_strict_decoders_refuse_are_read():
    whole = file_of(picture())
    data = whole[:2] + b"\xff\xfe\x00\x03x" + b"junk" + whole[2:]
    assert differ(read(data), Image.open(io.BytesIO(data))) == 0


def test_orientation_is_left_as_it_is_stored():
    image = picture()
    exif = Image.Exif()
    exif[0x0112] = 6
    data = file_of(image, exif=exif)
    assert ImageOps.exif_transpose(Image.open(io.BytesIO(data))).size == (30, 50)
    assert read(data).shape == (30, 50, 3)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG"])
def test_columns_of_bytes_hold_image_files_of_any_kind(kind):
    data = file_of(picture(), kind)
    array = read(data, "bytes")
    assert differ(array, Image.open(io.BytesIO(data)).convert("RGB")) <= CLOSE


def test_palette_with_transparency_loses_it():
    image = picture(mode="RGB").quantize(8)
    data = file_of(image, "PNG", transparency=bytes([0, 128, 255]))
    assert differ(read(data, "png"), image.convert("RGB")) == 0


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_grey_values_of_16_bits_are_rounded_to_8(mode):
    stored = np.array([[0, 128, 129], [257 * 7, 65535, 65407]], np.uint16)
    rounded = np.array([[0, 0, 1], [7, 255, 255]])
    for kind in ("PNG", "TIFF"):
        pixels = read(file_of(Image.fromarray(stored), kind), "png", mode=mode)
        assert pixels.dtype == np.uint8
        assert (pixels[..., :3] == rounded[..., None]).all(), kind
        assert (pixels[..., 3:] == 255).all()


@pytest.mark.parametrize("values", [np.float32(0.5), np.int32(65536), np.int32(-1)])
def test_values_that_are_not_of_8_or_16_bits_are_refused(values):
    data = file_of(Image.fromarray(np.full((3, 3), values)), "TIFF")
    with pytest.raises(DecodeError, match="values that are not of 16 bits"):
        read(data, "png")


# -- sizes --------------------------------------------------------------------------


@given(
    st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
    st.tuples(st.integers(1, 500), st.integers(1, 500)),
    st.sampled_from(FITS),
)
def test_fit_shows_what_there_is_where_there_is_room(size, to, how):
    placed = fit(size, to, how)
    left, top, right, bottom = placed.box
    assert 0 <= left < right <= size[1]
    assert 0 <= top < bottom <= size[0]
    at, beside, height, width = placed.shown
    assert at >= 0
    assert beside >= 0
    assert height >= 1
    assert width >= 1
    assert at + height <= to[0]
    assert beside + width <= to[1]
    assert how == "pad" or (height, width) == to
    assert how == "crop" or placed.box == (0, 0, size[1], size[0])
    if how == "crop":  # all of one side, and the proportions of the result
        assert right - left == pytest.approx(size[1]) or bottom - top == pytest.approx(size[0])
        assert (right - left) * to[0] == pytest.approx((bottom - top) * to[1])


@given(
    st.tuples(st.integers(1, 120), st.integers(1, 120)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from(FITS),
    st.sampled_from(sorted(CHANNELS)),
    st.sampled_from(["jpeg", "png"]),
    st.integers(1, 3),
)
def test_every_image_gets_the_size(size, to, how, mode, spec, threads):
    data = file_of(picture(size), spec)
    encoding = ImageArrays(size=to, fit=how, mode=mode, num_threads=threads)(make("encoding", spec))
    batch = encoding.decode_batch(*laid_out([data] * 3))
    assert batch.shape == (3, *to, CHANNELS[mode])
    assert batch.dtype == (np.uint16 if mode == "I;16" else np.uint8)
    assert (batch == encoding.decode(memoryview(data))).all()


@pytest.mark.parametrize("how", FITS)
@pytest.mark.parametrize("size", [(500, 375), (300, 225), (100, 400), (448, 448)])
def test_scaled_decoding_looks_like_resizing_the_whole(size, how):
    image = picture(size)
    array = read(file_of(image, quality=95), size=(112, 112), fit=how)
    whole = read(file_of(image, "PNG"), "png", size=(112, 112), fit=how)
    assert np.abs(array.astype(int) - whole).mean() < 4


def test_images_of_the_size_asked_for_are_not_touched():
    data = file_of(picture((40, 30)))
    for how in FITS:
        assert differ(read(data, size=(30, 40), fit=how), Image.open(io.BytesIO(data))) <= CLOSE


def test_crop_of_the_same_scale_copies_pixels():
    image = picture((45, 30))
    array = read(file_of(image, "PNG"), "png", size=(30, 30), fit="crop")
    assert differ(array, image.crop((7, 0, 37, 30))) == 0


def test_pad_puts_zeros_beside_the_image():
    data = file_of(Image.new("RGB", (40, 20), "white"))
    array = read(data, size=(40, 40), fit="pad")
    assert not array[:10].any()
    assert (array[10:30] == 255).all()
    assert not array[30:].any()


def test_channels_first_is_the_same_memory():
    data = [file_of(picture(seed=seed)) for seed in range(3)]
    first = ImageArrays(size=(8, 9), layout="NCHW")(make("encoding", "jpeg"))
    last = ImageArrays(size=(8, 9))(make("encoding", "jpeg"))
    batch = first.decode_batch(*laid_out(data))
    assert batch.shape == (3, 3, 8, 9)
    assert np.moveaxis(batch, 1, 3).flags.c_contiguous
    assert (np.moveaxis(batch, 1, 3) == last.decode_batch(*laid_out(data))).all()


def test_without_a_size_a_batch_is_a_list_even_of_equal_images():
    encoding = ImageArrays(layout="NCHW")(make("encoding", "jpeg"))
    batch = encoding.decode_batch(*laid_out([file_of(picture())] * 2))
    assert isinstance(batch, list)
    assert [array.shape for array in batch] == [(3, 30, 50)] * 2


# -- what is refused ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 224}, "a height and a width"),
        ({"size": (0, 5)}, "a height and a width"),
        ({"size": (1.5, 5)}, "a height and a width"),
        ({"mode": "CMYK"}, "expected one of L, RGB, RGBA"),
        ({"size": (2, 2), "fit": "zoom"}, "expected one of stretch, crop, pad"),
        ({"fit": "crop"}, "needs a size="),
        ({"layout": "CHWN"}, "NHWC, NCHW"),
        ({"num_threads": 0}, "num_threads=0: must be"),
        ({"max_pixels": True}, "max_pixels=True: must be"),
    ],
)
def test_options_without_a_meaning_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ImageArrays(**options)


def test_columns_that_are_no_images_are_refused():
    with pytest.raises(ConfigError, match="not Str"):
        ImageArrays()(make("encoding", "str"))


def bomb(size):
    """A file that says it has a size, with next to nothing in it."""
    data = bytearray(file_of(Image.new("RGB", (8, 8))))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", *size)
    return bytes(data)


@pytest.mark.parametrize("options", [{}, {"size": (8, 8)}])
def test_images_of_too_many_pixels_are_refused_before_they_are_decoded(options):
    with pytest.raises(DecodeError, match="60000 x 60000 pixels: more than max_pixels"):
        read(bomb((60000, 60000)), **options)
    data = file_of(picture((30, 20)), "PNG")
    assert read(data, "png", max_pixels=600, **options).ndim == 3
    with pytest.raises(DecodeError, match="30 x 20 pixels: more than max_pixels=599"):
        read(data, "png", max_pixels=599, **options)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("options", [{}, {"size": (9, 9)}, {"size": (30, 50)}])
def test_truncated_files_are_refused(kind, options):
    data = file_of(picture(), kind)
    for size in (0, 1, 3, 30, len(data) // 2, len(data) * 3 // 4):
        with pytest.raises(DecodeError):
            read(data[:size], **options)


@pytest.mark.parametrize(
    ("kind", "decoder", "place"),
    [
        ("JPEG", ImageArrays(), "streamplug_image.pixels.decode_jpeg"),
        ("PNG", ImageArrays(), "streamplug_image.pixels.picture_array"),
        ("PNG", ImageFiles(), "PIL.PngImagePlugin.PngImageFile.verify"),
    ],
)
def test_a_lack_of_memory_is_no_damage(kind, decoder, place, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError("no memory")

    with MDSWriter(out=tmp_path / "set", columns={"image": "bytes"}) as out:
        out.write({"image": file_of(picture(), kind)})
    options = {"local": str(tmp_path / "cache"), "batch_size": 1, "on_error": "substitute"}
    dataset = StreamingDataset(
        remote=f"file://{tmp_path}/set", decoders={"image": decoder}, **options
    )
    monkeypatch.setattr(place, fail)
    with pytest.raises(MemoryError, match="no memory"):
        next(dataset.batches())
    assert dataset.stats().repairs == 0


@pytest.fixture
def data_set(tmp_path):
    files = [file_of(picture((64, 48), seed=seed)) for seed in range(40)]
    with MDSWriter(out=tmp_path / "set", columns={"image": "jpeg", "n": "int"}) as out:
        for n, data in enumerate(files):
            out.write({"image": data[:-200] if n == 23 else data, "n": n})
    return tmp_path / "set"


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("size", [None, (24, 32)])
def test_the_error_names_sample_and_column(data_set, threads, size):
    decoders = {"image": ImageArrays(size=size, num_threads=threads)}
    dataset = StreamingDataset(local=str(data_set), batch_size=10, decoders=decoders)
    batches = dataset.batches()
    assert [next(batches)["n"].tolist() for _ in range(2)] == [[*range(10)], [*range(10, 20)]]
    with pytest.raises(DecodeError, match=r"shard 0 .*sample 23, column 'image': cannot decode"):
        next(batches)
    with pytest.raises(DecodeError, match="sample 23, column 'image'"):
        dataset[23]


# -- as a data set ------------------------------------------------------------------


def test_batches_of_a_data_set_are_arrays(data_set):
    decoders = {"image": ImageArrays(size=(24, 24), fit="crop", num_threads=2)}
    dataset = StreamingDataset(local=str(data_set), batch_size=20, decoders=decoders)
    batch = next(iter(dataset.batches()))
    assert batch["image"].shape == (20, 24, 24, 3)
    sample = dataset[7]
    assert sample["n"] == 7
    assert (sample["image"] == batch["image"][7]).all()
    plain = StreamingDataset(local=str(data_set), batch_size=20)
    assert isinstance(plain[7]["image"], Image.Image)


def _first(dataset, pipe):
    pipe.send(next(iter(dataset.batches()))["image"].sum())


@pytest.mark.parametrize(
    "method", sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods()))
)
def test_decoders_travel_to_other_processes(data_set, method):
    decoders = {"image": ImageArrays(size=(24, 24), num_threads=2)}
    dataset = StreamingDataset(local=str(data_set), batch_size=20, decoders=decoders)
    expected = next(iter(dataset.batches()))["image"].sum()  # which starts threads of this process
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=_first, args=(dataset, there))
    process.start()
    try:
        assert here.poll(120)
        assert here.recv() == expected
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()


def test_image_arrays_pickle_and_compare_by_what_they_ask_for():
    wish = ImageArrays(size=[8, 9], num_threads=2)
    assert pickle.loads(pickle.dumps(wish)) == wish == ImageArrays(size=(8, 9), num_threads=2)
    assert wish != ImageArrays(size=(9, 8), num_threads=2)


# -- threads ------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 9])
def test_each_number_is_done_once(threads):
    done = []
    run_numbered(100, done.append, threads)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_error_is_raised(threads):
    done = []

    def work(number):
        done.append(number)
        if number in (3, 5):
            raise ValueError(number)

    with pytest.raises(ValueError, match="3"):
        run_numbered(1000, work, threads)
    assert len(done) < 1000


def test_work_that_asks_for_threads_while_all_are_busy_gets_done():
    done = []
    run_numbered(20, lambda _: run_numbered(20, done.append, 8), 8)
    assert len(done) == 400


def test_threads_are_shared_and_no_more_than_there_are_cores():
    def names():
        return {t.name for t in threading.enumerate() if t.name.startswith("streamplug-image")}

    for _ in range(5):
        run_numbered(50, lambda _: None, 1000)
    assert len(names()) <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_decodes_by_threads_of_its_own():
    run_numbered(50, lambda _: None, 4)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def child():
        done = []
        run_numbered(50, done.append, 4)
        there.send(len(done))

    process = context.Process(target=child)
    process.start()
    try:
        assert here.poll(60)
        assert here.recv() == 50
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()


# -- in a loader of torch ------------------------------------------------------------


@pytest.fixture
def sizes_differ(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"image": "jpeg", "n": "int"}) as out:
        for n in range(8):
            out.write({"image": file_of(picture((32 + 8 * (n // 3), 24))), "n": n})
    return str(tmp_path / "set")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"transform": dict}])
def test_images_without_decoders_name_what_decodes_them(sizes_differ, workers, options):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as TorchDataset

    data = TorchDataset(local=sizes_differ, batch_size=4)
    loader = StreamingDataLoader(data, num_workers=workers, **options)
    advice = r"column 'image': .*decoders={'image': ImageArrays\(size=\(224, 224\)\)}"
    with pytest.raises(ConfigError, match=advice):
        next(iter(loader))
    decoders = {"image": ImageArrays(size=(224, 224))}  # as it says
    data = TorchDataset(local=sizes_differ, batch_size=4, decoders=decoders)
    batch = next(iter(StreamingDataLoader(data, num_workers=workers, **options)))
    assert batch["image"].shape == (4, 224, 224, 3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_images_without_a_size_are_lists_where_theirs_differ(sizes_differ, workers, layout):
    torch = pytest.importorskip("torch")
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as TorchDataset

    decoders = {"image": ImageArrays(layout=layout)}
    plain = StreamingDataset(local=sizes_differ, batch_size=3, decoders=decoders)
    data = TorchDataset(local=sizes_differ, batch_size=3, decoders=decoders)
    loader = StreamingDataLoader(data, num_workers=workers)
    kinds = []
    for batch, expected in zip(loader, plain.batches(), strict=True):
        assert isinstance(expected["image"], list)
        kinds.append(type(batch["image"]))
        for one, other in zip(batch["image"], expected["image"], strict=True):
            assert isinstance(one, torch.Tensor)
            assert (one.numpy() == other).all()
    assert kinds == [torch.Tensor, torch.Tensor, list]  # the last is filled up by the first image


@pytest.mark.parametrize(
    ("spec", "options", "size"),
    [
        ("png", None, 3),
        ("png", {}, 3),
        ("png", {"size": (8, 8)}, 3),
        ("png", {"mode": "L"}, 3),  # Pillow decodes all channels
        ("png", {"mean": (0.5,) * 3, "std": (0.5,) * 3}, 12),
        ("jpeg", {"mode": "L"}, 1),
        ("list[png]", {}, 3),
        ("list[png]", None, 3),
        ("bytes", {}, 3),
    ],
)
def test_pixels_are_bounded(spec, options, size):
    data = file_of(picture((50, 40)), "JPEG" if spec == "jpeg" else "PNG")
    encoding = make("encoding", spec)
    if spec.startswith("list"):
        data = encoding.encode([data])
    if options is not None:
        encoding = ImageArrays(**options)(encoding)
    limit = 50 * 40 * size
    assert encoding.with_max_value_bytes(limit).decode(memoryview(data)) is not None
    with pytest.raises(DecodeError, match=r"50 x 40 pixels takes more than max_value_bytes="):
        encoding.with_max_value_bytes(limit - 1).decode(memoryview(data))


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 3 * 10 * 9 * 3),
        ({"num_threads": 2}, 3 * 10 * 9 * 3),
        ({"size": (8, 9)}, 3 * 8 * 9 * 3),
        ({"size": (8, 9), "mean": (0.5,) * 3, "std": (0.5,) * 3}, 3 * 8 * 9 * 3 * 4),
    ],
)
def test_pixels_of_a_list_are_bounded(options, size):
    stored = make("encoding", "list[jpeg]")
    data = stored.encode([file_of(picture((10, 9)), "JPEG")] * 3)
    buffer = GatherBuffer(np.frombuffer(data * 2, np.uint8))
    starts, sizes = np.array([0, len(data)]), np.full(2, len(data))
    encoding = ImageArrays(**options)(stored).with_max_value_bytes(size)
    assert len(encoding.decode(memoryview(data))) == 3
    assert [len(value) for value in encoding.decode_batch(buffer, starts, sizes)] == [3, 3]
    encoding = ImageArrays(**options)(stored).with_max_value_bytes(size - 1)
    message = "a list of 3 images takes more than max_value_bytes="
    with pytest.raises(DecodeError, match=message):
        encoding.decode(memoryview(data))
    with pytest.raises(DecodeError, match=message):
        encoding.decode_batch(buffer, starts, sizes)
