from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import unescape

import numpy as np
import pytest
from streamplug_testing.http import serving
from streamplug_tools.report import page_about

from streamplug import MDSWriter, Stream


@pytest.fixture
def made(tmp_path):
    with MDSWriter(columns={"n": "int", "text": "str"}, out=tmp_path / "set") as out:
        for n in range(20):
            out.write({"n": n, "text": f"<b>{n}</b>"})
    return tmp_path / "set"


def test_a_page_allows_only_its_own_script_and_style(made):
    page = page_about(made)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    for name in ("script", "style"):
        (content,) = re.findall(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{name}-src &#x27;sha256-{digest}&#x27;" in policy
    assert "default-src &#x27;none&#x27;" in policy
    assert "unsafe" not in policy
    assert "<b>1</b>" not in page
    assert "&lt;b&gt;1&lt;/b&gt;" in page


def test_a_page_asks_nobody(made):
    page = page_about(made)
    assert not re.search(r"(src|href|url\()\W*(https?:|//)|@import", page)


def test_a_notebook_shows_the_page_in_a_frame(made):
    page = page_about(made)
    shown = page._repr_html_()
    (source,) = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts"[^>]*></iframe>', shown
    ).groups()
    assert unescape(source) == page
    assert "<b>1</b>" not in shown
    assert re.fullmatch(r"<InlinePage of [\d,]+ characters>", repr(page))


def test_with_no_samples_the_page_tells_what_the_index_says(made):
    page = page_about(made, samples=0, measured=0)
    assert 'id="shards"' in page
    assert 'id="columns"' not in page
    assert "&lt;b&gt;" not in page


def test_an_empty_set_has_a_page(tmp_path):
    with MDSWriter(columns={"n": "int"}, out=tmp_path / "empty"):
        pass
    page = page_about(tmp_path / "empty")
    assert "<dt>samples</dt><dd>0</dd>" in page


def test_shards_that_cannot_be_read_are_named(made):
    (made / "shard.00000.mds").write_bytes(b"x")
    page = page_about(made)
    assert 'id="failures"' in page
    assert "shard.00000.mds has 1 bytes" in page


def test_shards_of_several_kinds_are_told_apart(tmp_path):
    from streamplug_tools.merge import merge_index

    for name, spec in (("a", "int"), ("b", "int64")):
        with MDSWriter(columns={"x": spec}, out=tmp_path / name) as out:
            out.write({"x": 1})
    merge_index(str(tmp_path))
    page = page_about(tmp_path)
    assert "int, int64" in page
    assert "several kinds of shards" in page


def test_pickles_are_decoded_only_if_that_is_allowed(tmp_path):
    with MDSWriter(columns={"p": "pkl"}, out=tmp_path / "set") as out:
        out.write({"p": "what was pickled"})
    page = page_about(tmp_path / "set")
    assert "what was pickled" not in page
    assert "not decoded, as that can run code" in page
    assert "what was pickled" in page_about(tmp_path / "set", allow_unsafe_types=True)


def test_credentials_are_not_shown(made):
    with serving(made) as server:
        url = server.url.replace("//", "//me:secret@")
        page = page_about(Stream(remote=url))
        assert "&lt;b&gt;1&lt;/b&gt;" in page
        (made / "shard.00000.mds").unlink()
        without = page_about(Stream(remote=url, download_retry=0))
    assert 'id="failures"' in without
    assert "secret" not in page + without


def test_many_columns_and_long_names_have_a_limit(tmp_path):
    columns = {f"{n}-{'long' * 200}": "int8" for n in range(120)}
    with MDSWriter(columns=columns, out=tmp_path / "set") as out:
        out.write(dict.fromkeys(columns, np.int8(1)))
    page = page_about(tmp_path / "set")
    assert "20 more columns" in page
    assert len(page) < 500_000
