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
from streamplug.errors import AccessDenied, ConfigError, NotFound, Transient
from streamplug.plugin import open_storage

pytest.importorskip("aiohttp")
pytest.importorskip("streamplug_webdataset")
MemoryStorage = pytest.importorskip("streamplug_fsspec").MemoryStorage


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


SPECIAL = ["a[1]", "a{1}", "a{1,2}", "a]", "a}", "[[]{"]


@pytest.fixture
def bucket(tmp_path):
    """A storage in memory, which has objects with special characters, and others that these match."""
    storage = open_storage(f"memory://{tmp_path.name}/set")
    for name in [*SPECIAL, "a1", "a2", "[{", "in[1]/a{b}", "in1/a{b}", "stars/s*", "stars/q?"]:
        write_tar(tmp_path / "x.tar", name)
        storage.write(f"{name}.tar", (tmp_path / "x.tar").read_bytes())
    return storage


@pytest.mark.parametrize("name", [*SPECIAL, "in[1]/a{b}"])
def test_an_object_is_taken_by_its_name_whatever_characters_it_has(bucket, name, tmp_path):
    assert keys(bucket.url_of(f"{name}.tar"), tmp_path) == [name]


@pytest.mark.parametrize("name", ["s*", "s[*]", "q?"])
def test_objects_whose_names_no_index_can_have_are_refused_by_name(bucket, name, tmp_path):
    with pytest.raises(
        ConfigError, match=r"set/stars: the file '[sq][*?].tar' cannot be listed: names"
    ):
        keys(bucket.url_of(f"stars/{name}.tar"), tmp_path)


def test_objects_of_a_list_are_taken_by_their_names_and_others_by_patterns(bucket, tmp_path):
    locations = ["a{1,2}", "a[12]", "a{2,1}", "a[[]1]", "a[{]1[}]", "a{1,2}"]
    found = keys([bucket.url_of(f"{name}.tar") for name in locations], tmp_path)
    assert found == ["a{1,2}", "a1", "a2", "a2", "a1", "a[1]", "a{1}", "a{1,2}"]


@pytest.mark.parametrize("name", ["b{1}.tar", "b}.tar", "a{1.tar", "in{1}/a1.tar"])
def test_what_is_neither_an_object_nor_a_pattern_says_how_names_are_written(bucket, name, tmp_path):
    with pytest.raises(ConfigError, match=r"of a name in brackets: \[\{\]"):
        keys(bucket.url_of(name), tmp_path)


def test_objects_that_may_not_be_asked_for_are_patterns(bucket, tmp_path, monkeypatch):
    def refuse(storage, key):
        raise AccessDenied(f"{key}: 403") if "[" in key else Transient("503")

    monkeypatch.setattr(MemoryStorage, "stat", refuse)
    assert keys(bucket.url_of("a[12].tar"), tmp_path) == ["a1", "a2"]
    with pytest.raises(Transient, match="503"):
        keys(bucket.url_of("a{1}.tar"), tmp_path)


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
