"""The pages of these tests are watched."""

from __future__ import annotations

import pytest

PAGE = "<!doctype html><title>t</title><h1>Here</h1>"


@pytest.mark.parametrize(
    ("more", "trouble"),
    [
        ("<script>console.error('bad')</script>", "console: bad"),
        ("<script>throw new Error('bad')</script>", "error: bad"),
        ("<img src=http://elsewhere.example/x.png>", "asks http://elsewhere.example/x.png"),
        ("<script>new WebSocket('ws://elsewhere.example')</script>", "asks ws://elsewhere.example"),
        ("<script>fetch('http://192.0.2.1/').catch(() => 0)</script>", "asks http://192.0.2.1/"),
    ],
)
def test_troubles_of_a_page_are_reported(open_page, troubles, tmp_path, more, trouble):
    path = tmp_path / "page.html"
    path.write_text(PAGE + more)
    page = open_page(path)
    page.wait_for_load_state("networkidle")
    assert [each for each in troubles if each.startswith(trouble)]
    page.context.close()
    troubles.clear()


def test_a_good_page_of_any_size_is_none(open_page, troubles, tmp_path):
    path = tmp_path / "a page.html"
    path.write_text(PAGE)
    for width in (360, 1280):
        page = open_page(str(path), width=width, height=700, color_scheme="dark")
        assert page.evaluate("[innerWidth, innerHeight]") == [width, 700]
        assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert page.inner_text("h1") == "Here"
    assert troubles == []
