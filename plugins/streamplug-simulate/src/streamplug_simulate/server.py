"""The page of a simulation on this machine, where what is changed is simulated at once."""

from __future__ import annotations

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import click

from streamplug.errors import StreamplugError
from streamplug.plugin.registry import names_of
from streamplug_simulate import Assumed, Planned
from streamplug_simulate.arguments import told
from streamplug_simulate.page import page
from streamplug_simulate.variants import choices, shown

_LONGEST = 2000
"""Characters of a query."""


class PageServer(ThreadingHTTPServer):
    """Serves the page, and runs that it asks for.

    Attributes:
        url: Its address.
    """

    daemon_threads = True

    def __init__(self, plan: Planned, assumed: Assumed, port: int, needs: int) -> None:
        """Listen on this machine alone; port 0 is any that is free."""
        super().__init__(("127.0.0.1", port), _Handler)
        self._plan, self._assumed, self._needs = plan, assumed, needs
        self._offered = choices(plan, assumed)
        self._one = Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def page(self) -> str:
        """Return the page."""
        first = {"": self.run({})}
        names = dict.fromkeys([self._assumed.shuffle or "none", *names_of("shuffle")])
        return page(self._plan, self._assumed, self._offered, first, shuffles=list(names))

    def run(self, texts: dict[str, str]) -> dict[str, Any]:
        """Return what the page shows of a run of which some settings were changed."""
        try:
            changed = told(texts)
            if changed.get("shuffle") == "none":
                changed["shuffle"] = None
            with self._one:  # a data set is not made for several threads
                return shown(self._plan, replace(self._assumed, **changed), self._needs)
        except StreamplugError as error:
            return {"error": str(error)}


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        # Another site's name may lead here; a page of it must not read what this one says.
        if self.headers.get("Host") not in self._names() or len(asked.query) > _LONGEST:
            self.send_error(403)
        elif asked.path == "/":
            self._send("text/html", self.server.page())
        elif asked.path == "/run":
            found = self.server.run(dict(parse_qsl(asked.query)))
            self._send("application/json", json.dumps(found, allow_nan=False))
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
        self.end_headers()
        self.wfile.write(data)


def serve_page(plan: Planned, assumed: Assumed, *, port: int, needs: int) -> None:
    """Serve the page until Ctrl-C, after telling its address."""
    with PageServer(plan, assumed, port, needs) as server:
        try:
            click.echo(f"{server.url}  (Ctrl-C to stop)")
            server.serve_forever(0.1)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
