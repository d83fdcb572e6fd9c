"""Threads, processes, machines and a clock, simulated in one thread of the operating system.

`install` replaces what programs ask of the system: threads, locks, clocks, pauses, and calls for files. It
must run before the code under test is imported. In a simulated thread, which is a greenlet, each of these
calls may hand over to another one; a `Kernel` draws to which, and how much time passes, from one seed.
Elsewhere, calls do as before.

Files are real, in a directory of each simulated machine. Locks of files are real, too: a process that is
killed loses its descriptors, as the system would take them, and its threads never run again.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - keeps the locks of the system
import builtins
import concurrent.futures.thread  # noqa: F401
import fcntl
import io
import logging  # noqa: F401
import os
import queue
import random
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet

START = 1_800_000_000.0
_SWITCHES = 0.4  # share of system calls after which another thread may run
_CALL_SECONDS = 0.0001

real_time = time.monotonic
_kernel: Kernel | None = None
_SystemLock = threading.Lock


class Failure(Exception):
    """An invariant does not hold."""


class Machine:
    """A machine with a disk.

    Attributes:
        root: Directory of its files.
        boot: Its boot ID.
        dirty: Inodes of files whose content is not synced.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True)
        self.root, self.boot = root, "boot-0"
        self.dirty: set[int] = set()

    def crash(self, draw: random.Random) -> None:
        """Lose what was not synced: a file keeps its name, perhaps its size, and not all of its content."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and path.stat().st_ino in self.dirty and draw.random() < 0.5:
                data = path.read_bytes()
                kept = draw.choice([0, len(data) // 2])  # pages that were on the disk
                path.write_bytes(data[:kept] + bytes(len(data) - kept) * (draw.random() < 0.7))
        self.dirty.clear()
        self.boot = f"boot-{draw.randrange(1 << 30)}"


class Process:
    """A process of a machine; its modules' state is its own.

    Attributes:
        frozen_until: Time before which none of its threads runs.
    """

    def __init__(self, machine: Machine, pid: int, state: dict[tuple[Any, str], Any]) -> None:
        self.machine, self.pid, self.state = machine, pid, state
        self.is_alive, self.frozen_until = True, 0.0
        self.descriptors: set[int] = set()
        self.files: list[Any] = []


class Task:
    """A thread."""

    def __init__(self, process: Process, run: Callable[[], object], hub: greenlet) -> None:
        self.process, self.wake = process, 0.0
        self.ready: Callable[[], bool] | None = None
        self.is_done, self.error = False, None
        self._run = run
        self.greenlet = greenlet(self._start, hub)

    def _start(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = error
        self.is_done = True


class Kernel:
    """Runs simulated threads in an order drawn from a seed."""

    def __init__(self, seed: int, state: list[tuple[Any, str, Callable[[], Any]]]) -> None:
        global _kernel  # noqa: PLW0603 - calls of the system find it there
        self.draw = random.Random(seed)
        self.now, self.steps = START, 0
        self._state, self._hub = state, getcurrent()
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.events: list[tuple[float, Callable[[], object]]] = []
        self._pids, self._loaded = 1000, None
        self._dead: list[Task] = []  # whose frames must not be unwound
        _kernel = self

    def start(self, machine: Machine, run: Callable[[], object]) -> Process:
        """Start a process with one thread."""
        self._pids += 1
        state = {(module, name): make() for module, name, make in self._state}
        process = Process(machine, self._pids, state)
        self.spawn(process, run)
        return process

    def spawn(self, process: Process, run: Callable[[], object]) -> Task:
        """Start a thread."""
        task = Task(process, run, self._hub)
        task.wake = self.now
        self.tasks.append(task)
        return task

    def kill(self, process: Process) -> None:
        """Kill a process: its threads never run again, and its descriptors are closed."""
        process.is_alive = False
        self._dead += [task for task in self.tasks if task.process is process]
        self.tasks = [task for task in self.tasks if task.process is not process]
        nothing = _calls["open"](os.devnull, os.O_RDWR)
        open_files = [file.fileno() for file in process.files if not file.closed]
        for descriptor in {*process.descriptors, *open_files}:
            os.dup2(nothing, descriptor)  # numbers stay taken: objects of dead threads have them
        _calls["close"](nothing)

    def at(self, when: float, act: Callable[[], object]) -> None:
        """Do something at a time."""
        self.events.append((when, act))

    def run(self, until: Callable[[], bool], check: Callable[[], object], limit: float) -> None:
        """Run threads until a condition holds.

        Raises:
            Failure: If it does not by the time `limit`, or nothing can run any more.
        """
        while not until():
            due = [event for event in self.events if event[0] <= self.now]
            for event in due:
                self.events.remove(event)
                event[1]()
            ready = [task for task in self.tasks if self._may_run(task)]
            if not ready:
                self._advance()
            else:
                self._switch(self.draw.choice(ready))
                check()
            if self.now > limit:
                raise Failure(f"no end after {limit - START:g} simulated seconds")

    def _may_run(self, task: Task) -> bool:
        if task.process.frozen_until > self.now:
            return False
        return task.wake <= self.now or (task.ready is not None and task.ready())

    def _advance(self) -> None:
        times = [max(task.wake, task.process.frozen_until) for task in self.tasks]
        times += [when for when, _ in self.events]
        self.now = max(min(times, default=float("inf")), self.now)
        if self.now == float("inf"):
            raise Failure("all threads wait for each other")

    def _switch(self, task: Task) -> None:
        self.steps += 1
        if self._loaded is not task.process:
            if self._loaded is not None:
                for module, name in self._loaded.state:
                    self._loaded.state[module, name] = getattr(module, name)
            for (module, name), value in task.process.state.items():
                setattr(module, name, value)
            self._loaded = task.process
        self.current = task
        task.greenlet.switch()
        self.current = None
        if task.is_done:
            self.tasks.remove(task)
            if task.error is not None and task.process.is_alive:
                raise task.error

    def wait(self, ready: Callable[[], bool] | None, seconds: float | None) -> bool:
        """Let others run until something holds, or for some seconds; return whether it holds."""
        task = self.current
        assert task is not None
        task.ready = ready
        task.wake = float("inf") if seconds is None else self.now + seconds
        self._hub.switch()
        task.ready = None
        return ready is None or ready()

    def call(self) -> None:
        """Let others run around a call of the system."""
        self.now += self.draw.random() * _CALL_SECONDS
        if self.draw.random() < _SWITCHES:
            self.wait(None, self.draw.random() * _CALL_SECONDS)


def here() -> Kernel | None:
    """Return the kernel if this is one of its threads."""
    kernel = _kernel
    return kernel if kernel and kernel.current and getcurrent() is kernel.current.greenlet else None


# -- threads ---------------------------------------------------------------------------


class Lock:
    def __init__(self) -> None:
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        kernel, me = here(), getcurrent()
        if kernel is None:
            assert self._owner in (None, me), "a lock of a simulated thread"
        elif not self._is_free(me):
            seconds = None if timeout < 0 else timeout
            if not blocking or not kernel.wait(lambda: self._is_free(me), seconds):
                return False
        self._owner, self._count = me, self._count + 1
        return True

    def _is_free(self, me: object) -> bool:
        return self._owner is None

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            self._owner = None

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    def _is_free(self, me: object) -> bool:
        return self._owner in (None, me)


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiters: deque[list[bool]] = deque()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        kernel, told = here(), [False]
        assert kernel is not None
        self._waiters.append(told)
        count, self._lock._count, self._lock._owner = self._lock._count, 0, None
        kernel.wait(lambda: told[0], timeout)
        if told in self._waiters:
            self._waiters.remove(told)
        self._lock.acquire()
        self._lock._count = count
        return told[0]

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else time.monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiters))):
            self._waiters.popleft()[0] = True

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        kernel = here()
        return self._is_set if kernel is None else kernel.wait(self.is_set, timeout)


class Thread:
    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self._task: Task | None = None

    def start(self) -> None:
        kernel = here()
        assert kernel is not None, "a thread outside of the simulation"
        assert kernel.current is not None
        self._task = kernel.spawn(kernel.current.process, self.run)

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_done

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)

    def join(self, timeout: float | None = None) -> None:
        kernel = here()
        if kernel is not None:
            kernel.wait(lambda: not self.is_alive(), timeout)


class local:
    _parts: WeakKeyDictionary[Any, dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> local:
        self = object.__new__(cls)
        object.__setattr__(self, "_parts", WeakKeyDictionary())
        object.__setattr__(self, "_arguments", (args, kwargs))
        object.__getattribute__(self, "_parts")[getcurrent()] = {}  # __init__ follows
        return self

    def __getattribute__(self, name: str) -> Any:
        part = _part(self)
        return part[name] if name in part else object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _part(self)[name] = value

    def __delattr__(self, name: str) -> None:
        del _part(self)[name]


def _part(self: local) -> dict[str, Any]:
    parts, me = object.__getattribute__(self, "_parts"), getcurrent()
    if me not in parts:
        parts[me] = {}
        args, kwargs = object.__getattribute__(self, "_arguments")
        type(self).__init__(self, *args, **kwargs)
    part: dict[str, Any] = parts[me]
    return part


class SimpleQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        kernel = here()
        if not self._items and kernel is not None and block:
            kernel.wait(lambda: bool(self._items), timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items


# -- calls of the system ---------------------------------------------------------------

_calls: dict[str, Callable[..., Any]] = {}
_PLAIN = ("stat", "lstat", "unlink", "remove", "mkdir", "listdir", "scandir", "pwrite", "write")
_WRITES = os.O_WRONLY | os.O_RDWR


def _process() -> Process | None:
    kernel = here()
    return kernel.current.process if kernel is not None and kernel.current is not None else None


def install() -> None:
    """Replace threads, clocks and calls for files; before the code under test is imported."""
    for name in ("Lock", "RLock", "Condition", "Event", "Thread", "local"):
        setattr(threading, name, globals()[name])
    queue.SimpleQueue = SimpleQueue  # type: ignore[assignment,misc]
    _install_clock()
    for name in (*_PLAIN, "open", "close", "utime", "rename", "replace", "fsync", "getpid"):
        _calls[name] = getattr(os, name)
    for name in _PLAIN:
        setattr(os, name, _around(_calls[name]))
    for name in ("open", "close", "utime", "fsync", "getpid"):
        setattr(os, name, globals()[f"_{name}"])
    os.rename, os.replace = _renaming(_calls["rename"]), _renaming(_calls["replace"])
    _calls["io.open"], _calls["flock"] = io.open, fcntl.flock
    io.open = builtins.open = _open_file  # type: ignore[assignment]
    fcntl.flock = _around(fcntl.flock)


def _install_clock() -> None:
    sleep, clocks = (
        time.sleep,
        {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")},
    )

    def pause(seconds: float) -> None:
        kernel = here()
        if kernel is None:
            sleep(seconds)
        else:
            kernel.wait(None, seconds)

    time.sleep = pause
    for name, clock in clocks.items():
        setattr(time, name, lambda clock=clock: kernel.now if (kernel := here()) else clock())
        nanos = getattr(time, f"{name}_ns")
        setattr(
            time,
            f"{name}_ns",
            lambda nanos=nanos: int(kernel.now * 1e9) if (kernel := here()) else nanos(),
        )


def _around(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        kernel = here()
        if kernel is not None:
            kernel.call()
        return call(*args, **kwargs)

    return wrapper


def _renaming(call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(source: Any, target: Any, **kwargs: Any) -> None:
        kernel = here()
        if kernel is not None:
            kernel.call()
            now = int(kernel.now * 1e9)
            _calls["utime"](source, ns=(now, now))
        call(source, target, **kwargs)

    return wrapper


def _note_write(process: Process, descriptor: int) -> None:
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        process.machine.dirty.add(status.st_ino)


def _open(path: Any, flags: int, mode: int = 0o777, **kwargs: Any) -> int:
    kernel, process = here(), _process()
    if kernel is not None:
        kernel.call()
    descriptor: int = _calls["open"](path, flags, mode, **kwargs)
    if process is not None:
        process.descriptors.add(descriptor)
        if flags & _WRITES:
            _note_write(process, descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    process = _process()
    if process is not None:
        process.descriptors.discard(descriptor)
    _calls["close"](descriptor)


def _open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    kernel, process = here(), _process()
    if kernel is not None:
        kernel.call()
    opened = _calls["io.open"](file, mode, *args, **kwargs)
    if process is not None and not isinstance(file, int):
        process.files = [other for other in process.files if not other.closed] + [opened]
        if set(mode) & set("wax+"):
            _note_write(process, opened.fileno())
    return opened


def _fsync(descriptor: int) -> None:
    kernel, process = here(), _process()
    if kernel is not None:
        kernel.wait(None, kernel.draw.random() * 0.01)
    if process is None:
        _calls["fsync"](descriptor)
    else:
        process.machine.dirty.discard(os.fstat(descriptor).st_ino)


def _utime(path: Any, times: Any = None, **kwargs: Any) -> None:
    kernel = here()
    if kernel is not None:
        kernel.call()
        if times is None and "ns" not in kwargs:
            kwargs["ns"] = (int(kernel.now * 1e9),) * 2
    _calls["utime"](path, **({} if times is None else {"times": times}), **kwargs)


def _getpid() -> int:
    process = _process()
    return _calls["getpid"]() if process is None else process.pid
