"""Defects that are planted in the code, one at a time, to see whether the simulated world finds them.

The list was made before any of them was run. Each function changes the modules of this process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamplug.cache import quota, staging, store
from streamplug.cache.quota import BootRecord, CacheQuota
from streamplug.cache.store import ShardStore
from streamplug.errors import Transient
from streamplug.plan import Position, state
from streamplug.transfer import download, locks, pool, retry, stall_timeout

DEFECTS: dict[str, Callable[[], None]] = {}


def defect(plant: Callable[[], None]) -> Callable[[], None]:
    DEFECTS[plant.__name__.replace("_", " ")] = plant
    return plant


@contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[bool]:
    yield True


@defect
def the_lock_of_a_shard_is_not_taken() -> None:
    store.cache_lock = _nothing


@defect
def the_lock_of_a_shard_is_released_early() -> None:
    real = locks.cache_lock

    @contextmanager
    def early(*arguments: Any) -> Iterator[None]:
        with real(*arguments):
            pass
        yield

    store.cache_lock = early


@defect
def the_lock_of_the_quota_is_not_taken() -> None:
    quota.file_lock = _nothing


@defect
def eviction_forgets_the_new_file() -> None:
    make_room = CacheQuota._make_room
    CacheQuota._make_room = lambda self, size, limit: make_room(self, 0, limit)


@defect
def reservations_do_not_count() -> None:
    def forget(directory: Path) -> int:
        staging.remove_stale_files(directory)
        return 0

    quota.remove_stale_files = forget


@defect
def a_reservation_is_released_twice() -> None:
    release = CacheQuota._release

    def twice(self: CacheQuota, size: int, limit: int) -> None:
        release(self, size, limit)
        release(self, max(size, 4000), limit)

    CacheQuota._release = twice


@defect
def a_file_is_listed_after_its_rename() -> None:
    append, place = CacheQuota._append, CacheQuota._place

    def late(self: CacheQuota, part: Path, path: Path, *rest: Any, **options: Any) -> None:
        self._append = lambda path: None
        place(self, part, path, *rest, **options)
        append(self, path)

    CacheQuota._place = late


@defect
def a_file_is_copied_to_its_place() -> None:
    def copy(part: Path, path: Path, **_: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("rb") as source, path.open("wb") as target:
            target.truncate(part.stat().st_size)
            path.stat()
            shutil.copyfileobj(source, target)

    quota.commit_file = copy


@defect
def downloads_are_not_verified() -> None:
    store.verify_file = lambda *_: None


@defect
def nothing_is_tried_again() -> None:
    download.call_with_retries = lambda operation, retries: operation()


@defect
def damage_is_not_fetched_again() -> None:
    retry.RETRYABLE_ERRORS = (Transient,)


@defect
def a_server_that_stalls_is_waited_for() -> None:
    wait = stall_timeout._wait
    stall_timeout._wait = lambda job, url, _, *rest: wait(job, url, float("inf"), *rest)


@defect
def a_stopped_holder_of_a_lock_is_waited_for() -> None:
    locks._StallClock.has_stalled = lambda self: False


@defect
def leftovers_of_the_dead_stay() -> None:
    quota.remove_stale_files = lambda directory: 0


@defect
def leftovers_of_the_living_are_removed() -> None:
    staging.try_file_lock = _nothing


@defect
def the_boot_is_ignored() -> None:
    BootRecord.__contains__ = lambda self, name: True


@defect
def the_size_of_a_cached_file_is_not_checked() -> None:
    store.is_complete = lambda path, file: path.exists()


@defect
def a_full_disk_is_not_tried_again() -> None:
    ShardStore._may_retry = lambda self, error, file: isinstance(error, FileNotFoundError)


@defect
def a_job_that_fails_wakes_nobody() -> None:
    def run(self: Any, before_end: Callable[[], object] = lambda: None) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error
            before_end()
            return
        before_end()
        self._done.set()

    pool.Job.run = run


@defect
def the_state_is_one_step_behind() -> None:
    save = state.save

    def behind(*arguments: Any, **options: Any) -> Any:
        saved = save(*arguments, **options)
        if saved["sample_in_epoch"] >= 12:
            saved["sample_in_epoch"] -= 12
        return saved

    state.save = behind


@defect
def resuming_skips_a_step() -> None:
    load = state.load

    def ahead(*arguments: Any, **options: Any) -> Position:
        position = load(*arguments, **options)
        return replace(position, done=position.done + 12 * (position.done > 0))

    state.load = ahead


@defect
def an_evicted_file_is_not_noticed() -> None:
    ShardStore.touch = lambda self, paths: True
