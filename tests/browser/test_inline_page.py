"""The page about a data set inside a notebook, of which a page with styles of its own has the place."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from streamplug_tools import page_about

from streamplug import MDSWriter

STYLE = "h1, td { background: red !important } iframe { margin-top: 400px } body { height: 4000px }"


@pytest.fixture
def notebook(tmp_path):
    with MDSWriter(
        columns={"n": "int", "text": "str"}, out=tmp_path / "set", size_limit=900
    ) as out:
        for n in range(200):
            out.write({"n": n, "text": "a word " * (n % 30)})
    output = page_about(tmp_path / "set")._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{output}", "utf-8")
    return path


def test_styles_stay_inside_and_outside(open_page, notebook):
    page = open_page(notebook)
    heading = page.frame_locator("iframe").locator("h1")
    assert heading.inner_text() == "set"
    assert heading.evaluate("e => getComputedStyle(e).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.body).maxWidth") == "none"


def test_the_page_works_in_its_frame(open_page, notebook):
    page = open_page(notebook)
    frame = page.frame_locator("iframe")
    frame.locator(".cells li").nth(2).hover()
    assert frame.locator(".map output").inner_text().startswith("Shard 2: ")


def test_links_scroll_the_frame_and_not_the_notebook(open_page, notebook):
    page = open_page(notebook)
    frame = page.frame_locator("iframe")
    link, heading = frame.locator("nav a").last, frame.locator("#samples h2")
    link.hover()
    before = page.evaluate("scrollY")
    expect(heading).not_to_be_in_viewport()
    link.click()
    expect(heading).to_be_in_viewport()
    assert page.frames[1].url == "about:srcdoc"
    assert page.evaluate("scrollY") == before


def test_the_frame_fits_a_narrow_notebook(open_page, notebook):
    page = open_page(notebook, width=360)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
