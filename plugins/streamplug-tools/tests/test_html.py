from __future__ import annotations

from html.parser import HTMLParser

import pytest
from streamplug_tools.report.html import Html, element, html

HOSTILE = ["<script>", "</p>", "\"'><b>", "a & b", "&lt;", "' onclick='x", "]]>", "<!--"]


def parsed(text):
    found = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append((tag, dict(attrs)))

        def handle_data(self, data):
            found.append(data)

    parser = Parser()
    parser.feed(text)
    parser.close()
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text_in_content_and_in_attributes(text):
    made = element("p", text, title=text)
    (tag, attributes), *content = parsed(made)
    assert (tag, attributes, "".join(content)) == ("p", {"title": text}, text)


def test_html_is_taken_as_it_is_and_once():
    inner = element("b", "x < y")
    assert element("p", inner, " & ", 3) == "<p><b>x &lt; y</b> &amp; 3</p>"
    assert html(html(inner)) == inner
    assert isinstance(html("a"), Html)


def test_attributes_may_be_left_out_or_have_no_value():
    made = element("img", class_="a", data_name="b", hidden=True, alt=None, open=False, width=3)
    assert made == '<img class="a" data-name="b" hidden width="3">'


def test_what_a_file_of_html_cannot_hold_is_pictured():
    made = element("p", "a\0b\x1b\x7fc\td\ud800")
    assert made == "<p>a␀b␛␡c\td\\ud800</p>"
    assert made.encode()
