"""The tables that data sets show in notebooks, in a page as narrow as a telephone."""

from __future__ import annotations

from streamplug import MDSWriter, Stream
from streamplug.dataset import StreamingDataset

NAME = "'\"><img src=x onerror=window.hit=1><script>window.hit=1<"


def test_tables_show_hostile_names_as_text(open_page, tmp_path):
    folder = tmp_path / NAME
    with MDSWriter(columns={"n": "int"}, out=folder) as out:
        out.write({"n": 1})
    data = StreamingDataset(streams=[Stream(local=str(folder)), Stream(local=str(folder))])
    path = tmp_path / "notebook.html"
    tables = data._repr_html_() + data.streams[0]._repr_html_()
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{tables}", "utf-8")
    for width in (360, 1280):
        page = open_page(path, width=width)
        assert page.evaluate("window.hit") is None
        assert page.locator("img, script").count() == 0
        assert page.locator("div.streamplug").count() == 2
        assert page.inner_text("body").count(NAME) == 3
        assert page.locator("tbody tr").first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
