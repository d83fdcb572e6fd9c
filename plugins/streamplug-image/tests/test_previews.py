from __future__ import annotations

from io import BytesIO

import pytest
from PIL import Image
from streamplug_tools.previews import preview

from streamplug.plugin.registry import make


def stored(kind, size=(400, 300), mode="RGB", **options):
    out = BytesIO()
    Image.new(mode, size, *([3] if mode == "P" else [])).save(out, kind, **options)
    return out.getvalue()


def open_job(thumbnail):
    return Image.open(BytesIO(thumbnail.data))


@pytest.mark.parametrize("encoding", ["jpeg", "png", "bytes"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF"])
def test_images_are_drawn_anew_and_small(encoding, kind):
    found = preview(make("encoding", encoding), stored(kind))
    (thumbnail,) = found.images
    assert thumbnail.about == f"400 × 300 {kind}"
    assert (thumbnail.type, open_job(thumbnail).format) == ("image/jpeg", "JPEG")
    assert (thumbnail.width, thumbnail.height) == open_job(thumbnail).size == (192, 144)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
def test_images_of_all_modes_are_shown(mode):
    encoding = make("encoding", "pil")
    found = preview(encoding, encoding.encode(Image.new(mode, (300, 200))))
    (thumbnail,) = found.images
    assert thumbnail.type == ("image/png" if mode in ("LA", "RGBA") else "image/jpeg")
    open_job(thumbnail).load()


def test_a_few_of_a_list_are_shown():
    encoding = make("encoding", "list[png]")
    found = preview(encoding, encoding.encode([Image.new("L", (8, 8))] * 5))
    assert (len(found.images), found.note) == (3, "5 images")


def test_an_image_that_is_only_told_of_is_not_drawn():
    found = preview(make("encoding", "jpeg"), stored("JPEG"), draw=False)
    assert (found.images, found.text) == ((), "400 × 300 JPEG")


def test_damaged_images_are_told_of():
    encoding = make("encoding", "jpeg")
    for data in (
        b"",
        b"\xff\xd8\xff",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        stored("JPEG")[:400],
    ):
        found = preview(encoding, data)
        assert found.images == ()
        assert found.note.startswith("cannot be decoded: ")


def test_what_only_begins_like_an_image_is_bytes():
    found = preview(make("encoding", "bytes"), b"\x89PNG\r\n\x1a\n" + bytes(9))
    assert (found.images, found.note, found.measure) == ((), "17 bytes", "length")


def test_huge_images_are_not_drawn(monkeypatch):
    monkeypatch.setattr("streamplug_tools.previews._MAX_PIXELS", 1000)
    found = preview(make("encoding", "png"), stored("PNG", (40, 40)))
    assert found.images == ()
    assert "too large" in found.note


def test_images_without_the_plugin_say_what_to_install(monkeypatch):
    from streamplug.errors import UnknownNameError

    def missing(kind, name):
        raise UnknownNameError("pip install streamplug-image")

    monkeypatch.setattr("streamplug_tools.previews.make", missing)
    found = preview(make("encoding", "bytes"), stored("PNG"))
    assert found.images == ()
    assert "pip install streamplug-image" in found.note
