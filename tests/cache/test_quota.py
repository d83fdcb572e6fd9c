from __future__ import annotations

import multiprocessing
import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.cache import quota as room_module
from streamplug.cache.quota import CacheQuota
from streamplug.cache.staging import staging_path
from streamplug.transfer.locks import STATE_DIR, cache_lock, file_lock, make_sibling_state


def put(room: CacheQuota, name: str, size: int) -> None:
    with (
        cache_lock(room.root, name),
        room.reserve(name, size) as admit,
        staging_path(room.root, name) as part,
    ):
        part.write_bytes(b"x" * size)
        admit(part, room.root / name)


def age(root: Path, *names: str) -> None:
    """Let files have been used in this order."""
    for number, name in enumerate(names):
        os.utime(root / name, (1000 + number, 1000 + number))


def there(root: Path) -> set[str]:
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {path.as_posix() for path in found if path.parts[0] != STATE_DIR}


def total(root: Path) -> int:
    return sum((root / name).stat().st_size for name in there(root))


def used(root: Path) -> int:
    return int((root / STATE_DIR / "used").read_text().split()[1])


def test_the_file_not_used_for_longest_goes(tmp_path):
    room = CacheQuota(tmp_path, 100)
    for name in "abc":
        put(room, name, 30)
    age(tmp_path, "b", "a", "c")
    put(room, "d", 30)
    assert there(tmp_path) == {"a", "c", "d"}
    assert used(tmp_path) == 90


def test_as_many_go_as_are_needed(tmp_path):
    room = CacheQuota(tmp_path, 100)
    for name in "abcd":
        put(room, name, 25)
    age(tmp_path, *"abcd")
    put(room, "sub/e", 60)
    assert there(tmp_path) == {"d", "sub/e"}
    put(room, "f", 100)
    assert there(tmp_path) == {"f"}


def test_of_many_files_some_more_go_so_that_the_next_finds_room(tmp_path, monkeypatch):
    room = CacheQuota(tmp_path, 1000)
    for number in range(100):
        put(room, f"{number:02d}", 10)
    age(tmp_path, *(f"{number:02d}" for number in range(100)))
    looks = []
    evict = CacheQuota._evict
    monkeypatch.setattr(CacheQuota, "_evict", lambda *args: looks.append(1) or evict(*args))
    for number in range(100, 107):
        put(room, str(number), 10)
    assert len(looks) == 1
    assert there(tmp_path) == {f"{number:02d}" for number in range(7, 107)}


def test_a_file_larger_than_its_reservation_counts_in_full(tmp_path):
    room = CacheQuota(tmp_path, 100)
    with (
        cache_lock(tmp_path, "a"),
        room.reserve("a", 10) as commit,
        staging_path(tmp_path, "a") as part,
    ):
        part.write_bytes(b"x" * 70)
        commit(part, tmp_path / "a")
        assert used(tmp_path) == 70
    age(tmp_path, "a")
    put(room, "b", 40)
    assert there(tmp_path) == {"b"}
    assert used(tmp_path) == 40


def test_a_state_directory_that_appears_beside_the_cache_is_used_at_once(tmp_path):
    cache = tmp_path / "cache"
    core = CacheQuota(cache, 100)
    make_sibling_state(cache)  # by the compatibility alias, in another process
    alias = CacheQuota(cache, 100)
    put(core, "a", 60)
    age(cache, "a")
    put(alias, "b", 60)
    assert there(cache) == {"b"}


def test_without_a_limit_nothing_goes_and_everything_is_listed(tmp_path):
    room = CacheQuota(tmp_path, None)
    for name in "abc":
        put(room, name, 1000)
    age(tmp_path, *"abc")
    assert there(tmp_path) == set("abc")
    put(CacheQuota(tmp_path, 2500), "d", 500)
    assert there(tmp_path) == set("bcd")


def test_a_limit_takes_note_of_what_came_without_one(tmp_path):
    limited, free = CacheQuota(tmp_path, 100), CacheQuota(tmp_path, None)
    put(limited, "a", 50)
    put(free, "b", 40)
    age(tmp_path, "a", "b")
    put(limited, "c", 50)
    assert there(tmp_path) == {"b", "c"}


def test_what_others_put_there_is_never_removed(tmp_path):
    (tmp_path / "mine.mds").write_bytes(b"x" * 500)
    os.utime(tmp_path / "mine.mds", (1, 1))
    room = CacheQuota(tmp_path, 100)
    for number in range(10):
        put(room, str(number), 60)
    assert there(tmp_path) == {"mine.mds", "9"}


