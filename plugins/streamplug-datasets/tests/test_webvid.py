from __future__ import annotations

import csv
import http.server
import json
import shutil
import threading
import time
from typing import ClassVar

import numpy as np
import pytest
from streamplug_datasets import (
    StreamingInsideWebVid,
    StreamingOutsideDTWebVid,
    StreamingOutsideGIWebVid,
)
from streamplug_testing.http import serving

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset
from streamplug.errors import ConfigError, DataError, Transient

torch = pytest.importorskip("torch")

LINE = (
    "webvid --in results.csv --out converted --retries 1 --threads 4 --timeout 30 --part 10 "
    "--allow-private"
)
NAMES = ["videoid", "contentUrl", "duration", "page_dir", "name"]
COUNT = 24


@pytest.fixture
def site(tmp_path):
    """A server of videos, and what is in each."""
    home = tmp_path / "site"
    home.mkdir()
    rng = np.random.default_rng(2)
    for n in range(COUNT):
        (home / f"{n}.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + rng.bytes(1000 + n))
    with serving(home) as server:
        yield server


def row(url, n):
    name = f'{"A cat" if n % 3 else "A train"}, number {n}.\nIt "moves".'
    return [str(1000 + n), url, f"PT00H0{n % 2}M{10 + n}S", f"00{n}_00{n}", name]


def table(tmp_path, urls, names=NAMES):
    rows = [row(url, n) for n, url in enumerate(urls)]
    with (tmp_path / "results.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([names, *rows])
    return rows


def videos(site, tmp_path):
    return table(tmp_path, [f"{site.url}/{n}.mp4" for n in range(COUNT)])


def expected(rows, site):
    return [
        {
            "videoid": number,
            "contentUrl": url,
            "duration": 60 * int(duration[6:7]) + int(duration[8:10]),
            "page_dir": folder,
            "page_idx": "",
            "name": name,
            "content": (site.root / url.rpartition("/")[2]).read_bytes(),
        }
        for number, url, duration, folder, name in rows
    ]


def test_what_comes_out_is_what_was_there(site, tmp_path, converted):
    rows = videos(site, tmp_path)
    [summary] = converted(LINE)
    assert (summary["samples"], summary["failed"]) == (COUNT, {})
    assert StreamingInsideWebVid(local="converted")[:] == expected(rows, site)
    assert len(site.requests) == COUNT


def test_videos_can_be_files(site, tmp_path, converted):
    rows = videos(site, tmp_path)
    converted(f"{LINE} --videos videos")
    samples = StreamingDataset(local="converted")[:]
    assert [s["content_path"] for s in samples][9:11] == ["00000/00009.mp4", "00001/00000.mp4"]
    wanted = expected(rows, site)
    for sample, truth in zip(samples, wanted):
        path = tmp_path / "videos" / sample.pop("content_path")
        assert {**sample, "content": path.read_bytes()} == truth
    for kind in (StreamingOutsideGIWebVid, StreamingOutsideDTWebVid):
        plain = kind(local="converted", batch_size=2)
        assert "content" not in plain[0]
        assert "content" not in next(iter(plain))
        near = tmp_path / kind.__name__
        dataset = kind(
            local="converted",
            extra_local=str(near),
            extra_remote=str(tmp_path / "videos"),
            batch_size=2,
            shuffle=True,
        )
        found = list(dataset)
        assert sorted(s["videoid"] for s in found) == sorted(s["videoid"] for s in wanted)
        by_id = {s["videoid"]: s["content"] for s in wanted}
        assert all(s["content"] == by_id[s["videoid"]] for s in found)
        assert len([path for path in near.rglob("*") if path.is_file()]) == COUNT
        near.joinpath("00000/00000.mp4").write_bytes(b"near")
        stored = dict(plain[0])
        assert dataset.change(stored)["content"] == b"near"
        assert "content" not in stored
        assert dataset[0]["content"] == b"near"


def test_videos_can_be_taken_out(site, tmp_path, converted, refused):
    rows = videos(site, tmp_path)
    converted(LINE)
    line = "webvid-extract --in converted --videos videos --out paths --part 10"
    [summary] = converted(line)
    assert summary["samples"] == COUNT
    dataset = StreamingOutsideGIWebVid(local="paths", extra_local="near", extra_remote="videos")
    found = dataset[:]
    assert [s.pop("content_path") for s in found][9:11] == ["00000/00009.mp4", "00001/00000.mp4"]
    assert found == expected(rows, site)
    error = refused(
        line.replace("--in converted", "--in paths").replace("--out paths", "--out more")
    )
    assert "paths: sample 0 has no video" in error


def test_videos_are_written_to_another_place(site, tmp_path, converted, refused):
    videos(site, tmp_path)
    converted(LINE)
    for line in (
        "webvid-extract --in converted --out paths --videos",
        f"{LINE} --out files --videos",
    ):
        converted(f"{line} one")
        assert "already holds a data set" in refused(f"{line} two")
        assert not (tmp_path / "two").exists()
        converted(f"{line} two --exist-ok")
        assert len(list((tmp_path / "two").rglob("*.mp4"))) == COUNT
        shutil.rmtree(tmp_path / "two")


def test_videos_of_a_data_set_that_has_changed_are_taken_out(tmp_path, converted):
    columns = {"videoid": "str", "duration": "int", "content": "bytes"}
    for name, count in ((b"old", 3), (b"newer", 2)):
        with MDSWriter(out=tmp_path / "set", columns=columns, exist_ok=True) as out:
            for n in range(count):
                out.write({"videoid": str(n), "duration": 1, "content": name})
        place = name.decode()
        [summary] = converted(f"webvid-extract --in set --videos {place} --out paths-{place}")
        assert summary["samples"] == count
        assert {path.read_bytes() for path in (tmp_path / place).rglob("*.mp4")} == {name}


def test_one_fetches_when_asked_and_the_other_ahead(site, tmp_path, converted):
    pytest.importorskip("aiohttp")
    videos(site, tmp_path)
    converted(f"{LINE} --videos site/videos")
    site.requests.clear()

    def asked():
        return len({path for method, path, _ in site.requests if method == "GET"})

    options = {"local": "converted", "extra_remote": f"{site.url}/videos", "batch_size": 12}
    samples = iter(StreamingOutsideGIWebVid(extra_local="gi", **options))
    assert next(samples)["content"]
    assert asked() == 1
    samples.close()
    site.requests.clear()
    samples = iter(StreamingOutsideDTWebVid(extra_local="dt", extra_threads=4, **options))
    assert next(samples)["content"]
    end = time.monotonic() + 60
    while asked() < 5 and time.monotonic() < end:
        time.sleep(0.01)
    assert asked() == 5  # that sample's, and those of four threads
    samples.close()


@pytest.mark.parametrize("kind", [StreamingOutsideGIWebVid, StreamingOutsideDTWebVid])
def test_videos_are_downloaded_with_the_retries_and_the_timeout_of_the_data_set(
    site, tmp_path, monkeypatch, kind
):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    with MDSWriter(out=tmp_path / "set", columns={"content_path": "str"}) as out:
        for n in range(3):
            out.write({"content_path": f"{n}.mp4"})
    failures = {
        "1.mp4": 2
    }  # the client repeats the first request on a connection that was kept open

    def break_off(path, _, data):
        if failures.get(path):
            failures[path] -= 1
            raise ConnectionResetError
        return data

    site.lie = break_off
    options = {"local": str(tmp_path / "set"), "extra_remote": site.url, "batch_size": 3}
    samples = list(kind(extra_local=str(tmp_path / "near"), **options))
    assert [s["content"] for s in samples] == [
        (site.root / f"{n}.mp4").read_bytes() for n in range(3)
    ]
    assert failures == {"1.mp4": 0}
    failures["1.mp4"] = 2
    options["download_patience"] = 0
    with pytest.raises(Transient, match=r"1\.mp4.*gave up after 1 attempt"):
        list(kind(extra_local=str(tmp_path / "other"), download_retry=0, **options))
    site.lie = lambda *_: site.gate.wait(60)  # no response while the test runs
    with pytest.raises(Transient, match=r"2\.mp4"):
        kind(extra_local=str(tmp_path / "far"), download_retry=0, download_timeout=0.2, **options)[
            2
        ]
    assert not any((tmp_path / "far").rglob("*.mp4"))


def test_workers_of_a_loader_fetch_ahead(site, tmp_path, converted):
    rows = videos(site, tmp_path)
    converted(f"{LINE} --videos videos")
    dataset = StreamingOutsideDTWebVid(
        local="converted", extra_local="near", extra_remote="videos", batch_size=3
    )
    loader = StreamingDataLoader(dataset, num_workers=2, collate_fn=list)
    samples = [sample for batch in loader for sample in batch]
    assert [(s["videoid"], s["content"]) for s in samples] == [
        (s["videoid"], s["content"]) for s in expected(rows, site)
    ]


def test_state_is_that_of_samples_that_were_handed_out(site, tmp_path, converted):
    videos(site, tmp_path)
    converted(f"{LINE} --videos videos")
    options = {"local": "converted", "batch_size": 2, "shuffle": True}
    places = {"extra_local": "near", "extra_remote": "videos"}
    plain = [s["videoid"] for s in StreamingDataset(**options)]
    for kind in (StreamingOutsideGIWebVid, StreamingOutsideDTWebVid):
        first = kind(**options, **places)
        samples = iter(first)
        begun = [next(samples)["videoid"] for _ in range(4)]
        state = first.state_dict()
        samples.close()
        second = kind(**options, **places)
        second.load_state_dict(state)
        assert begun + [s["videoid"] for s in second] == plain


def test_it_trains(site, tmp_path, converted, learns):
    videos(site, tmp_path)
    converted(LINE)

    def collate(samples):
        frames = [np.frombuffer(s["content"][:96], np.uint8) / 255.0 for s in samples]
        return torch.tensor(np.stack(frames), dtype=torch.float32), [s["duration"] for s in samples]

    dataset = StreamingInsideWebVid(local="converted", batch_size=4)
    frames, seconds = next(iter(StreamingDataLoader(dataset, collate_fn=collate)))
    wanted = torch.tensor(seconds, dtype=torch.float32) / 100
    learns(torch.nn.Linear(96, 1), lambda model: (model(frames)[:, 0] - wanted).square().mean())


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers as its path says; counts who asks for what."""

    asked: ClassVar[list[str]] = []

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        getattr(self, self.path.strip("/").partition("-")[0])()

    def answer(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def good(self):
        self.answer(200, b"video")

    def gone(self):
        self.answer(404)

    def busy(self):
        first = self.asked.count(self.path) == 1
        self.answer(503 if first else 200, b"" if first else b"late video")

    def void(self):
        self.answer(200)

    def large(self):
        self.answer(200, bytes(5000))

    def elsewhere(self):
        self.answer(302, Location="file:///etc/hostname")

    def around(self):
        self.answer(302, Location=self.path)

    def moved(self):
        self.answer(302, bytes(9000), Location="/good")

    def short(self):
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"not all of it")
        self.close_connection = True

    def drip(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(1000):
            self.wfile.write(b"x")
            time.sleep(0.02)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # clients leave early


@pytest.fixture
def odd():
    server = Server(("127.0.0.1", 0), Odd)
    Odd.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_failures_are_counted_by_kind_and_listed(odd, tmp_path, converted):
    paths = [
        "good",
        "gone",
        "busy",
        "void",
        "large",
        "elsewhere",
        "around",
        "moved",
        "short",
        "drip",
    ]
    urls = [f"{odd}/{path}" for path in paths]
    urls += [
        "file:///etc/hostname",
        "ftp://127.0.0.1/x.mp4",
        "http://",
        "http://127.0.0.1:1/x.mp4",
        "",
    ]
    table(tmp_path, urls)
    [summary] = converted(f"{LINE} --part 5 --max-bytes 4kb --deadline 0.2")
    assert summary["failed"] == {
        "not http": 4,
        "connection": 2,
        "status 404": 1,
        "empty": 1,
        "too large": 1,
        "redirects": 1,
        "timeout": 1,
        "bad URL": 1,
    }
    samples = StreamingDataset(local="converted")[:]
    assert [s["contentUrl"].rpartition("/")[2] for s in samples] == ["good", "busy", "moved"]
    assert [s["content"] for s in samples] == [b"video", b"late video", b"video"]
    assert {path: Odd.asked.count(f"/{path}") for path in ("gone", "short", "drip", "busy")} == {
        "gone": 1,
        "short": 2,
        "drip": 2,
        "busy": 2,
    }
    listed = json.loads((tmp_path / "converted" / "failures" / "part-00000.json").read_text())
    assert listed["tried"] == 5
    assert listed["kinds"] == {"empty": 1, "status 404": 1, "too large": 1}
    assert listed["failed"][0] == {
        "kind": "status 404",
        "videoid": "1001",
        "url": f"{odd}/gone",
        "message": "status 404",
    }


def test_run_stops_where_too_much_fails_and_goes_on_there(site, tmp_path, convert):
    videos(site, tmp_path)
    for n in range(10, 20):
        (site.root / f"{n}.mp4").rename(site.root / f"{n}.away")
    result = convert(LINE)
    assert result.code == 2
    assert (
        "10 of 10 samples failed (status 404: 10), more than --max-failed 0.9 allows"
        in result.error
    )
    assert "converted/failures/part-00001.json" in result.error
    for n in range(10, 15):
        (site.root / f"{n}.away").rename(site.root / f"{n}.mp4")
    before = len(site.requests)
    result = convert(f"{LINE} --json --max-failed 0.5 --timeout 4")
    assert result.json[0]["failed"] == {"status 404": 5}
    assert len(site.requests) - before == 14  # those of the first part were there
    assert len(StreamingDataset(local="converted")[:]) == COUNT - 5


def test_subsets_have_what_their_word_is_in(site, tmp_path, converted):
    videos(site, tmp_path)
    cat, train = converted(f"{LINE} --subsets cat,train --limit 9")
    assert (cat["split"], cat["samples"], train["samples"]) == ("cat", 6, 3)
    for split in ("cat", "train"):
        assert all(split in s["name"] for s in StreamingDataset(local=f"converted/{split}")[:])


def test_bad_table_is_named(site, tmp_path, refused):
    videos(site, tmp_path)
    path = tmp_path / "results.csv"
    whole = path.read_text()
    for changed, message in (
        (whole.replace("contentUrl", "url"), "results.csv: lacks the columns contentUrl"),
        (whole.replace("PT00H01M13S", "13"), "results.csv: row 4: duration is '13'"),
        (whole.replace(",003_003", ""), "4 values for 5 columns"),
        (whole[:-10], "results.csv: before byte"),
        (whole.splitlines()[0], "results.csv: a table without rows"),
    ):
        path.write_text(changed)
        assert message in refused(LINE)


def test_paths_lead_nowhere_else(tmp_path):
    for number, name in enumerate(["../secret", "/etc/hostname", "a/../../b", "a\\..\\b"]):
        with MDSWriter(out=tmp_path / str(number), columns={"content_path": "str"}) as out:
            out.write({"content_path": name})
        dataset = StreamingOutsideGIWebVid(
            local=str(tmp_path / str(number)), extra_local="near", extra_remote=str(tmp_path)
        )
        with pytest.raises(DataError, match="not a path below a folder"):
            dataset[0]
    with pytest.raises(ConfigError, match="give both"):
        StreamingOutsideGIWebVid(local=str(tmp_path / "0"), extra_local="near")
    with pytest.raises(ConfigError, match="extra_threads=0"):
        StreamingOutsideDTWebVid(local=str(tmp_path / "0"), extra_threads=0)
