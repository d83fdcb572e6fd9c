from __future__ import annotations

import io

from streamplug_files import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_tells_how_many_files_were_looked_through(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with ProgressBar("scanning memory://set") as progress:
        for done in range(6):
            progress.update(done, 5)
    assert "scanning memory://set" in terminal.getvalue()
    assert "5/5" in terminal.getvalue()


def test_a_title_is_plain_text(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with ProgressBar("scanning [/a]\x1b[2J") as progress:
        progress.update(0, 5)
    assert "scanning [/a]\\x1b[2J" in terminal.getvalue()


def test_nothing_is_shown_for_few_files_or_without_a_terminal(monkeypatch):
    for stream, total in ((Terminal(), 2), (io.StringIO(), 9)):
        monkeypatch.setattr("sys.stderr", stream)
        with ProgressBar("scanning memory://set") as progress:
            progress.update(0, total)
            progress.update(total, total)
        assert stream.getvalue() == ""
