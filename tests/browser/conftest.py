"""Pages in the machine's own Chromium; `tox -c tests -e browser` has Playwright."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    # What a page asks of another host fails here, and is reported below.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
HERE = re.compile(r"(file|data|blob|about):|(http|ws)://127\.0\.0\.1[:/]")


@pytest.fixture(scope="session")
def chromium():
    """Return Chromium, begun with a profile of its own that goes with it."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("there is no chromium on PATH; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def troubles():
    """Return the list of what went wrong in the pages of a test, which must be empty when it ends.

    A test that expects some takes them out.
    """
    return []


@pytest.fixture
def open_page(chromium, troubles):
    """Return a function that opens a file or a URL in a new window and returns Playwright's page of it.

    When the test ends there must have been no error on the console, none that a script let through,
    and no request of anything but files, data and this machine.
    """
    contexts = []

    def report(what):
        troubles.append(what)

    def watch(context):
        context.on(
            "console",
            lambda m: report(f"console: {m.text} ({m.location})") if m.type == "error" else None,
        )
        context.on("weberror", lambda error: report(f"error: {error.error}"))
        context.on("request", lambda r: None if HERE.match(r.url) else report(f"asks {r.url}"))
        context.on(
            "page",
            lambda page: page.on(
                "websocket", lambda s: None if HERE.match(s.url) else report(f"asks {s.url}")
            ),
        )

    def open_page(path_or_url, *, width=1280, height=800, **context):
        """Open it.

        Args:
            path_or_url: Path of a file, or a URL.
            width: Of the window, in pixels.
            height: Likewise.
            context: More for `Browser.new_context`, such as ``color_scheme="dark"``.
        """
        url = str(path_or_url)
        if not re.match(r"[a-z]+:", url):
            url = Path(url).resolve().as_uri()
        viewport = {"width": width, "height": height}
        contexts.append(chromium.new_context(viewport=viewport, **context))
        watch(contexts[-1])
        page = contexts[-1].new_page()
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            page.evaluate("0")  # what it has told until now has arrived with the answer
        context.close()
    assert troubles == []