@pytest.mark.parametrize("text", [b"", b"12", b"x y\n", b"5 5", b"0 0\n", b"-1 -1\n", b"\xff"])
def test_a_damaged_account_is_made_anew(tmp_path, text):
    room = CacheQuota(tmp_path, 100)
    put(room, "a", 60)
    (tmp_path / STATE_DIR / "used").write_bytes(text)
    put(room, "b", 60)
    assert there(tmp_path) == {"b"}
    assert used(tmp_path) == 60


def test_files_that_are_gone_do_not_count(tmp_path):
    room = CacheQuota(tmp_path, 100)
    put(room, "a", 60)
    put(room, "b", 30)
    (tmp_path / "a").unlink()
    put(room, "c", 60)
    assert there(tmp_path) == {"b", "c"}
    assert used(tmp_path) == 90


def test_a_torn_or_hostile_list_removes_nothing_outside(tmp_path):
    root = tmp_path / "cache"
    room = CacheQuota(root, 100)
    put(room, "a", 60)
    outside = tmp_path / "precious"
    outside.write_bytes(b"x" * 60)
    with (root / STATE_DIR / "files").open("ab") as stream:
        stream.write(b'"../precious"\n["x"]\n"' + bytes(outside).replace(b'"', b"") + b'"\n"to')
    put(room, "b", 60)
    put(room, "c", 60)
    assert there(root) == {"c"}
    assert outside.exists()


def test_a_clock_that_was_set_back_does_not_keep_files_for_ever(tmp_path):
    room = CacheQuota(tmp_path, 100)
    for name in "ab":
        put(room, name, 40)
    ahead = time.time() + 86400
    os.utime(tmp_path / "a", (ahead, ahead))
    os.utime(tmp_path / "b", (ahead + 1, ahead + 1))
    put(room, "c", 40)  # one went, the others have begun to age
    (kept,) = there(tmp_path) & set("ab")
    time.sleep(0.01)
    os.utime(tmp_path / "c")
    put(room, "d", 40)
    assert there(tmp_path) == {"c", "d"}
    assert kept == "b"


def test_bytes_set_aside_count_until_their_maker_lets_go(tmp_path):
    room = CacheQuota(tmp_path, 100)
    put(room, "a", 50)
    with cache_lock(tmp_path, "b"):
        with room.reserve("b", 50):
            put(room, "c", 40)  # nothing but "a" could go
            assert there(tmp_path) == {"c"}
            assert used(tmp_path) == 90
            (tmp_path / STATE_DIR / "used").unlink()
            put(room, "d", 10)  # the same by looking
            assert there(tmp_path) == {"c", "d"}
            assert used(tmp_path) == 100
        assert used(tmp_path) == 50


def test_bytes_that_a_dead_process_set_aside_do_not_count(tmp_path):
    room = CacheQuota(tmp_path, 100)
    context = multiprocessing.get_context("fork")

    def die() -> None:
        with cache_lock(tmp_path, "b"), room.reserve("b", 90), staging_path(tmp_path, "b") as part:
            part.write_bytes(b"x" * 90)
            os.kill(os.getpid(), 9)

    process = context.Process(target=die)
    process.start()
    process.join()
    assert len(list((tmp_path / STATE_DIR / "tmp").iterdir())) == 2
    put(room, "a", 50)
    assert used(tmp_path) == 50
    assert list((tmp_path / STATE_DIR / "tmp").iterdir()) == []


def test_what_does_not_fit_beside_what_is_being_made_is_made_all_the_same(tmp_path):
    room = CacheQuota(tmp_path, 100)
    with cache_lock(tmp_path, "a"), room.reserve("a", 80):
        put(room, "b", 80)
        assert there(tmp_path) == {"b"}
        with cache_lock(tmp_path, "c"), room.reserve("c", 80) as admit:
            with staging_path(tmp_path, "c") as part:
                part.write_bytes(b"x" * 80)
                admit(part, tmp_path / "c")
            os.utime(tmp_path / "c", (1, 1))
    # In the end they do not stay side by side.
    assert there(tmp_path) == {"c"}
    assert used(tmp_path) == 80


def test_files_that_were_made_side_by_side_do_not_stay_so(tmp_path):
    room = CacheQuota(tmp_path, 100)
    with ExitStack() as stack:
        for name in "abcde":
            stack.enter_context(cache_lock(tmp_path, name))
            admit = stack.enter_context(room.reserve(name, 40))
            part = stack.enter_context(staging_path(tmp_path, name))
            part.write_bytes(b"x" * 40)
            admit(part, tmp_path / name)
    assert len(there(tmp_path)) == 2
    assert used(tmp_path) == 80


def test_a_limit_that_is_too_small_for_what_is_read_is_told_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(room_module, "_warned", set())
    room = CacheQuota(tmp_path, 100)
    put(room, "old", 60)
    age(tmp_path, "old")
    put(room, "a", 60)
    assert caplog.records == []
    for name in "bcd":
        put(room, name, 60)
    (record,) = caplog.records
    assert "cache_limit=100 is less than the shards in use at once" in record.getMessage()


