"""HTTP server of the page, which simulates changed settings."""

from __future__ import annotations

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from streamplug.display import say
from streamplug.errors import StreamplugError
from streamplug.plugin import list_names
from streamplug_simulate import Scenario, SimulatedDataset
from streamplug_simulate.arguments import parse_arguments
from streamplug_simulate.page import page
from streamplug_simulate.variants import offer_choices, simulate_for_page

_MAX_QUERY_CHARS = 2000


class PageServer(ThreadingHTTPServer):
    """Server of the page and of the runs that it requests.

    Attributes:
        url: Address of the page.
    """

    daemon_threads = True

    def __init__(self, plan: SimulatedDataset, scenario: Scenario, port: int, needs: int) -> None:
        """Listen on 127.0.0.1; port 0 is any free port."""
        super().__init__(("127.0.0.1", port), _PageHandler)
        self._plan, self._scenario, self._needs = plan, scenario, needs
        self._offered = offer_choices(plan, scenario)
        self._one = Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def page(self) -> str:
        """Return the page."""
        first = {"": self.run({})}
        names = dict.fromkeys([self._scenario.shuffle or "none", *list_names("shuffle")])
        return page(self._plan, self._scenario, self._offered, first, shuffles=list(names))

    def run(self, texts: dict[str, str]) -> dict[str, Any]:
        """Return page data of a run with changed settings."""
        try:
            changed = parse_arguments(texts)
            if changed.get("shuffle") == "none":
                changed["shuffle"] = None
            with self._one:  # data sets are not thread-safe
                return simulate_for_page(
                    self._plan, replace(self._scenario, **changed), self._needs
                )
        except StreamplugError as error:
            return {"error": str(error)}


class _PageHandler(BaseHTTPRequestHandler):
    server: PageServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        # DNS rebinding: a page of another site must not read this one.
        is_foreign = self.headers.get("Host") not in self._names()
        # Nor may it start runs, by a link or an image.
        if url.path != "/" and self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            is_foreign = True
        if is_foreign or len(url.query) > _MAX_QUERY_CHARS:
            self.send_error(403)
        elif url.path == "/":
            self._send("text/html", self.server.page())
        elif url.path == "/run":
            page_data = self.server.run(dict(parse_qsl(url.query)))
            self._send("application/json", json.dumps(page_data, allow_nan=False))
        else:
            self.send_error(404)

    def _names(self) -> tuple[str, ...]:
        return f"127.0.0.1:{self.server.server_port}", f"localhost:{self.server.server_port}"

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(data)


def serve_page(plan: SimulatedDataset, scenario: Scenario, *, port: int, needs: int) -> None:
    """Print the address and serve the page until Ctrl-C."""
    with PageServer(plan, scenario, port, needs) as server:
        try:
            say(f"{server.url}  (Ctrl-C to stop)")
            server.serve_forever(0.1)
        except KeyboardInterrupt:
            say("stopped", err=True)
