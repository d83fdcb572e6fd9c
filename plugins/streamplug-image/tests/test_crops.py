from __future__ import annotations

import io
import math
import os
import pickle
import struct
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, features
from streamplug_image import ImageArrays, ImageFiles, RandomResizedCrop, jpeg
from streamplug_image.crop_box import draw_box
from streamplug_image.libturbojpeg import decode_region, load_library

from streamplug import MDSWriter, StreamingDataset, sample_rng
from streamplug.errors import ConfigError, DecodeError
from streamplug.plugin import make

pytest.importorskip("torch", reason="torch is not installed")

CLOSE = 0 if features.check("libjpeg_turbo") else 3
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
LIBRARY = pytest.mark.skipif(load_library() is None, reason="no libturbojpeg of version 3")


def picture(size=(50, 30), seed=0):
    """Smooth shapes, and a little noise."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
    smooth = np.asarray(small.resize(size, Image.Resampling.BICUBIC), np.int16)
    pixels = smooth + rng.integers(-8, 9, smooth.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def file_of(image, kind="JPEG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def difference(array, image):
    return np.abs(array.astype(int) - np.asarray(image).reshape(array.shape))


FILES = st.fixed_dictionaries(
    {
        "quality": st.sampled_from([50, 90]),
        "subsampling": st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
        "progressive": st.booleans(),
        "restart_marker_blocks": st.sampled_from([0, 3]),
    }
)
SIDES = st.one_of(st.integers(1, 90), st.integers(100, 400))


# -- boxes ----------------------------------------------------------------------------


@given(
    st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    st.integers(0, 1 << 32),
    st.sampled_from([(0.08, 1.0), (0.5, 0.5), (1.0, 1.0)]),
    st.sampled_from([(3 / 4, 4 / 3), (1.0, 1.0), (0.1, 0.2)]),
)
def test_boxes_are_in_the_image_and_of_its_area_and_ratio(size, seed, scale, ratio):
    left, top, right, bottom = draw_box(size, np.random.default_rng(seed), scale, ratio)
    assert 0 <= left < right <= size[1]
    assert 0 <= top < bottom <= size[0]
    width, height = right - left, bottom - top
    if min(width, height) > 50 and (width, height) != size[::-1]:
        assert ratio[0] * 0.95 <= width / height <= ratio[1] * 1.05
    assert draw_box(size, np.random.default_rng(seed), scale, ratio) == (left, top, right, bottom)


def test_boxes_are_spread_over_areas_and_places():
    rng = np.random.default_rng(3)
    boxes = np.array([draw_box((400, 400), rng, (0.2, 0.8), (1.0, 1.0)) for _ in range(2000)])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 400**2
    assert np.abs(np.quantile(areas, (0, 0.5, 1)) - (0.2, 0.5, 0.8)).max() < 0.03
    free = 400 - (boxes[:, 2] - boxes[:, 0])
    assert abs((boxes[:, 0] / free).mean() - 0.5) < 0.03
    assert (boxes[:, 0] == free).any()


def test_an_image_that_no_box_fits_in_gives_its_center():
    assert draw_box((10, 1000), np.random.default_rng(0), (0.9, 1.0), (3 / 4, 4 / 3)) == (
        *(493, 0),
        *(506, 10),
    )


# -- pixels ---------------------------------------------------------------------------


@given(
    st.tuples(SIDES, SIDES),
    FILES,
    st.integers(0, 1 << 16),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from(["RGB", "L"]),
    st.sampled_from(["torch", "pillow"]),
)
def test_crops_are_those_of_whole_images(size, options, seed, to, mode, resampler):
    image = picture(size)
    data = file_of(image.convert(mode), **options)
    crop = RandomResizedCrop(to, horizontal_flip=0.5, resampler=resampler)
    array = crop.decode(data, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    box = draw_box(size[::-1], rng, crop.scale, crop.ratio)
    whole = Image.open(io.BytesIO(data)).convert("RGB")
    expected = whole.crop(box).resize(to[::-1], Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    found = difference(array, expected)
    scales = (1, 2, 4) if resampler == "torch" else range(1, 8)
    if max(to[0] / (box[3] - box[1]), to[1] / (box[2] - box[0])) * 8 > scales[-1] + 1e-6:
        assert found.max() <= CLOSE + (resampler == "torch")
    else:  # scaled during decoding
        assert found.mean() <= 8 + 16 / (to[0] * to[1])  # errors of few pixels do not cancel out


@LIBRARY
@given(
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    FILES,
    st.integers(1, 8),
    st.tuples(*[st.integers(0, 299)] * 4),
    st.sampled_from(["RGB", "L", "RGBA"]),
)
def test_parts_have_the_pixels_of_the_whole(size, options, eighths, edges, mode):
    data = memoryview(file_of(picture(size), **options))
    x, y = edges[0] % size[0], edges[1] % size[1]
    box = (x, y, x + 1 + edges[2] % (size[0] - x), y + 1 + edges[3] % (size[1] - y))
    part, at = jpeg._decode_part(data, mode, box, eighths, size[::-1])
    least = [math.ceil(side * eighths / 8) for side in size[::-1]]
    whole = jpeg.simplejpeg.decode_jpeg(
        data,
        jpeg.SPACES[mode],
        min_height=0 if eighths == 8 else least[0],
        min_width=0 if eighths == 8 else least[1],
    )
    if list(whole.shape[:2]) != least or min(least) < 8:
        return  # of tiny images, several scales have the same size
    left, top = (int(edge * eighths / 8) for edge in box[:2])
    right, bottom = (math.ceil(edge * eighths / 8) for edge in box[2:])
    shown = part[int(at[1]) : math.ceil(at[3]), int(at[0]) : math.ceil(at[2])]
    assert (shown == whole[top:bottom, left:right]).all()


@LIBRARY
@pytest.mark.parametrize("size", [(640, 480), (1600, 1200)])
def test_with_and_without_the_library_pixels_are_equal(size, monkeypatch):
    data, used = file_of(picture(size)), []
    crop = RandomResizedCrop((96, 96))
    monkeypatch.setattr(jpeg, "decode_region", lambda *a: used.append(a) or decode_region(*a))
    partly = [crop.decode(data, np.random.default_rng(n)) for n in range(8)]
    monkeypatch.setattr(jpeg, "load_library", lambda: None)
    assert len(used) >= 5
    wholly = [crop.decode(data, np.random.default_rng(n)) for n in range(8)]
    assert len(used) < 9
    assert all((one == other).all() for one, other in zip(partly, wholly))


@LIBRARY
def test_a_thread_that_ends_frees_its_decompressor(monkeypatch):
    library, freed = load_library(), []
    destroy = library.tj3Destroy
    monkeypatch.setattr(library, "tj3Destroy", lambda handle: freed.append(destroy(handle)))
    data, out = memoryview(file_of(picture())), np.empty((8, 8, 3), np.uint8)
    arguments = (data, "RGB", 8, (0, 0, 8, 8), out)
    threads = [Thread(target=decode_region, args=arguments) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    assert len(freed) == 3


def test_many_threads_decode_parts_at_once():
    files = [memoryview(file_of(picture((320, 100), seed))) for seed in range(40)]
    encodings = [
        ImageArrays(size=(50, 50), fit="crop", num_threads=n)(make("encoding", "jpeg"))
        for n in (1, 4)
    ]
    one, four = (encoding._decoded(files) for encoding in encodings)
    assert (one == four).all()


def test_floats_are_normalised():
    data, rng = file_of(picture((90, 70))), np.random.default_rng
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    for flip in (0.0, 1.0):
        options = {"size": (20, 30), "horizontal_flip": flip}
        floats = RandomResizedCrop(**options, mean=mean, std=std).decode(data, rng(1))
        plain = RandomResizedCrop(**options).decode(data, rng(1))
        assert floats.dtype == np.float32
        assert np.allclose(floats, (plain / 255 - mean) / std, atol=1e-5)


def test_layout_and_other_columns():
    sample = {"image": picture(), "label": 3}
    crop = RandomResizedCrop((8, 9), layout="NCHW")
    changed = crop(sample, np.random.default_rng(0))
    assert changed["image"].shape == (3, 8, 9)
    assert changed["label"] == 3
    assert isinstance(sample["image"], Image.Image)
    assert pickle.loads(pickle.dumps(crop)) == crop != RandomResizedCrop((8, 9))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_files_and_pillow_images_give_the_same(kind):
    data = file_of(picture((200, 90)), kind)
    opened = Image.open(io.BytesIO(data))
    crop = RandomResizedCrop((20, 20))
    loaded = Image.open(io.BytesIO(data))
    loaded.load()
    arrays = [
        crop.decode(image, np.random.default_rng(4)) for image in (data, memoryview(data), opened)
    ]
    assert (arrays[0] == arrays[1]).all()
    assert (arrays[0] == arrays[2]).all()
    # It was loaded whole, and not scaled.
    assert difference(crop.decode(loaded, np.random.default_rng(4)), arrays[0]).mean() < 4


# -- what is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 224}, "a height and a width"),
        ({"scale": (0, 1)}, "scale=.*two numbers above 0"),
        ({"scale": (0.5, 2)}, "scale="),
        ({"ratio": (4 / 3, 3 / 4)}, "ratio=.*ascending"),
        ({"ratio": (1, float("inf"))}, "ratio="),
        ({"horizontal_flip": 2}, "horizontal_flip=2: expected a probability"),
        ({"resampler": "cv2"}, "resampler='cv2': expected one of pillow, torch"),
        ({"mean": (0.5, 0.5, 0.5)}, "std=None: expected 3 numbers"),
        ({"mean": (0.5,), "std": (1,)}, "mean=.*expected 3 numbers"),
        (
            {"mean": (124, 116, 104), "std": (58, 57, 57)},
            "mean=.* divide those of pixels of 8 bits",
        ),
        ({"mode": "L", "mean": (0.5,), "std": (0,)}, "std=.*above 0"),
        ({"layout": "CHW"}, "NHWC, NCHW"),
        ({"mode": "CMYK"}, "expected one of"),
        ({"orient": 2}, "orient"),
    ],
)
def test_options_without_a_meaning_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        RandomResizedCrop(**{"size": (8, 8), **options})


def test_values_that_are_no_images_are_refused():
    crop, rng = RandomResizedCrop((8, 8), column="picture"), np.random.default_rng(0)
    with pytest.raises(ConfigError, match=r"column='picture'\): the sample has \['image'\]"):
        crop({"image": b""}, rng)
    with pytest.raises(ConfigError, match=r"not ndarray; read .* ImageFiles"):
        crop({"picture": np.zeros(3)}, rng)
    with pytest.raises(DecodeError, match="column 'picture': not an image"):
        crop({"picture": b"nothing"}, rng)
    with pytest.raises(DecodeError, match="50 x 30 pixels: more than max_pixels=9"):
        RandomResizedCrop((8, 8), max_pixels=9).decode(file_of(picture()), rng)


def test_images_of_more_pixels_are_read_if_asked_for():
    # Of 13,000 x 14,000 pixels, as far as the header says.
    data = file_of(picture()).replace(
        struct.pack(">HH", 30, 50), struct.pack(">HH", 13_000, 14_000)
    )
    rng = np.random.default_rng(0)
    with pytest.raises(DecodeError, match="more than max_pixels=178956970"):
        RandomResizedCrop((8, 8)).decode(data, rng)
    with pytest.raises(DecodeError) as caught:  # as there are far fewer pixels
        RandomResizedCrop((8, 8), max_pixels=1 << 28).decode(data, rng)
    assert "max_value_bytes" not in str(caught.value)


def test_torch_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr("streamplug_image.checks.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="torch is not installed; choose resampler='pillow'"):
        RandomResizedCrop((8, 8))
    assert RandomResizedCrop((8, 8), resampler="pillow")


# -- as files -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP"])
def test_files_are_read_as_they_are(kind):
    encoding = ImageFiles()(make("encoding", "bytes"))
    data = file_of(picture(), kind)
    assert encoding.decode(memoryview(data)) == data
    assert encoding.encode(data) == data


def test_a_file_may_go_on_after_its_end():
    data = file_of(picture()) + bytes(100)
    assert ImageFiles()(make("encoding", "jpeg")).decode(memoryview(data)) == data


def test_files_that_are_decoded_to_verify_them_are_limited():
    data = memoryview(file_of(picture((30, 40))) + bytes(100))
    encoding = ImageFiles()(make("encoding", "jpeg"))
    assert encoding.with_max_value_bytes(30 * 40 * 3).decode(data) == data
    with pytest.raises(DecodeError, match="max_value_bytes=3599"):
        encoding.with_max_value_bytes(30 * 40 * 3 - 1).decode(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_damaged_files_are_found(kind):
    encoding = ImageFiles()(make("encoding", "bytes"))
    data = file_of(picture((200, 200)), kind)
    for size in (0, 1, 30, len(data) // 2, len(data) - 40):
        with pytest.raises(DecodeError):
            encoding.decode(memoryview(data[:size]))
    if kind == "PNG":
        changed = bytearray(data)
        changed[len(data) // 2] ^= 1
        with pytest.raises(DecodeError, match="cannot read the image"):
            encoding.decode(memoryview(bytes(changed)))


def test_the_frame_of_an_image_to_which_it_was_sought():
    first, second = (Image.new("RGB", (64, 48), color) for color in ("red", "blue"))
    data = file_of(first, "MPO", save_all=True, append_images=[second])
    image = make("encoding", "jpeg").decode(memoryview(data))
    crop = RandomResizedCrop((8, 8), resampler="pillow")
    for frame, channel in ((1, 2), (0, 0)):
        image.seek(frame)
        assert crop({"image": image}, np.random.default_rng(0))["image"].argmax(-1).min() == channel


def test_truncated_files_of_several_images_are_found():
    encoding = ImageFiles()(make("encoding", "jpeg"))
    data = file_of(picture((200, 200)), "MPO", save_all=True, append_images=[picture((200, 200))])
    assert encoding.decode(memoryview(data)) == data
    with pytest.raises(DecodeError, match="truncated"):
        encoding.decode(memoryview(data[: len(data) // 4]))
    # A camera's preview after the image is not decoded.
    assert encoding.decode(memoryview(data[:-40])) == data[:-40]


def test_other_columns_are_refused():
    with pytest.raises(ConfigError, match="not PIL"):
        ImageFiles()(make("encoding", "pil"))


# -- in a loader ----------------------------------------------------------------------

BAD = 23


@pytest.fixture(scope="module")
def data_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "set"
    with MDSWriter(out=folder, columns={"image": "jpeg", "n": "int"}) as out:
        for n in range(48):
            data = file_of(picture((120, 90), n))
            out.write({"image": data[:-200] if n == BAD else data, "n": n})
    return str(folder)


CROP = RandomResizedCrop((32, 24))


def loader(data_set, *, ranks=1, rank=0, **options):
    from streamplug import StreamingDataLoader, World
    from streamplug import StreamingDataset as TorchDataset

    dataset = TorchDataset(
        local=data_set,
        shuffle=True,
        batch_size=12 // ranks,
        decoders={"image": ImageFiles()},
        on_error="substitute",
        world=World(ranks_per_node=ranks, rank=rank),
    )
    return StreamingDataLoader(dataset, transform=CROP, **options)


def pixels_of(*batches):
    return {
        int(n): image.numpy().tobytes()
        for batch in batches
        for n, image in zip(batch["n"], batch["image"])
    }


@pytest.mark.parametrize("method", ["fork", "spawn"] if SOAK else ["fork"])
def test_crops_depend_on_the_sample_alone_on_any_world(data_set, method):
    alone = loader(data_set)
    expected = []
    for step, batch in enumerate(alone):
        assert batch["image"].shape == (12, 32, 24, 3)
        expected.append(pixels_of(batch))
        if step == 1:
            state = alone.state_dict()
    assert sum(map(len, expected)) == 47
    resumed = [
        loader(data_set, ranks=2, rank=rank, num_workers=rank, multiprocessing_context=method)
        if rank
        else loader(data_set, ranks=2)
        for rank in range(2)
    ]
    for each in resumed:
        each.load_state_dict(state)
    batches = [list(each) for each in resumed]
    assert [pixels_of(*parts) for parts in zip(*batches)] == expected[2:]


def test_the_generator_of_a_sample_gives_its_crop(data_set):
    dataset = StreamingDataset(local=data_set, decoders={"image": ImageFiles()})
    train = loader(data_set)
    for step, batch in enumerate(train):
        for n, image in pixels_of(batch).items():
            rng = sample_rng(9176, 0, step, n)
            if list(batch["n"]).count(n) == 1:
                assert CROP(dataset[n], rng)["image"].tobytes() == image


def test_a_damaged_image_is_named_or_substituted(data_set):
    dataset = StreamingDataset(local=data_set, decoders={"image": ImageFiles()})
    with pytest.raises(DecodeError, match=rf"sample {BAD}, column 'image': cannot decode"):
        dataset[BAD]
    train = loader(data_set, num_workers=2)
    seen = [n for batch in train for n in batch["n"].tolist()]
    assert len(seen) == 48
    assert BAD not in seen
    assert train.dataset.stats().substitutions == 1


def test_columns_of_images_need_no_decoder(data_set):
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as TorchDataset

    dataset = TorchDataset(local=data_set, batch_size=4)
    batch = next(iter(StreamingDataLoader(dataset, transform=CROP)))
    assert batch["image"].shape == (4, 32, 24, 3)
