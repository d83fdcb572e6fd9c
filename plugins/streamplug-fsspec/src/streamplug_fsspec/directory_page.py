"""Links of the pages with which HTTP servers list a directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import unquote, urljoin, urlsplit

# Neither goes back over what it has passed: a page may be large.
_ANCHOR = re.compile(r"<a\s([^<>]*)", re.IGNORECASE)
_HREF = re.compile(r"""(?:^|\s)href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"']+))""", re.IGNORECASE)
_PLAIN_URL = re.compile(r"https?://[-a-zA-Z0-9@:%_+.~#?&/=]+")
_COLON_IN_NAME = re.compile(r"[^/?#]*:(?!//)")


def links_below(page: str, url: str, *, with_plain_urls: bool) -> list[str]:
    """Return the quoted paths, relative to a directory, of what its page links to below it.

    Those of directories end with a slash.

    Args:
        page: HTML of the page.
        url: Quoted URL of the directory.
        with_plain_urls: Whether URLs in the text are links, too.
    """
    base = url.partition("?")[0].rstrip("/") + "/"
    place = urlsplit(base)
    top, depth = unquote(place.path), place.path.count("/")
    found: dict[str, str] = {}
    for link in _links(page, with_plain_urls=with_plain_urls):
        # Pages have links that sort them, such as ?C=N;O=D.
        if not {"?", "#"}.isdisjoint(link):
            continue
        try:
            target = urlsplit(urljoin(base, link))
        except ValueError:  # such as http://[
            continue
        if target.netloc.lower() != place.netloc.lower() or target.scheme not in ("http", "https"):
            continue
        *folders, path = target.path.split("/", depth)
        name = unquote(path)
        is_below = len(folders) == depth and unquote("/".join([*folders, ""])) == top
        if is_below and name and {".", ".."}.isdisjoint(name.split("/")):
            found.setdefault(name, path)
    return list(found.values())


def _links(page: str, *, with_plain_urls: bool) -> Iterator[str]:
    for anchor in _ANCHOR.finditer(page):
        if match := _HREF.search(anchor[1]):
            link = unescape(next(filter(None, match.groups()), "")).strip()
            yield f"./{link}" if _COLON_IN_NAME.match(link) else link
    if with_plain_urls:
        yield from _PLAIN_URL.findall(page)
