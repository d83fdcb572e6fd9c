"""The page about a data set, as a browser shows it."""

from __future__ import annotations

import json
import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from streamplug_tools import page_about

from streamplug import MDSWriter

HOSTILE = [
    "<script>window.hit = 1</script>",
    "</script><script>window.hit = 1</script>",
    "</style><img src=x onerror='window.hit = 1'>",
    "\"'><img src=x onerror=window.hit=1>",
    "' onmouseover='window.hit = 1' x='",
    "javascript:window.hit=1",
    "<svg onload=window.hit=1><a href='javascript:window.hit=1'>x</a></svg>",
    "<!--<script>", "]]>", "&lt;script&gt;",
    "\0\x1b[31m\u202e\ud800", "data:text/html,<script>window.hit=1</script>",
    "<iframe src='http://elsewhere.example'></iframe>",
    "<meta http-equiv=refresh content='0;url=http://elsewhere.example'>",
    "<" * 100_000,
]  # fmt: skip
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hit=1'><script>window.hit=1</script></svg>"


def image(n, kind="JPEG", side=80):
    pixels = np.add.outer(np.arange(side), np.arange(2 * side)) * (n + 1) % 256
    out = BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, kind)
    return out.getvalue()


@pytest.fixture(scope="module")
def set_(tmp_path_factory):
    """A set of 400 samples in some forty shards."""
    out = tmp_path_factory.mktemp("sets") / "pictures"
    columns = {
        "image": "jpeg",
        "caption": "str",
        "label": "int",
        "tokens": "ndarray:uint16",
        "x": "bytes",
        "p": "pkl",
    }
    with MDSWriter(columns=columns, out=out, size_limit=100_000, compression="gz") as writer:
        for n in range(400):
            writer.write(
                {
                    "image": image(n % 8),
                    "caption": "a word " * (n % 90 + 1),
                    "label": n % 10,
                    "tokens": np.arange(n % 60 + 1, dtype=np.uint16),
                    "x": bytes([n % 256]) * 3000,
                    "p": {"n": n},
                }
            )
    return out


