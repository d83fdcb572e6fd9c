"""Data sets whose server is away for minutes while they are read, or when they are opened."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.errors import ConfigError, Transient
from streamplug.transfer import outage, ranges, retry

pytest.importorskip("aiohttp")

SAMPLES = 60
AWAY = 180.0


class Away:
    """Lets time pass in pauses alone, and the server refuse requests for a time after so many of them."""

    def __init__(self, server, monkeypatch):
        self.now, self.requests, self.begin, self.end = 0.0, 0, 1 << 60, 0.0
        self._lock = threading.Lock()
        server.refuses = self.refuses
        fake = SimpleNamespace(monotonic=lambda: self.now)
        for module in (outage, retry):
            monkeypatch.setattr(module, "time", fake)
        monkeypatch.setattr(retry, "sleep", self.sleep)
        monkeypatch.setattr(outage, "_outages", {})

    def sleep(self, seconds):
        with self._lock:  # pauses of several threads one after the other
            self.now += seconds

    def refuses(self, method, target):
        with self._lock:
            self.requests += 1
            if self.requests == self.begin:
                self.end = self.now + AWAY
            return 503 if self.requests >= self.begin and self.now < self.end else 0


@pytest.fixture
def served(tmp_path):
    with MDSWriter(
        out=tmp_path / "far", columns={"n": "int", "b": "bytes"}, size_limit=4000
    ) as out:
        for n in range(SAMPLES):
            out.write({"n": n, "b": bytes(500)})
    for part in range(4):
        lines = (f'{{"n": {n}}}\n' for n in range(part * 15, part * 15 + 15))
        (tmp_path / "far" / f"part-{part}.jsonl").write_text("".join(lines))
    with serving(tmp_path / "far") as server:
        yield server


@pytest.fixture
def away(served, monkeypatch):
    return Away(served, monkeypatch)


def open_(way, server, tmp_path, **options):
    places = {"remote": server.url, "local": str(tmp_path / "near")}
    if way == "range":
        places = {"remote": server.url, "access": "range"}
    elif way == "lines":
        pytest.importorskip("streamplug_text", reason="streamplug-text is not installed")
        places["remote"] = [f"{server.url}/part-{part}.jsonl" for part in range(4)]
        places["format"] = "jsonl"
    return StreamingDataset(**places, predownload=10, batch_size=5, **options)


def parts(monkeypatch):
    monkeypatch.setattr(ranges, "PARALLEL_DOWNLOAD_BYTES", 1000)
    monkeypatch.setattr(ranges, "PART_BYTES", 500)


@pytest.mark.parametrize("way", ["shard", "parts", "range", "lines"])
def test_a_run_goes_on_when_its_server_was_away_for_minutes(
    way, served, away, tmp_path, monkeypatch, caplog
):
    if way == "parts":
        parts(monkeypatch)
    dataset = open_(way, served, tmp_path)
    loop = iter(dataset)
    seen = [next(loop)["n"] for _ in range(5)]
    away.begin = away.requests + 1
    seen += [sample["n"] for sample in loop]
    assert seen == list(range(SAMPLES))
    if away.end:  # all that was needed may have been fetched ahead
        assert AWAY <= away.now < 600
        assert f"{served.url} has been away for" in caplog.text
        assert f"{served.url} answers again, after" in caplog.text
    assert away.end or way == "lines"


def test_a_server_that_stays_away_is_an_error_when_the_patience_ends(served, away, tmp_path):
    dataset = open_("shard", served, tmp_path, download_patience="1m")
    away.begin = away.requests + 1
    with pytest.raises(
        Transient, match=r"away for \d min \d+ s; raise download_patience= for more"
    ):
        list(dataset)
    assert away.now < 60 + 8 * 31  # eight threads


@pytest.mark.parametrize("way", ["shard", "range", "lines"])
def test_a_server_that_is_away_at_the_opening_is_an_error_in_seconds(way, served, away, tmp_path):
    away.begin = 1
    with pytest.raises(Transient, match=r"503.*gave up after 3 attempts; raise download_retry="):
        open_(way, served, tmp_path)
    assert away.now < 10


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, 600), ("10m", 600), (0, 0), (1.5, 1.5), ("2h", 7200), ("90 S", 90)],
)
def test_patience_is_given_in_seconds_or_as_text(given, seconds):
    assert Stream(remote="/far", download_patience=given).patience.seconds == seconds


@pytest.mark.parametrize("given", [-1, "ten", "5d", True, float("inf"), float("nan"), "-1m", [1]])
def test_other_patience_is_refused(given, tmp_path):
    with pytest.raises(ConfigError, match=r"download_patience=.*: expected a time in seconds"):
        StreamingDataset(remote=str(tmp_path), download_patience=given)


def test_a_stream_has_patience_of_its_own_or_that_of_the_data_set(served, tmp_path):
    streams = [Stream(remote=served.url, download_patience=5), Stream(remote=served.url)]
    dataset = StreamingDataset.from_config(
        {"dataset": {"remote": served.url, "access": "range", "download_patience": "3m"}}
    )
    assert dataset.streams[0].patience.seconds == 180
    both = StreamingDataset(streams=streams, access="range", download_patience=7)
    assert [stream.patience.seconds for stream in both.streams] == [5, 7]
