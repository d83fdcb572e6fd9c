"""HTML made of parts of which all text is escaped."""

from __future__ import annotations

from html import escape

_SHOWN = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
"""Control characters, which HTML cannot hold, as the characters that picture them."""
_VOID = {"br", "img", "meta"}


class Html(str):
    """Text that is HTML; any other text is escaped where it becomes a part of it."""

    __slots__ = ()


def html(*parts: object) -> Html:
    """Return parts one after the other: HTML as it is, all else as text."""
    return Html("".join(part if isinstance(part, Html) else _text(part) for part in parts))


def element(name: str, /, *content: object, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: Its name.
        content: What is in it, as for `html`.
        attributes: Its attributes; ``class_`` is ``class``, other underscores are hyphens. One that is
            None or False is left out, one that is True has no value.
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if name in _VOID else f"</{name}>"
    return Html(f"<{name}{given}>{html(*content)}{end}")


def _text(value: object) -> str:
    # Half of a surrogate pair can be in a str, and not in a file.
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return escape(text.translate(_SHOWN))
