"""States in which a loss of power may leave a directory, for real code that writes to it.

`Recorder` notes what this process does to a directory: writes, syncs, and changes of names. `Crash` makes of
a prefix of that the states that POSIX allows: what was written after a file was last synced may be lost or
partly there; a name that was made, changed or removed after its directory was last synced may or may not be
so, each independently of the others. ALICE and CrashMonkey look for defects of file systems' users in this
way.
"""

from __future__ import annotations

import os
import pathlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

TIME = 1_700_000_000
BACKGROUND_SECONDS = 0.02
"""What syncs in the background take, so that much is not synced yet while others go on."""

_CHANGES = ("unlink", "remove", "rmdir", "mkdir", "link", "rename", "replace")


@dataclass(eq=False)
class Node:
    """A file or a directory; `inode` is that of the real one."""

    inode: int
    entries: dict[str, Node] | None = None  # of a directory
    content: bytes = b""


@dataclass(frozen=True)
class Write:
    """A file has this content, though perhaps not on the disk."""

    node: Node
    content: bytes


@dataclass(frozen=True, eq=False)
class Names:
    """Names change, all of them or none; they last when the directory of the last one is synced."""

    entries: tuple[tuple[Node, str, Node | None], ...]


@dataclass(frozen=True)
class Sync:
    """A file or a directory is synced."""

    node: Node


