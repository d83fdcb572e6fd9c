from __future__ import annotations

import struct
from io import BytesIO

import pytest
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from streamplug_testing.encoding import EncodingTests

from streamplug.errors import DecodeError, EncodeError
from streamplug.plugin import make, resolve

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16", "F")
NOT_IMAGES = (5, "text", None, object())


def image(mode="RGB", size=(2, 1), pixels=bytes(range(6))):
    return Image.frombytes(mode, size, pixels)


def noise(size=(20, 10)):
    return Image.effect_noise(size, 80).convert("RGB")


def file_of(picture, kind, **options):
    out = BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


@st.composite
def images(draw, modes=MODES):
    size = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    blank = Image.new(draw(st.sampled_from(modes)), size)
    count = len(blank.tobytes())
    return Image.frombytes(blank.mode, size, draw(st.binary(min_size=count, max_size=count)))


def alike(a, b):
    return (a.mode, a.size, a.tobytes()) == (b.mode, b.size, b.tobytes())


LIST_OF_ONE = make("encoding", "list[pil]"), lambda one: [one]


class OneImage(EncodingTests):
    def equal(self, a, b):
        return alike(a, b)


class TestPIL(OneImage):
    spec = "pil"
    wrong = (*NOT_IMAGES, b"bytes")
    golden = (
        (image, "020000000100000003000000524742000102030405"),
        (lambda: Image.new("I;16", (1, 1), 258), "010000000100000004000000493b31360201"),
        (lambda: Image.new("1", (9, 1), 1), "09000000010000000100000031ff80"),
        (lambda: Image.new("L", (0, 3)), "0000000003000000010000004c"),
    )

    def values(self):
        return images()

    def test_colours_that_it_does_not_store_are_refused(self):
        colours = noise().quantize(8)
        clear = colours.copy()
        clear.info["transparency"] = 3
        key = noise()
        key.info["transparency"] = key.getpixel((2, 3))
        grey = noise().convert("L")
        grey.info["transparency"] = grey.getpixel((2, 3))
        for encoding, value in ((make("encoding", "pil"), lambda one: one), LIST_OF_ONE):
            for image in (colours, clear, colours.convert("PA"), key, grey):
                with pytest.raises(EncodeError, match=rf"mode {image.mode} .*convert\('RGB'\)"):
                    encoding.encode(value(image))
                png = make("encoding", "png")
                if image.mode != "PA":
                    stored = png.decode(memoryview(png.encode(image)))
                    assert stored.convert("RGBA").tobytes() == image.convert("RGBA").tobytes()
        for rest in (colours.convert("RGB"), clear.convert("RGBA"), key.convert("RGBA")):
            assert alike(encoding.decode(memoryview(encoding.encode([rest])))[0], rest)

    def test_numbers_without_colours_of_their_own_are_stored(self):
        encoding = make("encoding", "pil")
        mask = Image.frombytes("P", (3, 2), bytes(range(6)))
        stored = encoding.decode(memoryview(encoding.encode(mask)))
        assert alike(stored, mask)
        unused = noise()
        unused.info["transparency"] = (255, 0, 0)  # which no grey pixel has
        assert alike(encoding.decode(memoryview(encoding.encode(unused))), unused)

    @pytest.mark.parametrize("mode", Image.MODES)
    def test_every_mode_round_trips(self, mode):
        encoding = make("encoding", "pil")
        picture = Image.new(mode, (11, 3))
        decoded = encoding.decode(memoryview(encoding.encode(picture)))
        assert alike(decoded, picture)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "header of 12 bytes, got 0"),
            (struct.pack("<III", 1, 1, 3) + b"XYZ" + bytes(3), "no image has mode 'XYZ'"),
            (struct.pack("<III", 1, 1, 1 << 31) + b"RGB" + bytes(3), "no image has mode"),
            (struct.pack("<III", 1, 1, 1) + b"\xff\0", "no image has mode"),
            (struct.pack("<III", 2, 2, 1) + b"L" + bytes(3), "2 x 2 pixels has 4 bytes, got 3"),
            (struct.pack("<III", 2, 2, 1) + b"L" + bytes(5), "2 x 2 pixels has 4 bytes, got 5"),
            (struct.pack("<III", 9, 1, 1) + b"1" + bytes(1), "9 x 1 pixels has 2 bytes, got 1"),
            (struct.pack("<III", (1 << 32) - 1, (1 << 32) - 1, 4) + b"RGBA" + bytes(9), "got 9"),
            (struct.pack("<III", 0, (1 << 32) - 1, 1) + b"L", "has 0 bytes, got 0"),
        ],
    )
    def test_damaged_image_is_refused(self, data, reason):
        with pytest.raises(DecodeError, match=reason):
            make("encoding", "pil").decode(memoryview(data))


