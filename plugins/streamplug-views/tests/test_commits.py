"""Commits are atomic: one of concurrent ones succeeds, killed ones leave nothing, and no version is lost."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
from streamplug_views import ConflictError, View, diff, expire, log, show, tag
from streamplug_views.version_store import VersionStore

from streamplug import MDSWriter, Storage, Stream, StreamingDataset, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import (
    AccessDenied,
    ConfigError,
    DataError,
    NotFound,
    StorageError,
    Transient,
)
from streamplug.plugin.location import open_storage
from streamplug.plugin.registry import unregister

COUNT = 4000
ACCOUNT = "devstoreaccount1"
# Every emulator has this account and this key.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture
def base(tmp_path):
    write_numbers(tmp_path / "set")
    return tmp_path / "set"


def write_numbers(out, **options):
    with MDSWriter(out=out, columns={"n": "int"}, max_samples_per_shard=500, **options) as writer:
        for n in range(COUNT):
            writer.write({"n": n})


def numbers(view, version=None):
    return [int(row["n"]) for row in StreamingDataset(remote=str(view), version=version)]


def test_a_version_keeps_the_order_of_columns(tmp_path):
    pytest.importorskip("streamplug_text")
    (tmp_path / "rows.csv").write_text("z,b,a\n1,2,3\n")
    view = View.of(tmp_path / "rows.csv", format="csv").rename({"b": "y"})
    view.commit(tmp_path / "view")
    assert view.columns == View.of(tmp_path / "view").columns == ["z", "y", "a"]
    assert list(StreamingDataset(remote=str(tmp_path / "view"))[0]) == ["z", "y", "a"]


def test_versions_follow_each_other(base, tmp_path):
    place = tmp_path / "views" / "one"
    assert View.of(base).where("n < 10").commit(place, message="ten").version == 1
    assert View.of(place).exclude([0]).commit(message="not 0").version == 2
    assert View.of(base).where("n < 5").commit(place, message="again").version == 3
    assert View.of(place, version=2).exclude([0]).commit(tmp_path / "other").version == 1
    assert [(v.version, v.message, v.samples) for v in log(place)] == [
        (3, "again", 5),
        (2, "not 0", 9),
        (1, "ten", 10),
    ]
    versions = log(place)
    assert [v.parent for v in versions] == [versions[1].digest, versions[2].digest, None]
    assert versions[0].sources == ["../../set"]
    assert numbers(place) == list(range(5))
    assert numbers(place, 2) == list(range(1, 10))
    assert numbers(tmp_path / "other") == list(range(2, 10))
    change = diff(place, 1, 2)
    assert (change.samples, change.added, change.removed) == ((10, 9), 0, 1)
    change = diff(place, 2)
    assert (change.samples, change.added, change.removed) == ((9, 5), 1, 5)
    for bad in (4, 0, "no-such-tag"):
        with pytest.raises(
            ConfigError, match=r"has no version 4; the latest ones are: 1, 2, 3|no version 0|no tag"
        ):
            numbers(place, bad)
    with pytest.raises(ConfigError, match=r"version=1.*neither a view nor a table"):
        numbers(base, 1)


def test_samples_of_another_split_are_different(tmp_path):
    for split, size in (("train", 10), ("val", 8)):
        with MDSWriter(out=tmp_path / "set" / split, columns={"n": "int"}) as out:
            for n in range(size):
                out.write({"n": n})
        stream = Stream(remote=str(tmp_path / "set"), split=split)
        View.of(stream).commit(tmp_path / "view")
    change = diff(tmp_path / "view", 1, 2)
    assert (change.samples, change.added, change.removed) == ((10, 8), 8, 10)


def test_a_directory_with_views_can_be_moved(base, tmp_path):
    View.of(base).where("n < 3").commit(tmp_path / "views" / "one")
    moved = tmp_path / "moved"
    moved.mkdir()
    base.rename(moved / "set")
    (tmp_path / "views").rename(moved / "views")
    assert numbers(moved / "views" / "one") == [0, 1, 2]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_view_is_written_and_opened_through_links(base, tmp_path, scheme):
    (tmp_path / "far" / "views").mkdir(parents=True)
    (tmp_path / "near").symlink_to(tmp_path / "far" / "views")
    source, link = f"{scheme}{base}", f"{scheme}{tmp_path / 'near' / 'one'}"
    View.of(source).where("n < 3").commit(link)
    (tmp_path / "one").symlink_to(tmp_path / "far" / "views" / "one")
    for place in (link, f"{scheme}{tmp_path}/far/views/one", f"{scheme}{tmp_path}/one"):
        assert numbers(place) == [0, 1, 2]


@pytest.mark.parametrize("scheme", ["file:", "file://", "local:", "FILE://"])
def test_a_view_is_opened_and_written_again_by_a_url(base, tmp_path, scheme):
    View.of(base).select([1, 2]).commit(tmp_path / "view")
    assert numbers(f"{scheme}{tmp_path}/view") == [1, 2]
    View.of(f"{scheme}{tmp_path}/view").exclude([0]).commit()
    assert numbers(tmp_path / "view") == [2]
    assert [version.sources for version in log(tmp_path / "view")] == [["../set"]] * 2


def test_a_source_is_referred_to_by_its_link_where_that_is_possible(base, tmp_path):
    (tmp_path / "latest").symlink_to(base)
    View.of(tmp_path / "latest").where("n < 3").commit(tmp_path / "view")
    assert show(tmp_path / "view").sources == ["../latest"]


def test_a_source_relative_to_the_link_of_a_view_is_found(base, tmp_path):
    View.of(base).where("n < 3").commit(tmp_path / "one")
    (tmp_path / "far" / "views").mkdir(parents=True)
    (tmp_path / "one").rename(tmp_path / "far" / "views" / "one")
    (tmp_path / "one").symlink_to(tmp_path / "far" / "views" / "one")
    assert numbers(tmp_path / "one") == [0, 1, 2]


@pytest.mark.parametrize(
    "url", ["memory://me:se@cret@host/sources", "memory://host/sources?sig=se@cret"]
)
def test_a_source_with_credentials_in_its_url_is_refused(tmp_path, url):
    with MDSWriter(out=url, columns={"n": "int"}, exist_ok=True) as writer:
        writer.write({"n": 1})
    with pytest.raises(ConfigError, match=r"^memory://host/sources: .*storage_options=") as caught:
        View.of(url).commit(tmp_path / "view")
    assert "cret" not in str(caught.value)
    assert not (tmp_path / "view").exists()


def test_tags_name_versions_and_keep_them(base, tmp_path):
    place = tmp_path / "view"
    for n in range(1, 6):
        View.of(base).where(f"n < {n}").commit(place)
    tag(place, "paper", 2)
    assert numbers(place, "paper") == [0, 1]
    with pytest.raises(ConfigError, match="'paper' of another version; pass move=True"):
        tag(place, "paper", 3)
    tag(place, "paper", 2)  # it names this version already
    tag(place, "last")
    tag(place, "last", 4, move=True)
    for bad in ("", "a/b", "../x", ".x", "3"):
        with pytest.raises(ConfigError, match="tag"):
            tag(place, bad, 1)
    with pytest.raises(ConfigError, match="no version 9"):
        tag(place, "new", 9)
    assert [v.tags for v in log(place)] == [[], ["last"], [], ["paper"], []]
    files = sorted(path.name for path in (place / "data").iterdir())
    assert expire(place, keep=1)[0] == [1, 3]
    assert sorted(path.name for path in (place / "data").iterdir()) == files
    removed, names = expire(place, keep=1, dry_run=False)
    assert removed == [1, 3]
    assert len(names) == 4
    assert len(list((place / "data").iterdir())) == len(files) - 4
    assert [v.version for v in log(place)] == [5, 4, 2]
    assert [len(numbers(place, version)) for version in (2, 4, None)] == [2, 4, 5]
    assert View.of(place).exclude([0]).commit().version == 6
    with pytest.raises(ConfigError, match="keep 1 or more"):
        expire(place, keep=0)
    for keep in (-1, True, 1.5, None):
        with pytest.raises(ConfigError, match=f"keep={keep}: must be a whole number"):
            expire(place, keep=keep)
    with pytest.raises(ConfigError, match="dry_run='no': must be True or False"):
        expire(place, keep=1, dry_run="no")
    with pytest.raises(ConfigError, match="move='no': must be True or False"):
        tag(place, "paper", 5, move="no")


def test_files_that_later_versions_use_are_kept(base, tmp_path):
    place = tmp_path / "view"
    View.of(base).where("n < 7").commit(place)
    View.of(place).rename({"n": "m"}).commit()
    assert expire(place, keep=1, dry_run=False) == ([1], [])
    assert [row["m"] for row in StreamingDataset(remote=str(place))] == list(range(7))


def test_the_second_of_two_commits_conflicts_and_can_be_rebased(base, tmp_path):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    mine, theirs = View.of(place).exclude([0]), View.of(place).where("n != 5")
    assert (len(mine), len(theirs)) == (9, 9)  # both have read version 1
    assert theirs.commit().version == 2
    with pytest.raises(ConflictError, match=r"version 2 that another commit wrote.*rebase"):
        mine.commit()
    assert numbers(place) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert mine.rebase().commit().version == 3
    assert numbers(place) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_a_commit_through_a_link_conflicts_with_those_since_the_view_was_read(base, tmp_path):
    place, link = tmp_path / "view", tmp_path / "link"
    View.of(base).select(range(10)).commit(place)
    link.symlink_to(place)
    mine = View.of(place).exclude([0])
    assert len(mine) == 9
    View.of(place).exclude([1]).commit()
    with pytest.raises(ConflictError, match=r"has a version 2 .* call rebase\(\)"):
        mine.commit(link)
    mine.rebase().commit(link)
    assert numbers(place) == list(range(2, 10))


def test_a_commit_conflicts_though_the_version_that_was_read_has_expired(base, tmp_path):
    place = tmp_path / "view"
    View.of(base).select(range(10)).commit(place)
    mine = View.of(place).exclude([0])
    assert len(mine) == 9
    View.of(place).exclude([1]).commit()
    expire(place, keep=1, dry_run=False)
    with pytest.raises(ConflictError, match=r"has a version 2 .* call rebase\(\)"):
        mine.commit()
    mine.rebase().commit()
    assert numbers(place) == list(range(2, 10))


def test_a_commit_whose_answer_is_lost_succeeds(base, tmp_path, monkeypatch):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    store = VersionStore(str(place))
    create = type(store._storage).create

    def lossy(self, key, data):
        create(self, key, data)
        if not lost:
            lost.append(key)
            raise Transient("the connection broke")

    lost = []
    monkeypatch.setattr(type(store._storage), "create", lossy)
    assert View.of(place).exclude([0]).commit().version == 2
    assert lost == ["versions/2.json"]
    assert len(numbers(place)) == 9


def test_requests_for_tags_and_results_are_repeated(base, tmp_path, monkeypatch):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    failed = set()

    def fail_once(method):
        real = getattr(LocalStorage, method)

        def attempt(self, key, *rest):
            where = key.partition("/")[0] if method == "list" else key.rpartition(".")[2]
            if (method, where) not in failed:
                failed.add((method, where))
                raise Transient("the connection broke")
            return real(self, key, *rest)

        monkeypatch.setattr(LocalStorage, method, attempt)

    for method in ("list", "read", "write"):
        fail_once(method)
    tag(place, "best", 1, move=True)
    assert [version.tags for version in log(place)] == [["best"]]
    assert len(View.of(place).where("n < 5")) == 5
    assert {("list", "tags"), ("write", "json"), ("write", "rows"), ("read", "rows")} <= failed


def test_the_hint_may_be_old_or_not_written(base, tmp_path):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    hint = (place / "view.json").read_bytes()
    View.of(place).exclude([0]).commit()
    View.of(place).exclude([0]).commit()
    (place / "view.json").write_bytes(hint)
    assert len(numbers(place)) == 8
    assert View.of(place).exclude([0]).commit().version == 4


def test_a_hint_of_an_expired_version_is_not_followed(base, tmp_path):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    hint = (place / "view.json").read_bytes()
    for _ in range(3):
        View.of(place).exclude([0]).commit()
    tag(place, "first", 1)
    (place / "view.json").write_bytes(hint)
    assert expire(place, keep=1, dry_run=False)[0] == [2, 3]
    assert len(numbers(place)) == 7  # of the latest, and not of the one that is tagged
    (place / "view.json").write_bytes(hint.replace(b"1}", b"2}"))  # by a commit that was slow
    assert len(numbers(place)) == 7
    assert View.of(place).exclude([0]).commit().version == 5


@pytest.mark.parametrize("stop", [0, 1, 2, 3, 5])
def test_a_removal_of_versions_that_was_stopped_is_completed(base, tmp_path, monkeypatch, stop):
    place = tmp_path / "view"
    View.of(base).where("n % 2 == 0").commit(place)
    for number in range(2):
        View.of(place).exclude([number]).commit()
    needed = set(VersionStore(str(place)).read(3)[0].files)
    delete, left = LocalStorage.delete, iter(range(stop))

    def stop_later(self, key):
        if next(left, None) is None:
            raise KeyboardInterrupt
        delete(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete", stop_later)
        with pytest.raises(KeyboardInterrupt):
            expire(place, keep=1, dry_run=False)
    expected = numbers(place)
    files = {f"data/{path.name}" for path in (place / "data").iterdir()}
    assert set(expire(place, keep=1)[1]) >= files - needed
    expire(place, keep=1, dry_run=False)
    assert {f"data/{path.name}" for path in (place / "data").iterdir()} == needed
    assert [path.name for path in (place / "versions").iterdir()] == ["3.json"]
    assert numbers(place) == expected
    assert expire(place, keep=1) == ([], [])


@pytest.mark.parametrize(
    "name", ["../set/index.json", "view.json", "data/../view.json", "data/", 3]
)
def test_a_removal_of_versions_stays_within_the_files_of_rows(base, tmp_path, name):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    (place / "expired.json").write_text(json.dumps({"files": [name]}))
    with pytest.raises(DataError, match=r"expired\.json is damaged: 'files' is"):
        expire(place, keep=1, dry_run=False)


@pytest.mark.parametrize("hint", [2, 3])
def test_a_hint_of_a_tagged_version_before_a_gap_is_not_followed(base, tmp_path, hint):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    for _ in range(5):
        View.of(place).exclude([0]).commit()
    tag(place, "third", 3)
    mine = View.of(place).exclude([0])
    assert len(mine) == 4
    assert expire(place, keep=1, dry_run=False)[0] == [1, 2, 4, 5]
    VersionStore(str(place))._write_hint(hint)  # by a commit that was slow
    assert len(numbers(place)) == 5
    assert mine.commit().version == 7
    VersionStore(str(place))._write_hint(hint)
    assert mine.rebase().commit().version == 8
    assert len(numbers(place)) == 3


@pytest.mark.parametrize("error", [AccessDenied, NotFound])
def test_versions_are_read_from_storages_that_list_none(base, tmp_path, monkeypatch, error):
    def refuse(self, prefix=""):
        raise error("no listings")

    place = tmp_path / "view"
    for n in range(1, 4):
        View.of(base).where(f"n < {n}").commit(place)
    for is_expired in (False, True):
        if is_expired:
            expire(place, keep=1, dry_run=False)
        with monkeypatch.context() as patched:
            patched.setattr(type(VersionStore(str(place))._storage), "list", refuse)
            assert VersionStore(str(place)).latest() == 3


@pytest.mark.parametrize("is_expired", [False, True])
def test_views_are_read_without_the_right_to_list(base, tmp_path, monkeypatch, is_expired):
    place = tmp_path / "view"
    for n in range(1, 4):
        View.of(base).where(f"n < {n}").commit(place)
    if is_expired:
        expire(place, keep=1, dry_run=False)
    storage_class = type(VersionStore(str(place))._storage)

    def deny_missing(method):
        def call(self, key, *args):
            try:
                return method(self, key, *args)
            except NotFound as error:  # as S3 does
                raise AccessDenied(str(error)) from None

        return call

    def refuse(self, prefix=""):
        raise AccessDenied("no listings")

    for name in ("stat", "read", "read_range"):
        monkeypatch.setattr(storage_class, name, deny_missing(getattr(storage_class, name)))
    monkeypatch.setattr(storage_class, "list", refuse)
    assert numbers(place) == [0, 1, 2]
    with pytest.raises(AccessDenied, match=r"nothing/index\.json"):
        numbers(tmp_path / "nothing")


def test_a_commit_does_not_fill_a_gap_that_expired_versions_left(base, tmp_path):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    tag(place, "first", 1)
    for _ in range(3):
        View.of(place).exclude([0]).commit()
    expire(place, keep=1, dry_run=False)
    with pytest.raises(ConflictError, match=r"version 4 that another commit wrote"):
        View.of(place, version="first").where("n > 5").commit()
    assert [version.version for version in log(place)] == [4, 1]


@pytest.mark.parametrize(("old", "new", "added", "removed"), [(1, 2, 10, 0), (2, 1, 0, 10)])
def test_rows_that_are_there_twice_are_counted_twice(base, tmp_path, old, new, added, removed):
    place = tmp_path / "view"
    View.of(base).where("n < 10").commit(place)
    View.of(place).concat(str(place)).commit()
    change = diff(place, old, new)
    assert (change.added, change.removed) == (added, removed)


class NoCreate(Storage):
    """A storage of local files that cannot create a file only if it does not exist."""

    def __init__(self, url, **options):
        super().__init__(url, **options)
        self._inner = open_storage(url.removeprefix("nocreate://"))

    def read(self, key):
        return self._inner.read(key)

    def read_range(self, key, start, stop):
        return self._inner.read_range(key, start, stop)

    def download(self, key, path):
        self._inner.download(key, path)

    def write(self, key, data):
        self._inner.write(key, data)

    def upload(self, path, key):
        self._inner.upload(path, key)

    def stat(self, key):
        return self._inner.stat(key)

    def list(self, prefix=""):
        return self._inner.list(prefix)

    def delete(self, key):
        self._inner.delete(key)


def test_a_storage_that_cannot_create_is_refused(base, tmp_path):
    register_storage("nocreate", NoCreate, replace=True)
    try:
        with pytest.raises(
            StorageError, match="NoCreate cannot create a file only if it does not exist"
        ):
            View.of(base).where("n < 3").commit(f"nocreate://{tmp_path}/view")
    finally:
        unregister("storage", "nocreate")


def commit_often(url, worker, count, log_, options):
    """Commit until as many as wanted have succeeded."""
    chance, done = random.Random(os.getpid()), 0
    while done < count:
        view = View.of(url, storage_options=options)
        try:
            commit = view.exclude([chance.randrange(len(view))]).commit(message=f"{worker}.{done}")
        except ConflictError:
            continue
        done += 1
        with log_.open("ab", buffering=0) as file:  # the commit is acknowledged
            file.write(f"{commit.version} {commit.digest}\n".encode())


def run_campaign(url, tmp_path, workers, commits, kill_every, options=None):
    """Commit from several processes, of which one is killed now and then; return acknowledged commits."""
    logs = [tmp_path / f"log-{worker}" for worker in range(workers)]

    def start(worker):
        done = acknowledged([logs[worker]])
        # A fork has imported what it needs already.
        process = multiprocessing.get_context("fork").Process(
            target=commit_often, args=(url, worker, commits - done, logs[worker], options)
        )
        process.start()
        return process

    # On a busy machine, programs that are killed again and again never get to a commit.
    most_kills = 2 if commits <= 4 else math.inf
    running = [start(worker) for worker in range(workers)]
    chance, kills = random.Random(7), 0
    deadline = time.monotonic() + 3000
    try:
        while acknowledged(logs) < workers * commits and time.monotonic() < deadline:
            time.sleep(chance.random() * kill_every)
            worker = chance.randrange(workers)
            alive = running[worker].is_alive()
            if alive and kills < most_kills and acknowledged([logs[worker]]) < commits:
                running[worker].kill()
                running[worker].join()
                kills += 1
            for number, process in enumerate(running):
                if not process.is_alive() and acknowledged([logs[number]]) < commits:
                    assert process.exitcode == -signal.SIGKILL
                    running[number] = start(number)
    finally:
        for process in running:
            process.kill()
            process.join()
    return [line.split() for log_ in logs for line in log_.read_text().splitlines()], kills


def acknowledged(logs):
    return sum(path.read_bytes().count(b"\n") for path in logs if path.exists())


def check_history(url, lines, **options):
    """Check that the history is linear, and has each acknowledged commit once."""
    versions = log(url, **options)
    assert [v.version for v in versions] == list(range(len(versions), 0, -1))
    for later, earlier in pairwise(versions):
        assert later.parent == earlier.digest
        assert later.samples == earlier.samples - 1
    digests = {v.version: v.digest for v in versions}
    assert len({version for version, _ in lines}) == len(lines)
    assert all(digests[int(version)] == digest for version, digest in lines)


def test_concurrent_commits_with_kills_have_a_linear_history(base, tmp_path):
    """Set STREAMPLUG_TEST_COMMITS=125 for the campaign: 1,000 commits by 8 processes."""
    commits = int(os.environ.get("STREAMPLUG_TEST_COMMITS", "4"))
    workers = 8 if commits > 4 else 3
    place = tmp_path / "view"
    View.of(base).sample(1).exclude([0]).commit(place)
    lines, kills = run_campaign(str(place), tmp_path, workers, commits, 0.5)
    assert len(lines) == workers * commits
    check_history(place, lines)
    if commits > 4:
        assert kills >= 20
        print(json.dumps({"commits": len(lines), "kills": kills}))
    unfinished = list(Path(place).rglob(".streamplug-*"))
    assert len(unfinished) <= kills
    assert len(numbers(place)) == log(place)[0].samples


@pytest.fixture
def bucket(request):
    """Return the location of an empty bucket of a real client and server, and the options of its storage."""
    name = f"views-{random.randrange(10**9)}"
    if request.param == "s3":
        pytest.importorskip("streamplug_s3fs")
        place, options = request.getfixturevalue("s3_place")
        return place.rpartition("/")[0], options
    if request.param == "gs":
        pytest.importorskip("streamplug_gcsfs")
        requests = pytest.importorskip("requests")
        server = request.getfixturevalue("gcs_server")
        requests.post(f"{server}/storage/v1/b", json={"name": name}, timeout=30).raise_for_status()
        return f"gs://{name}", {"endpoint_url": server, "anon": True}
    pytest.importorskip("streamplug_adlfs")
    blob = pytest.importorskip("azure.storage.blob")
    server = request.getfixturevalue("azure_server")
    options = {
        "endpoint_url": f"{server}/{ACCOUNT}",
        "account_name": ACCOUNT,
        "account_key": KEY,
    }
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    with blob.BlobServiceClient(options["endpoint_url"], credential) as client:
        client.create_container(name)
    return f"az://{name}", options


@pytest.mark.parametrize("bucket", ["s3", "gs", "az"], indirect=True)
def test_concurrent_commits_to_object_stores(tmp_path, bucket):
    """Set STREAMPLUG_TEST_COMMITS=125 for the campaign: 1,000 commits by 8 processes on each server."""
    url, options = bucket
    commits = int(os.environ.get("STREAMPLUG_TEST_COMMITS", "2"))
    workers = 8 if commits > 4 else 2
    write_numbers(f"{url}/set", storage_options=options)
    place = f"{url}/views/one"
    View.of(f"{url}/set", storage_options=options).exclude([0]).commit(place)
    lines, kills = run_campaign(
        place, tmp_path, workers, commits, 5.0 if commits > 4 else 2.0, options
    )
    assert len(lines) == workers * commits
    check_history(place, lines, storage_options=options)
    if commits > 4:
        print(json.dumps({"commits": len(lines), "kills": kills}))
    dataset = StreamingDataset(remote=place, local=str(tmp_path / "cache"), storage_options=options)
    found = sorted(int(row["n"]) for row in dataset)
    assert len(found) == log(place, storage_options=options)[0].samples
    assert log(place, storage_options=options)[0].sources == ["../../set"]
