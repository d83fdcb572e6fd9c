"""The page of a simulation as a browser shows it: as a file, and with a server."""

from __future__ import annotations

import threading

import pytest
from click.testing import CliRunner
from streamplug_simulate import open_dataset
from streamplug_simulate.server import PageServer
from streamplug_simulate.variants import PAGE_MAX_NEEDS

from streamplug import MDSWriter
from streamplug.cli import main

PLOTS = ("fetched", "waits", "held", "moved")
OPTIONS = {
    "batch_size": 10, "nodes": 2, "shuffle": "window", "block_size": 60,
    "bandwidth": 300_000, "step_seconds": 0.05, "price": 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("far") / "a set & <b>more</b>"
    with MDSWriter(out=out, columns={"n": "int", "b": "bytes"}, size_limit=20_000) as writer:
        for n in range(300):
            writer.write({"n": n, "b": bytes(1500)})
    return out


@pytest.fixture(scope="module")
def as_file(written):
    path = written.parent / "run.html"
    names = {"step_seconds": "step-time"}
    options = [
        text
        for name, value in OPTIONS.items()
        for text in (f"--{names.get(name, name).replace('_', '-')}", str(value))
    ]
    done = CliRunner().invoke(main, ["simulate", str(written), *options, "--html", str(path)])
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def served(written):
    config = {"remote": str(written)}
    with (
        open_dataset(config) as plan,
        PageServer(plan, plan.scenario(**OPTIONS), 0, PAGE_MAX_NEEDS) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


@pytest.fixture(params=["file", "server"])
def place(request):
    return request.getfixturevalue("as_file" if request.param == "file" else "served")


def drawn(page):
    return {name: page.inner_html(f"#{name}") for name in PLOTS}


def tiles(page):
    return page.locator(".tile").all_inner_texts()


def change(page, name, value):
    """Give a control another value: the number of the choice in a file, a text with a server."""
    before = drawn(page) | {"tiles": tiles(page)}
    control = page.locator(f"#set-{name}")
    if control.evaluate("each => each.tagName") == "SELECT":
        control.select_option(value)
    else:
        control.fill(value)
        control.press("Tab")
    page.wait_for_function("() => !document.body.hasAttribute('aria-busy')")
    return before


NEW = {
    "shuffle": ("2", "global"),
    "block_size": ("1", "5"),
    "nodes": ("1", "4"),
    "predownload": ("1", "80"),
    "cache_limit": ("1", "100kb"),
    "bandwidth": ("1", "100kb"),
    "step_seconds": ("2", "0.5"),
}
"""For each control, what to choose in the file, and to write with the server."""


@pytest.mark.parametrize("name", NEW)
def test_every_control_changes_the_plots(open_page, place, name):
    page = open_page(place)
    value = NEW[name][str(place).startswith("http")]
    if name == "shuffle" and value == "2":
        assert page.locator("#set-shuffle option").all_inner_texts() == ["window", "none", "global"]
    before = change(page, name, value)
    after = drawn(page) | {"tiles": tiles(page)}
    assert after != before
    assert page.is_hidden("#error")
    page.click("#reset")
    page.wait_for_function("() => !document.body.hasAttribute('aria-busy')")
    assert drawn(page) | {"tiles": tiles(page)} == before


def test_canonical_nodes_change_the_order(open_page, place):
    page = open_page(place)
    before = change(page, "canonical_nodes", "1" if str(place).endswith("html") else "8")
    assert drawn(page)["moved"] != before["moved"]


def test_the_block_size_is_offered_where_the_shuffle_uses_it(open_page, place):
    page = open_page(place)
    is_file = str(place).endswith("html")
    first = page.locator("#set-block_size").input_value()
    change(page, "block_size", "1" if is_file else "5")
    change(page, "shuffle", "2" if is_file else "global")
    assert page.is_hidden("#set-block_size")
    assert page.is_hidden("#error")
    change(page, "shuffle", "0" if is_file else "window")
    assert page.is_visible("#set-block_size")
    assert page.locator("#set-block_size").input_value() == first


def test_a_file_offers_what_it_holds(open_page, as_file):
    page = open_page(as_file)
    for name in ("nodes", "bandwidth"):
        assert not page.locator("#set-shuffle").is_disabled()
        change(page, name, "1")
    assert page.locator("#set-shuffle").is_disabled()
    assert "reset one" in page.inner_text("#rule")
    page.locator("#set-nodes").select_option("2")
    page.locator("#set-nodes").select_option("0")
    assert not page.locator("#set-shuffle").is_disabled()


def test_a_server_says_what_is_wrong(open_page, served):
    page = open_page(served)
    before = drawn(page)
    change(page, "cache_limit", "7")
    assert "one shard alone takes" in page.inner_text("#error")
    assert drawn(page) == before
    change(page, "cache_limit", "none")
    assert page.is_hidden("#error")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone(open_page, place, scheme):
    page = open_page(place, width=360, height=740, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for name in PLOTS:
        box = page.locator(f"#{name} > svg").bounding_box()
        assert 250 < box["width"] <= 340
        # As wide as its own units: text has the size that it was given.
        units = page.locator(f"#{name} > svg").get_attribute("viewBox").split()[2]
        assert abs(int(units) - box["width"]) <= 1
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function("() => document.querySelector('#fetched > svg').clientWidth > 400")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_text_stands_out_from_its_ground(open_page, as_file):
    contrast = """() => {
        const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const style = (place) => getComputedStyle(document.querySelector(place));
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const card = light(style('.tile').backgroundColor);
        return [ratio(light(style('.tile b').color), card), ratio(light(style('.tile span').color), card),
                ratio(light(style('#fetched text').fill), card), ratio(light(style('path.l0').stroke), card)];
    }"""
    for scheme in ("light", "dark"):
        page = open_page(as_file, color_scheme=scheme)
        assert min(page.evaluate(contrast)) >= 4.5


def test_all_that_can_be_changed_or_seen_has_a_name(open_page, place):
    page = open_page(place)
    for name in (*NEW, "canonical_nodes"):
        control = page.locator(f"#set-{name}")
        assert control.evaluate("each => each.labels.length") == 1
        assert control.evaluate("each => each.labels[0].innerText.trim().length") > 3
    labels = [page.locator(f"#{name} > svg").get_attribute("aria-label") for name in PLOTS]
    assert all("at most" in label for label in labels)
    for name in PLOTS:
        texts = page.locator(f"#{name} > svg text").all_text_contents()
        assert any(text.startswith(("time, ", "step", "share")) for text in texts)
        assert any(
            text.startswith(("downloaded", "wait, ", "cached, ", "moves less, ")) for text in texts
        )


def test_names_are_texts(open_page, place):
    page = open_page(place)
    assert page.locator("main b").count() == page.locator(".tile b").count()
    assert "<b>more</b>" in page.inner_text("#urls")
    assert "<b>more</b>" in page.title()
