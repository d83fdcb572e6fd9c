"""A process that reads a data set through a small cache until it is killed, or once; `TASK` says which.

What it is about to do, and has done, stands in a journal: so it is known in the midst of what it died.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

from streamplug.dataset import StreamingDataset

TASK = globals()["TASK"]
PLACES = {
    "download": "streamplug_fsspec.http:HttpStorage.download",
    "check": "streamplug.cache.store:verify_file",
    "decompression": "streamplug.builtin.compressions.gzip:Gzip.decompress_stream",
    "eviction": "streamplug.cache.quota:CacheQuota._evict",
    "admission": "streamplug.cache.quota:CacheQuota._place",
}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Lines:
    """Kills this process at the n-th line of streamplug's that runs within what is traced."""

    def __init__(self, number):
        self.left = number

    def __call__(self, frame, event, _):
        if "streamplug" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left <= 0:
                die()
        return self


def watched(name, original, journal, aim):
    def wrapper(*args, **kwargs):
        me = threading.get_ident()
        os.write(journal, f"+{name} {me}\n".encode())
        try:
            if aim is None:
                return original(*args, **kwargs)
            if name == "download":  # its lines are few, and most of it is waiting
                threading.Thread(target=lambda: (time.sleep(aim[1]), die()), daemon=True).start()
                return original(*args, **kwargs)
            before = sys.gettrace()
            sys.settrace(aim[2])
            try:
                return original(*args, **kwargs)
            finally:
                sys.settrace(before)
        finally:
            os.write(journal, f"-{name} {me}\n".encode())

    return wrapper


def watch(journal):
    aim = TASK.get("aim")
    for name, place in PLACES.items():
        module, _, path = place.partition(":")
        owner = import_module(module)
        *parents, last = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        mine = (*aim[:2], Lines(aim[1])) if aim and aim[0] == name else None
        setattr(owner, last, watched(name, getattr(owner, last), journal, mine))


def in_shared_memory():
    """Return what this process has of /dev/shm, open or mapped."""
    found = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except OSError:
            continue
    return [name for name in found if name.startswith("/dev/shm/")]


def main():
    signal.alarm(TASK["leash"])
    journal = os.open(TASK["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    watch(journal)
    dataset = StreamingDataset(
        remote=TASK["remote"],
        local=TASK["local"],
        cache_limit=TASK["limit"],
        keep_zip=TASK["keep_zip"],
        shuffle=True,
        shuffle_seed=TASK["seed"],
        shuffle_block_size=32,
        predownload=32,
        batch_size=4,
    )
    if not TASK["endless"]:
        left = list(Path(TASK["local"], ".streamplug", "tmp").glob("*"))
        if left:
            raise RuntimeError(f"left over: {left}")
    os.write(journal, b"begun\n")
    while True:
        seen = []
        for sample in dataset:
            number = sample["id"]
            content = hashlib.blake2b(number.to_bytes(4, "little")).digest() * (12 + number % 5)
            if sample["data"] != content:
                raise ValueError(f"sample {number} is damaged")
            seen.append(number)
        if set(seen) != set(range(TASK["size"])):
            raise ValueError(f"read {len(seen)} of {TASK['size']} samples")
        if not TASK["endless"]:
            break
    if found := in_shared_memory():
        raise RuntimeError(f"in shared memory: {found}")


main()