class Recorder:
    """Records what this process does below a directory, while the context lasts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.RLock()
        self._top = Node(root.stat().st_ino, {})
        self._unnamed: dict[int, Node] = {}  # files that were synced before they had a name
        self.log: list[Write | Names | Sync] = []

    def __enter__(self) -> Recorder:
        self._scan()
        self.num_before = len(self.log)  # what there was is on the disk
        self._patch = pytest.MonkeyPatch()
        owners = [os, *filter(None, [getattr(pathlib, "_NormalAccessor", None)])]  # of Python 3.10
        for owner in owners:
            for name in _CHANGES:
                if hasattr(owner, name):
                    original = getattr(os, name)
                    wrapper = self._changing(name, original)
                    self._patch.setattr(
                        owner, name, wrapper if owner is os else staticmethod(wrapper)
                    )
        self._patch.setattr(os, "fsync", self._sync)
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.undo()
        self._scan()

    def _changing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._scan()
                result = original(*args, **kwargs)
                if name in ("rename", "replace"):
                    self._note_rename(*args[:2])
                self._scan()
                return result

        return call

    def _note_rename(self, source: Any, target: Any) -> None:
        places = [self._place(path) for path in (source, target)]
        if None in places:
            return
        (folder, name), (new_folder, new_name) = places
        node = folder.entries.pop(name, None)
        if node is not None:
            new_folder.entries[new_name] = node
            self.log.append(Names(((folder, name, None), (new_folder, new_name, node))))

    def _place(self, path: Any) -> tuple[Node, str] | None:
        try:
            *parts, name = Path(os.path.abspath(os.fspath(path))).relative_to(self._root).parts  # noqa: PTH100
        except ValueError:
            return None
        node = self._top
        for part in parts:
            node = (node.entries or {})[part]
        return node, name

    def _sync(self, descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(BACKGROUND_SECONDS)
        with self._lock:
            self._scan()
            status = os.fstat(descriptor)
            node = self._nodes().get(status.st_ino)
            if not status.st_nlink:
                content = os.pread(descriptor, status.st_size, 0)
                node = self._unnamed[status.st_ino] = Node(status.st_ino, content=content)
                self.log.append(Write(node, content))
            if node is not None:
                self.log.append(Sync(node))

    def _nodes(self) -> dict[int, Node]:
        nodes, pending = {}, [self._top]
        while pending:
            node = pending.pop()
            nodes[node.inode] = node
            pending += (node.entries or {}).values()
        return nodes

    def _scan(self) -> None:
        """Note what has changed otherwise: new files, their content, and what was removed."""
        with self._lock:
            self._scan_folder(self._top, str(self._root), self._nodes())

    def _scan_folder(self, folder: Node, path: str, nodes: dict[int, Node]) -> None:
        entries = {entry.name: entry for entry in os.scandir(path)}
        known = folder.entries
        assert known is not None
        for name in [name for name in known if name not in entries]:
            del known[name]
            self.log.append(Names(((folder, name, None),)))
        for name, entry in sorted(entries.items()):
            node, is_folder = known.get(name), entry.is_dir(follow_symlinks=False)
            if node is None or node.inode != entry.inode():
                unnamed = self._unnamed.pop(entry.inode(), None)
                node = nodes.get(entry.inode()) or (None if is_folder else unnamed)
                node = node or Node(entry.inode(), {} if is_folder else None)
                known[name] = node
                self.log.append(Names(((folder, name, node),)))
            if is_folder:
                self._scan_folder(node, entry.path, nodes)
                continue
            content = Path(entry.path).read_bytes()
            if content != node.content:
                node.content = content
                self.log.append(Write(node, content))


@dataclass
class Crash:
    """The choices that a loss of power has after a prefix of a log."""

    top: Node
    lasting: list[tuple[Names, bool]]  # changes of names in order, and whether they must have come
    versions: dict[Node, list[bytes]] = field(
        default_factory=dict
    )  # of each file, the synced one first

    @classmethod
    def after(cls, recorder: Recorder, count: int) -> Crash:
        """Return the choices after so many of the recorded operations."""
        log = recorder.log[: recorder.num_before + count]
        crash = cls(recorder._top, [])
        synced: dict[Node, int] = {}  # when each was last synced
        for at, event in enumerate(log):
            if isinstance(event, Sync):
                synced[event.node] = at
        for at, event in enumerate(log):
            is_base = at < recorder.num_before
            if isinstance(event, Names):
                must = is_base or synced.get(event.entries[-1][0], -1) > at
                crash.lasting.append((event, must))
            elif isinstance(event, Write):
                lasts = is_base or synced.get(event.node, -1) > at
                known = crash.versions.setdefault(event.node, [b""])
                crash.versions[event.node] = [event.content] if lasts else [*known, event.content]
        return crash

    @property
    def optional(self) -> list[Names]:
        return [event for event, must in self.lasting if not must]

    def state(
        self, names: Callable[[Names], bool], content: Callable[[list[bytes]], bytes]
    ) -> dict[str, bytes | None]:
        """Return the files by path, None for a directory: with the changes of names, and contents, chosen."""
        folders: dict[Node, dict[str, Node]] = {}
        for event, must in self.lasting:
            if must or names(event):
                for folder, name, node in event.entries:
                    entries = folders.setdefault(folder, {})
                    entries.pop(name, None)
                    if node is not None:
                        entries[name] = node
        contents: dict[Node, bytes] = {}
        tree: dict[str, bytes | None] = {}
        pending = [("", self.top)]
        while pending:
            path, node = pending.pop()
            for name, child in folders.get(node, {}).items():
                place = f"{path}{name}"
                if child.entries is not None:
                    tree[place] = None
                    pending.append((f"{place}/", child))
                    continue
                if child not in contents:
                    versions = self.versions.get(child, [b""])
                    contents[child] = versions[0] if len(versions) == 1 else content(versions)
                tree[place] = contents[child]
        return tree


def tear(versions: list[bytes], draw: random.Random) -> bytes:
    """Return what may be in a file that was not synced: one of its contents, or a part of one."""
    whole = draw.choice(versions)
    cut = draw.randint(0, len(whole))
    zeros = bytes(len(whole) - cut)
    return draw.choice([whole, whole[:cut], whole[:cut] + zeros, bytes(len(whole)), b""])


def prefixes(recorder: Recorder) -> Iterator[tuple[bool, dict[str, bytes | None]]]:
    """Yield the most telling states after each prefix, and whether the recorded code had ended."""
    count = len(recorder.log) - recorder.num_before
    contents: list[Callable[[list[bytes]], bytes]] = [
        lambda versions: versions[0],
        lambda versions: versions[-1],
        lambda versions: bytes(len(versions[-1])),
        lambda versions: versions[-1][: len(versions[-1]) // 2],
    ]
    for done in range(count + 1):
        crash = Crash.after(recorder, done)
        last = done == count
        for content in contents:
            yield last, crash.state(lambda _: True, content)
            yield last, crash.state(lambda _: False, content)
        for one in crash.optional:
            for content in contents[:2]:
                yield last, crash.state(lambda event, one=one: event is one, content)
                yield last, crash.state(lambda event, one=one: event is not one, content)


def reorderings(
    recorder: Recorder, number: int, seed: int
) -> Iterator[tuple[bool, dict[str, bytes | None]]]:
    """Yield so many random states."""
    draw = random.Random(seed)
    count = len(recorder.log) - recorder.num_before
    crashes: dict[int, Crash] = {}
    for _ in range(number):
        done = draw.randint(0, count)
        crash = crashes.setdefault(done, Crash.after(recorder, done))
        share = draw.choice([0.2, 0.5, 0.8])
        chosen = {event for event in crash.optional if draw.random() < share}
        yield done == count, crash.state(chosen.__contains__, lambda found: tear(found, draw))


def lay_out(state: dict[str, bytes | None], folder: Path) -> None:
    """Write a state to a new directory; all files have one time, which is the version of some."""
    folder.mkdir()
    for name in sorted(state):
        content = state[name]
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
            os.utime(folder / name, (TIME, TIME))