def test_a_limit_is_not_called_too_small_where_the_disk_is_full(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(room_module, "_warned", set())
    monkeypatch.setattr(room_module, "_RECENT_USE_SECONDS", 600)
    room = CacheQuota(tmp_path, 100)
    put(room, "a", 40)
    room.shrink(40)
    (record,) = caplog.records
    assert "room for 40 bytes on a full disk is less than the shards" in record.getMessage()
    assert "make room on the disk, or lower" in record.getMessage()


def test_a_full_disk_makes_a_limited_cache_smaller(tmp_path):
    room = CacheQuota(tmp_path, 100)
    for name in "abc":
        put(room, name, 30)
    age(tmp_path, *"abc")
    room.shrink(40)
    assert there(tmp_path) == {"c"}
    assert used(tmp_path) == 30
    CacheQuota(tmp_path, None).shrink(40)
    assert there(tmp_path) == {"c"}
    room.shrink(1000)
    assert there(tmp_path) == set()


@given(st.data())
def test_the_limit_and_the_account_hold_whatever_is_done(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("room")
    limit = data.draw(st.integers(10, 60))
    rooms = [CacheQuota(root, limit), CacheQuota(root, limit), CacheQuota(root, None)]
    for _ in range(data.draw(st.integers(1, 25))):
        room = data.draw(st.sampled_from(rooms))
        name = data.draw(st.sampled_from("abcdefgh"))
        action = data.draw(st.sampled_from(["put", "put", "remove", "touch", "forget"]))
        if action == "put":
            put(room, name, data.draw(st.integers(0, 10)))
        elif action == "remove":
            (root / name).unlink(missing_ok=True)
        elif action == "touch" and (root / name).exists():
            os.utime(root / name)
        elif action == "forget":
            (root / STATE_DIR / "used").unlink(missing_ok=True)
        if action == "put" and room.limit is not None:
            assert total(root) <= limit
            assert total(root) <= used(root)
            assert (root / name).exists()


def _churn(root: str, seed: int) -> None:
    draw, room = random.Random(seed), CacheQuota(Path(root), 300)
    for _ in range(150):
        name = f"f{draw.randrange(30)}"
        with cache_lock(room.root, name):
            if (room.root / name).exists():
                continue
            size = draw.randrange(1, 60)
            with room.reserve(name, size) as admit, staging_path(room.root, name) as part:
                part.write_bytes(b"x" * size)
                admit(part, room.root / name)
                if draw.random() < 0.01:
                    os._exit(1)


@pytest.mark.parametrize("seed", range(3))
def test_processes_keep_one_account(tmp_path, seed):
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_churn, args=(str(tmp_path), 10 * seed + number))
        for number in range(4)
    ]
    for process in processes:
        process.start()
    most = 0
    while any(process.is_alive() for process in processes):
        # A listing made meanwhile would be of no one moment: it could count what went and what came.
        with file_lock(tmp_path / STATE_DIR / "lock.room", "to look"):
            most = max(most, total(tmp_path))
        time.sleep(0.001)
    for process in processes:
        process.join()
    assert 240 < most <= 300
    put(CacheQuota(tmp_path, 300), "last", 1)
    assert total(tmp_path) <= used(tmp_path) <= 300
    (tmp_path / STATE_DIR / "used").unlink()
    put(CacheQuota(tmp_path, 300), "last of all", 1)
    assert used(tmp_path) == total(tmp_path)


def test_a_file_is_counted_although_its_reservation_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(room_module, "_MAX_LOCK_SECONDS", 0.05)
    room = CacheQuota(tmp_path, 100)
    put(room, "a", 10)
    with ExitStack() as held, cache_lock(tmp_path, "b"):
        held.enter_context(file_lock(tmp_path / STATE_DIR / "lock.room", "to hold others up"))
        with room.reserve("b", 40) as admit, staging_path(tmp_path, "b") as part:
            held.close()
            part.write_bytes(b"x" * 40)
            admit(part, tmp_path / "b")
    assert used(tmp_path) == total(tmp_path) == 50
    put(room, "c", 60)
    assert total(tmp_path) <= 100


def test_files_that_are_listed_without_the_lock_are_kept(tmp_path, monkeypatch):
    room = CacheQuota(tmp_path, 100)
    put(room, "a", 60)
    stat_files = room._stat_files

    def stat_and_wait():
        files = stat_files()
        room._append(
            tmp_path / "late"
        )  # by another process, as this one holds the lock for too long
        return files

    monkeypatch.setattr(room, "_stat_files", stat_and_wait)
    put(room, "b", 60)
    assert room._read_list() == ["late", "b"]
