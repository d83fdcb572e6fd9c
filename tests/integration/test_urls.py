"""Data sets of URLs and paths as people have them: encoded, signed, with special characters."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from urllib.parse import unquote, urlsplit

import pytest
from streamplug_testing.http import serving

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, NotFound

pytest.importorskip("aiohttp")
pytest.importorskip("streamplug_webdataset")


def write_tar(path, *names):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name in names:
            member = tarfile.TarInfo(f"{name}.txt")
            member.size = 2
            tar.addfile(member, io.BytesIO(b"hi"))


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "www") as server:
        yield server


def keys(remote, tmp_path, **options):
    dataset = StreamingDataset(
        remote=remote,
        local=str(tmp_path / "cache"),
        format="webdataset",
        download_retry=0,
        **options,
    )
    return [dataset[n]["__key__"] for n in range(len(dataset))]


@pytest.mark.parametrize(
    "path", ["/a%20b/x%20%231%25.tar", "/a b/x %231%25.tar", "/a%20b/{x%20%231%25,y}.tar"]
)
def test_files_of_encoded_urls(server, tmp_path, path):
    write_tar(server.root / "a b" / "x #1%.tar", "x")
    write_tar(server.root / "a b" / "y.tar", "y")
    expected = ["x", "y"] if "{" in path else ["x"]
    assert keys(server.url + path, tmp_path) == expected


def test_files_whose_names_have_special_characters(server, tmp_path):
    write_tar(server.root / "set [1]" / "{a,b}[0].tar", "x")
    write_tar(server.root / "set [1]" / "a0.tar", "y")
    assert keys(f"{server.url}/set%20%5B1%5D/%7Ba,b%7D%5B0%5D.tar", tmp_path) == ["x"]
    directory = str(server.root / "set [1]")
    assert keys(f"{directory}/{{a,b}}[0].tar", tmp_path / "in place") == ["x"]
    assert keys(f"{directory}/{{a,[{{]}}*.tar", tmp_path / "patterns") == ["y", "x"]


def test_signed_urls_of_files(server, tmp_path):
    """As those of S3: each signature is of one path and for GET alone."""
    for name in ("a", "b", "c c"):
        write_tar(server.root / "set" / f"{name}.tar", name)

    def refuses(method, target):
        path, query = unquote(urlsplit(target).path), urlsplit(target).query
        return 0 if method == "GET" and query == f"sig=s3cret-{path[-5:-4]}" else 403

    server.refuses = refuses
    urls = [f"{server.url}/set/{name}.tar?sig=s3cret-{name[:1]}" for name in ("a", "c%20c", "b")]
    assert keys(urls[0], tmp_path / "one") == ["a"]
    assert keys(urls, tmp_path / "some") == ["a", "c c", "b"]
    for stored in tmp_path.glob("some/cache/.streamplug/**/*"):
        assert not stored.is_file() or b"s3cret" not in stored.read_bytes()
    # Signatures change, the files do not.
    server.refuses = lambda method, target: 0 if "sig=new" in target else 403
    renewed = [url.replace("s3cret", "new") for url in urls]
    assert keys(renewed, tmp_path / "some") == ["a", "c c", "b"]


def test_one_path_with_two_queries_is_refused(server, tmp_path):
    """As those of a server that finds files by a number in the query."""
    write_tar(server.root / "get.tar", "x")
    url = f"{server.url}/get.tar"
    with pytest.raises(ConfigError, match=r"get\.tar' is named twice, with two queries"):
        keys([f"{url}?id=1", f"{url}?id=2"], tmp_path)
    assert keys([f"{url}?id=1"], tmp_path) == ["x"]


def test_files_with_a_content_encoding_are_read_as_they_are(server, tmp_path):
    server.root.mkdir()
    (server.root / "z.jsonl.gz").write_bytes(gzip.compress(json.dumps({"a": 1}).encode()))
    server.headers = {"Content-Encoding": "gzip"}
    dataset = StreamingDataset(
        remote=f"{server.url}/z.jsonl.gz", local=str(tmp_path / "cache"), format="jsonl"
    )
    assert list(dataset) == [{"a": 1}]


def test_a_pattern_that_finds_nothing_says_how_names_are_written(tmp_path):
    write_tar(tmp_path / "a1.tar", "x")
    with pytest.raises(NotFound, match=r"among b\[0-9\].tar.*write a '\[' of a name as \[\[\]"):
        keys(f"{tmp_path}/b[0-9].tar", tmp_path / "none")
    with pytest.raises(ConfigError, match=r"neither a choice.*in brackets: \[\{\]"):
        keys(f"{tmp_path}/b{{0}}.tar", tmp_path / "none")