@pytest.fixture(scope="module")
def path(set_, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(page_about(set_, samples=4), "utf-8")
    return path


def test_the_page_shows_the_set(open_page, path):
    page = open_page(path)
    assert page.inner_text("h1") == "pictures"
    shown = page.inner_text("body")
    assert "not decoded, as that can run code" in shown
    assert page.locator("#samples tbody tr").count() == 4
    facts = dict(
        zip(
            page.locator(".facts dt").all_inner_texts(), page.locator(".facts dd").all_inner_texts()
        )
    )
    assert facts["samples"] == "400"
    assert facts["compression"] == "gz"
    assert page.locator(".cells li").count() == int(facts["shards"]) > 10
    pictures = page.locator(".pictures img")
    assert pictures.count() >= 8
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


def test_a_shard_tells_about_itself_by_mouse_and_keys(open_page, path):
    page = open_page(path)
    output = page.locator(".map output")
    page.locator(".cells li").nth(2).hover()
    assert re.match(
        r"Shard 2: shard\.00002\.mds · \d+ samples · .* stored, .* raw · gz$", output.inner_text()
    )
    page.locator(".cells").focus()
    page.keyboard.press("ArrowRight")
    assert output.inner_text().startswith("Shard 3: ")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert output.inner_text().startswith("Shard 1: ")
    assert page.locator(".cells li.on").count() == 1


def test_colours_follow_what_is_chosen(open_page, path):
    page = open_page(path)
    last = page.locator(".cells li").last

    def colours():
        return page.evaluate(
            "[...document.querySelectorAll('.cells li')].map(c => getComputedStyle(c).backgroundColor)"
        )

    before = colours()
    assert len(set(before)) > 1  # the last shard is smaller
    page.get_by_role("button", name="stored ÷ raw").click()
    assert page.locator("[data-by=packed]").get_attribute("aria-pressed") == "true"
    assert page.locator("[data-by=stored]").get_attribute("aria-pressed") == "false"
    assert last.get_attribute("data-level") == last.get_attribute("data-packed")
    assert page.locator(".scale [data-for=packed]").is_visible()
    assert not page.locator(".scale [data-for=stored]").is_visible()
    page.get_by_role("button", name="stored bytes").click()
    assert colours() == before


def test_a_bar_of_a_chart_tells_about_itself(open_page, path):
    page = open_page(path)
    tokens = page.locator("article", has=page.get_by_role("heading", name="tokens"))
    chart = tokens.locator(".chart").last
    assert "Length" in chart.inner_text()
    chart.locator("g").first.hover()
    assert re.match(r"1 to \d+: \d+ values$", chart.locator("output").inner_text())
    chart.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    assert re.match(r"\d+ to \d+: \d+ values$", chart.locator("output").inner_text())


def test_taps_tell_as_well_on_a_phone_and_nothing_is_wider_than_it(open_page, path):
    page = open_page(path, width=360, height=740, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".cells li").nth(4).tap()
    assert page.locator(".map output").inner_text().startswith("Shard 4: ")
    assert page.evaluate(
        "[...document.querySelectorAll('main *, header *, nav a')].every(e => {"
        " const box = e.getBoundingClientRect(); return box.left >= 0 && box.right <= 360.5 })"
    )
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, dd, td, a, button, small')]"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(open_page, path, scheme):
    page = open_page(path, color_scheme=scheme)
    ground, *inks = page.evaluate(
        """() => {
            const luminance = (colour) => {
                const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => {
                    const share = v / 255;
                    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
                });
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const of = (query) => getComputedStyle(document.querySelector(query)).color;
            const body = getComputedStyle(document.body).backgroundColor;
            return [body, of("h1"), of(".where"), of("nav a"), of(".notes li")].map(luminance);
        }"""
    )
    assert (ground > 0.8) if scheme == "light" else (ground < 0.05)
    for ink in inks:
        light, dark = max(ground, ink), min(ground, ink)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.fixture
def hostile(tmp_path):
    """A set with hostile names, values, files and folders."""
    out = tmp_path / "\"'><img src=x onerror=window.hit=1>"
    names = [name for name in HOSTILE if len(name) < 100 and "\ud800" not in name]
    columns = dict.fromkeys(names, "str") | {
        "svg": "bytes",
        "image": "bytes",
        "broken": "jpeg",
        "gif": "bytes",
        "js": "json",
        "p": "pkl",
    }
    with MDSWriter(columns=columns, out=out) as writer:
        for text in HOSTILE:
            value = text.encode("utf-8", "replace").decode()
            writer.write(
                dict.fromkeys(names, value)
                | {
                    "svg": SVG,
                    "image": image(1, "PNG"),
                    "broken": image(1)[:90],
                    "gif": b"GIF89a" + text.encode("utf-8", "replace")[:50],
                    "js": {value[:50]: [value]},
                    "p": {},
                }
            )
    bad = "\"'><img src=x onerror=window.hit=1>.mds"
    (out / "shard.00000.mds").rename(out / bad)
    index = json.loads((out / "index.json").read_text())
    index["shards"][0]["raw_data"]["basename"] = bad
    (out / "index.json").write_text(json.dumps(index))
    return out


def test_nothing_of_hostile_data_runs(open_page, hostile, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page_about(hostile, samples=20), "utf-8")
    assert path.stat().st_size < 2_000_000
    page = open_page(path)
    page.locator(".cells li").first.hover()
    assert "onerror" in page.locator(".map output").inner_text()  # as text
    for each in page.locator("td, dd, figure").all()[:40]:
        each.hover(force=True)
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.scripts.length") == 1
    assert (
        page.evaluate("document.querySelectorAll('iframe, object, embed, form, base, link').length")
        == 0
    )
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
            ".filter(n => n.startsWith('on') || n === 'style')"
        )
        == []
    )
    assert page.evaluate(
        "[...document.querySelectorAll('[href]')].every(a => a.getAttribute('href')[0] === '#')"
    )
    assert page.evaluate(
        "[...document.images].every(i => /^data:image\\/(png|jpeg);base64,/.test(i.src))"
    )
    assert page.locator("svg:not(.chart > svg)").count() == 0
    shown = page.inner_text("main")
    assert HOSTILE[0] in shown
    assert "cannot be decoded" in shown  # the broken image
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_script_that_came_in_all_the_same_would_not_run(open_page, troubles, path, tmp_path):
    text = path.read_text("utf-8").replace("<h1>", "<h1><img src=x onerror='window.hit=1'>", 1)
    other = tmp_path / "other.html"
    more = "<script>window.hit=1</script><img src='http://127.0.0.1:9/x.png'><style>body{display:none}</style>"
    other.write_text(text.replace("<footer>", f"<footer>{more}", 1), "utf-8")
    page = open_page(other)
    assert page.evaluate("window.hit") is None
    assert page.is_visible("h1")
    page.context.close()
    assert troubles
    assert all("Content Security Policy" in trouble for trouble in troubles), troubles
    troubles.clear()