class TestPNG(OneImage):
    spec = "png"
    wrong = NOT_IMAGES
    refused = (b"", b"\xff\xd8\xff jpeg", b"raw", Image.new("CMYK", (1, 1)))

    def values(self):
        return images(("1", "L", "LA", "RGB", "RGBA"))

    def test_file_is_what_pillow_makes(self):
        assert make("encoding", "png").encode(noise((4, 4))).startswith(b"\x89PNG\r\n\x1a\n")
        picture = noise()
        assert make("encoding", "png").encode(picture) == file_of(picture, "PNG")

    def test_bytes_are_stored_as_they_are(self):
        data = file_of(noise(), "PNG", compress_level=1)
        assert make("encoding", "png").encode(memoryview(data)) == data


class TestJPEG(OneImage):
    spec = "jpeg"
    wrong = NOT_IMAGES
    refused = (b"", b"\x89PNG\r\n\x1a\n", b"raw", Image.new("RGBA", (1, 1)))

    def values(self):
        return images(("L", "RGB"))

    def decoded(self, value):
        return Image.open(BytesIO(file_of(value, "JPEG")))

    def test_file_is_what_pillow_makes(self):
        picture = noise()
        assert make("encoding", "jpeg").encode(picture) == file_of(picture, "JPEG")

    def test_bytes_are_stored_as_they_are(self):
        data = file_of(noise(), "JPEG", quality=11)
        assert make("encoding", "jpeg").encode(bytearray(data)) == data

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "ä.jpg"
        noise().save(path, quality=33)
        return path

    @pytest.mark.parametrize("kind", [str, bytes, lambda path: path], ids=["str", "bytes", "Path"])
    @pytest.mark.parametrize("read", [False, True])
    def test_opened_file_is_stored_as_it_is(self, path, read, kind):
        with Image.open(bytes(path) if kind is bytes else kind(path)) as picture:
            if read:
                picture.load()
            assert make("encoding", "jpeg").encode(picture) == path.read_bytes()

    def test_image_drawn_on_is_stored_as_it_is_now(self, path):
        with Image.open(path) as picture:
            ImageDraw.Draw(picture).rectangle((0, 0, 9, 9), "red")
            stored = make("encoding", "jpeg").encode(picture)
        assert stored == file_of(picture, "JPEG") != path.read_bytes()

    def test_image_made_smaller_is_stored_as_it_is_now(self, path):
        with Image.open(path) as picture:
            picture.thumbnail((5, 5))
            stored = make("encoding", "jpeg").encode(picture)
        assert Image.open(BytesIO(stored)).size == picture.size != (20, 10)

    def test_image_reduced_while_it_is_read_is_stored_as_it_is_now(self, path):
        noise((64, 48)).save(path)
        with Image.open(path) as picture:
            picture.draft("L", (16, 12))
            stored = make("encoding", "jpeg").encode(picture)
        result = Image.open(BytesIO(stored))
        assert (result.mode, result.size) == (picture.mode, picture.size) == ("L", (16, 12))

    def test_another_frame_of_a_file_is_stored_as_it_is(self, path):
        first, second = Image.new("RGB", (20, 10), "black"), Image.new("RGB", (20, 10), "white")
        first.save(path, "MPO", save_all=True, append_images=[second])
        with Image.open(path) as picture:
            assert make("encoding", "jpeg").encode(picture) == path.read_bytes()
            picture.seek(1)
            stored = make("encoding", "jpeg").encode(picture)
        assert min(Image.open(BytesIO(stored)).convert("L").tobytes()) > 250

    def test_image_whose_file_is_gone_is_compressed_anew(self, path):
        with Image.open(path) as picture:
            picture.load()
        path.unlink()
        assert make("encoding", "jpeg").encode(picture) == file_of(picture, "JPEG")

    def test_image_whose_file_was_replaced_is_compressed_anew(self, path):
        with Image.open(path) as picture:
            picture.load()
        path.write_bytes(b"another")
        assert make("encoding", "jpeg").encode(picture) == file_of(picture, "JPEG")

    def test_decoded_image_tells_its_format_and_size_before_it_is_read(self):
        decoded = make("encoding", "jpeg").decode(memoryview(file_of(noise((64, 64)), "JPEG")))
        assert (decoded.format, decoded.size) == ("JPEG", (64, 64))
        decoded.draft(None, (8, 8))
        decoded.load()
        assert decoded.size == (8, 8)


