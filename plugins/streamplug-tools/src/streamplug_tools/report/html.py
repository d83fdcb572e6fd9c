"""HTML elements with escaped text."""

from __future__ import annotations

from html import escape

_CONTROL_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {
    0x7F: 0x2421
}
"""Control pictures in place of control characters, which are invalid in HTML."""
_VOID_ELEMENTS = {"br", "img", "meta"}


class Html(str):
    """HTML text, which is not escaped again."""

    __slots__ = ()


def html(*parts: object) -> Html:
    """Concatenate parts, escaping all but `Html`."""
    return Html("".join(part if isinstance(part, Html) else _text(part) for part in parts))


def element(name: str, /, *content: object, **attributes: object) -> Html:
    """Return an element with content as for `html`.

    Of the attributes, ``class_`` is ``class``, other underscores are hyphens; None and False leave one out,
    and True gives it no value.
    """
    text = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if name in _VOID_ELEMENTS else f"</{name}>"
    return Html(f"<{name}{text}>{html(*content)}{end}")


def _text(value: object) -> str:
    # A str may contain a lone surrogate, which cannot be encoded.
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return escape(text.translate(_CONTROL_PICTURES))
