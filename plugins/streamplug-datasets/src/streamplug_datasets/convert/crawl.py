"""Fetches what lists of URLs lead to: much of it is gone, slow, or not what it should be."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

import click
from streamplug_fsspec import RETRYABLE_STATUSES

from streamplug.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])
_CHUNK = 1 << 16
_AGENT = "streamplug-datasets"
_REDIRECTS = 5


class Crawl(NamedTuple):
    """How to fetch.

    Attributes:
        threads: How many at once.
        timeout: Seconds to wait for a connection, and for more bytes.
        deadline: Seconds that the content may take to arrive.
        retries: How often to try again what may succeed.
        max_bytes: Larger ones are not fetched to their end.
        allow_private: Whether to fetch from addresses that are not public, such as 127.0.0.1.
    """

    threads: int
    timeout: float
    deadline: float
    retries: int
    max_bytes: int
    allow_private: bool = False


class Failed(Exception):
    """Something could not be fetched.

    Attributes:
        kind: Why, for counting.
        passing: Whether it may succeed next time.
    """

    def __init__(self, kind: str, message: str = "", *, passing: bool = False) -> None:
        super().__init__(message or kind)
        self.kind, self.passing = kind, passing


def options(command: F) -> F:
    """Add the options of commands that fetch."""
    for option in (
        click.option("--threads", type=click.IntRange(1), default=32, show_default=True,
                     help="How many URLs each process fetches at once."),
        click.option("--timeout", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True,
                     help="Seconds to wait for a connection, and for more bytes."),
        click.option("--deadline", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True,
                     help="Seconds that the content may take to arrive."),
        click.option("--retries", type=click.IntRange(0), default=2, show_default=True,
                     help="How often to try again after a timeout, a lost connection, or a busy server."),
        click.option("--max-failed", type=click.FloatRange(0, 1), default=0.9, show_default=True,
                     help="Stop if more than this part of a part's URLs cannot be had."),
        click.option("--allow-private", is_flag=True,
                     help="Also fetch from addresses that are not public, such as those of this network."),
    ):  # fmt: skip
        command = option(command)
    return command


def check_installed() -> None:
    """Check that there is what it takes to fetch.

    Raises:
        ConfigError: If there is not.
    """
    try:
        import requests
        import tenacity  # noqa: F401 - needed further down
    except ImportError as error:
        raise ConfigError(
            "fetching needs requests and tenacity: pip install 'streamplug-datasets[crawl]'"
        ) from error
    del requests


def fetch_all(urls: Iterable[str], crawl: Crawl) -> Generator[bytes | Failed, None, None]:
    """Yield the content of URLs, in their order, or the reason of a failure; to be closed."""
    fetcher = _Fetcher(crawl)
    ahead: deque[Future[bytes | Failed]] = deque()
    pool = ThreadPoolExecutor(crawl.threads, thread_name_prefix="crawl")
    try:
        for url in urls:
            ahead.append(pool.submit(fetcher.fetch, url))
            if len(ahead) == 2 * crawl.threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        fetcher.close()


class _Fetcher:
    """Fetches one at a time in each thread."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl, self._local = crawl, threading.local()
        self._sessions: list[Any] = []

    def fetch(self, url: str) -> bytes | Failed:
        """Return the content of a URL, or the reason of the failure."""
        import tenacity

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda e: isinstance(e, Failed) and e.passing),
            stop=tenacity.stop_after_attempt(self._crawl.retries + 1),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=30),
            reraise=True,
        )
        try:
            _check_scheme(url)
            data: bytes = attempts(self._fetch, url)
        except Failed as failed:
            return failed
        except ValueError as error:  # no URL at all
            return Failed("bad URL", str(error))
        return data

    def _fetch(self, url: str) -> bytes:
        import requests
        import urllib3

        try:
            # requests would follow by itself, but reads all of an answer that leads elsewhere, however long.
            for _ in range(_REDIRECTS + 1):
                result = self._step(url)
                if isinstance(result, bytes):
                    return result
                url = urljoin(url, result)
                _check_scheme(url)
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _failed(error) from error
        raise Failed("redirects", f"more than {_REDIRECTS}")

    def _step(self, url: str) -> bytes | str:
        """Return what a URL leads to, or to which other one."""
        session, timeout = self._session(), self._crawl.timeout
        with session.get(
            url, stream=True, timeout=(timeout, timeout), allow_redirects=False
        ) as answer:
            if target := session.get_redirect_target(answer):
                return str(target)
            if answer.status_code != 200:
                kind = f"status {answer.status_code}"
                raise Failed(kind, passing=answer.status_code in RETRYABLE_STATUSES)
            return self._read(answer.raw)

    def _read(self, raw: Any) -> bytes:
        data = bytearray()
        end = time.monotonic() + self._crawl.deadline
        # What has arrived, be it a byte: who waits for a whole chunk of a slow server does not see the time.
        while chunk := raw.read1(_CHUNK, decode_content=True):
            data += chunk
            if len(data) > self._crawl.max_bytes:
                raise Failed("too large", f"more than {self._crawl.max_bytes:,} bytes")
            if len(data) > len(chunk) and time.monotonic() > end:  # what comes at once is not late
                raise Failed("timeout", f"not done after {self._crawl.deadline:g} s", passing=True)
        if not data:
            raise Failed("empty")
        return bytes(data)

    def _session(self) -> Any:
        """Return this thread's session, which keeps no cookies."""
        session = getattr(self._local, "session", None)
        if session is None:
            import requests

            from streamplug_datasets.convert.public_addresses import PublicAdapter

            session = self._local.session = requests.Session()
            if not self._crawl.allow_private:
                for prefix in ("http://", "https://"):
                    session.mount(prefix, PublicAdapter())
            session.headers.update({"User-Agent": _AGENT, "Accept-Encoding": "identity"})
            session.auth = _nobody
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
            self._sessions.append(session)
        return session

    def close(self) -> None:
        for session in self._sessions:
            session.close()


def _nobody(request: Any) -> Any:
    """Send no credentials: requests would look for some of the URL's host in ~/.netrc."""
    return request


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise Failed("not http", f"{url:.200}")


def _failed(error: Exception) -> Failed:
    import requests
    import urllib3

    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return Failed("timeout", str(error), passing=True)
    if isinstance(error, requests.exceptions.InvalidURL):
        return Failed("bad URL", str(error))
    return Failed("connection", str(error), passing=True)