@pytest.mark.parametrize("spec", ["jpeg", "png"])
class TestOtherFiles:
    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"])
    def test_files_that_another_writer_put_there_are_read(self, spec, kind):
        decoded = make("encoding", spec).decode(memoryview(file_of(noise(), kind)))
        assert (decoded.format, decoded.size) == (kind, (20, 10))

    @pytest.mark.parametrize("kind", ["EPS", "SGI", "PDF"])
    def test_files_beyond_these_are_refused(self, spec, kind):
        with pytest.raises(DecodeError, match="not an image"):
            make("encoding", spec).decode(memoryview(file_of(noise(), kind)))

    def test_decompression_bomb_is_refused(self, spec, monkeypatch):
        data = file_of(Image.new("L", (100, 100)), "PNG")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
        with pytest.raises(DecodeError, match="DecompressionBombError"):
            make("encoding", spec).decode(memoryview(data))

    @pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"text"])
    def test_what_is_no_file_is_refused(self, spec, data):
        with pytest.raises(DecodeError):
            make("encoding", spec).decode(memoryview(data))


class Images(EncodingTests):
    wrong = (5, "text", None, b"bytes", Image.new("L", (1, 1)))
    refused = ([5], [Image.new("L", (1, 1)), "text"])

    def values(self):
        return st.lists(images(("L", "RGB")), max_size=3)

    def equal(self, a, b):
        return len(a) == len(b) and all(map(alike, a, b))

    def test_empty_list_round_trips(self):
        encoding = make("encoding", self.spec)
        assert encoding.decode(memoryview(encoding.encode([]))) == []

    def test_damaged_list_is_refused(self):
        encoding = make("encoding", self.spec)
        stored = encoding.encode([image(), image()])
        head = stored.index(b"\x02\0\0\0")
        for data, reason in [
            (b"", "has at least"),
            (stored[: head + 3], "has at least"),
            (stored[:head] + b"\xff\xff\xff\xff" + stored[head + 4 :], "cannot hold 4294967295"),
            (stored[: head + 8], "cannot hold 2 images"),
            (stored[: head + 4] + b"\xff\xff\xff\xff" + stored[head + 8 :], "images of 429496"),
            (stored[:-1], "in a list of"),
            (stored + b"\0", "in a list of"),
        ]:
            with pytest.raises(DecodeError, match=reason):
                encoding.decode(memoryview(data))


class TestListPIL(Images):
    spec = "list[pil]"
    golden = (
        (list, "0000000000000000"),
        (
            lambda: [image(), Image.new("L", (1, 1), 7)],
            (
                "0000000002000000150000000e000000"
                "020000000100000003000000524742000102030405"
                "0100000001000000010000004c07"
            ),
        ),
    )


class TestListPNG(Images):
    spec = "list[png]"
    golden = ((list, "0000000000000000"),)


class Lossy(Images):
    def decoded(self, value):
        return [Image.open(BytesIO(file_of(picture, "JPEG"))) for picture in value]


class TestListJPEG(Lossy):
    spec = "list[jpeg]"
    golden = ((list, "0000000000000000"),)


class TestJPEGArray(Lossy):
    spec = "jpeg_array"
    golden = ((list, "00000000"),)

    def test_files_are_stored_as_they_are(self):
        first, second = (file_of(noise(), "JPEG", quality=quality) for quality in (10, 90))
        stored = make("encoding", "jpegarray").encode([first, bytearray(second)])
        assert stored == struct.pack("<III", 2, len(first), len(second)) + first + second

    def test_alias_is_the_same(self):
        assert resolve("encoding", "jpegarray") is resolve("encoding", "jpeg_array")


@pytest.mark.parametrize("mode", ["RGBA", "I"])
def test_refusal_says_what_to_do(mode):
    with pytest.raises(EncodeError, match=rf"mode {mode} .*cannot be JPEG.*convert\('RGB'\)"):
        make("encoding", "jpeg").encode(Image.new(mode, (1, 1)))


@pytest.mark.parametrize(("kind", "spec"), [("PNG", "jpeg"), ("JPEG", "png"), ("JPEG", "pil")])
def test_damaged_images_are_not_told_to_be_converted(kind, spec, tmp_path):
    file = file_of(noise((64, 64)), kind)
    path = tmp_path / "half"
    path.write_bytes(file[: len(file) // 2])
    with Image.open(path) as image, pytest.raises(EncodeError) as caught:
        make("encoding", spec).encode(image)
    assert f"the pixels of the image of {path} cannot be read: OSError" in str(caught.value)
    assert "convert" not in str(caught.value)


@pytest.mark.parametrize("spec", ["jpeg", "png"])
def test_empty_files_are_called_empty(spec):
    with pytest.raises(EncodeError, match=f"not a {spec.upper()} file: it is empty"):
        make("encoding", spec).encode(b"")
    with pytest.raises(DecodeError, match=r"not an image .*: it is empty"):
        make("encoding", spec).decode(memoryview(b""))
