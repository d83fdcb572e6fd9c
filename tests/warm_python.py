"""Programs in interpreters that have imported what takes seconds: forks of a server that did nothing else.

Such a program has a main module, arguments, an environment, a path and standard streams of its own, and it
ends as any other: its threads are waited for, and its interpreter is finalized. In `sys.modules` it finds
what the server imported. So a program that is about imports, or about a missing library, starts otherwise.

With STREAMPLUG_TEST_SOAK in the environment, and under coverage, each program has a new interpreter.
"""

from __future__ import annotations

import atexit
import gc
import json
import multiprocessing.process
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

CORE = ("streamplug.dataset", "streamplug.cli.app", "streamplug.write")
TORCH = (*CORE, "torch.utils.data", "streamplug.adapters.torch")
_NEW = bool(os.environ.get("STREAMPLUG_TEST_SOAK")) or "coverage" in sys.modules
_REQUEST_BYTES = 1 << 17


class Program:
    """A program of Python that runs in a session of its own.

    Attributes:
        pid: Its process, and its process group.
        stdout: What it prints.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        modules: tuple[str, ...] = CORE,
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> None:
        """Start the program.

        Args:
            command: What follows ``python``: ``-W FILTER``, then ``-c CODE``, ``-m MODULE`` or a path, then
                arguments.
            modules: What its interpreter has imported.
            cwd: Its working directory; by default that of this process.
            env: Its environment; by default that of this process.
            stdin: What it reads.
        """
        command = [str(part) for part in command]
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end of the program
        their_stdin = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the program has it
        their_stdin.write(stdin)
        their_stdin.seek(0)
        descriptor, theirs = os.pipe()
        self.stdout = os.fdopen(descriptor)
        try:
            if _NEW:
                self._process = subprocess.Popen(
                    [sys.executable, *command],
                    cwd=cwd,
                    env=env,
                    stdin=their_stdin,
                    stdout=theirs,
                    stderr=self._stderr,
                    start_new_session=True,
                )
                self.pid = self._process.pid
                return
            status, their_status = os.pipe()
            self._status = os.fdopen(status)
            fields = command, str(cwd or Path.cwd()), dict(os.environ if env is None else env)
            descriptors = [their_stdin.fileno(), theirs, self._stderr.fileno(), their_status]
            socket.send_fds(_server(modules), [json.dumps(fields).encode()], descriptors)
            os.close(their_status)
            self.pid = int(self._status.readline())
        finally:
            os.close(theirs)
            their_stdin.close()

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Wait for the end; return the status, what it printed and was not read, and its errors."""
        out = self.stdout.read()
        code = self.wait()
        self._stderr.seek(0)
        return subprocess.CompletedProcess([], code, out, self._stderr.read())

    def wait(self) -> int:
        """Wait for the end of its process alone; return the status, negative if it is a signal."""
        return int(self._status.readline()) if self._process is None else self._process.wait()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.stdout.close()
        self._stderr.close()
        if self._process is None:
            self._status.close()
        else:
            self._process.wait()


def run(
    command: Sequence[str | Path], modules: tuple[str, ...] = CORE, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a `Program` to its end."""
    with Program(command, modules, **options) as program:
        return program.finish()


# -- the server ----------------------------------------------------------------


@cache
def _server(modules: tuple[str, ...]) -> socket.socket:
    """Return the socket of a server that ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), *modules],
            stdin=subprocess.DEVNULL,
            stdout=theirs,  # which has no position, like the pipe that programs get
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


def _serve(control: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Fork for each request, and return in the fork; exit when nobody can ask any more."""
    statuses: dict[int, int] = {}
    awake, wake = os.pipe()
    for descriptor in (awake, wake):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready, _, _ = select.select([control, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
            _report(statuses)
        if control not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 4)
        if not request:
            os._exit(0)
        *streams, status = descriptors
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
            for descriptor in [*descriptors, *statuses.values(), awake, wake, control.detach()]:
                os.close(descriptor)
            return tuple(json.loads(request))
        statuses[pid] = status
        os.write(status, f"{pid}\n".encode())
        for descriptor in streams:
            os.close(descriptor)


def _report(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        descriptor = statuses.pop(pid)
        os.write(descriptor, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(descriptor)


def _become(command: list[str], cwd: str, environment: dict[str, str]) -> None:
    """Run a program in this process, as its main module."""
    inherited = _paths(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    tempfile.tempdir, multiprocessing.process.ORIGINAL_DIR = None, cwd  # type: ignore[attr-defined]
    filters = [text for text in environment.get("PYTHONWARNINGS", "").split(",") if text]
    while command[0] == "-W":
        filters.append(command[1])
        command = command[2:]
    sys.warnoptions[:] = filters
    warnings._processoptions(filters)  # type: ignore[attr-defined]
    kind = command[0] if command[0] in ("-c", "-m") else ""
    first = "" if kind == "-c" else cwd if kind else str(Path(command[0]).resolve().parent)
    others = [path for path in sys.path[1:] if path not in inherited]
    sys.path[:] = [first, *_paths(environment), *others]
    sys.argv[:] = [kind, *command[2:]] if kind else command
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if kind == "-m":
        runpy._run_module_as_main(command[1])  # type: ignore[attr-defined]
        return
    text, name = (command[1], "<string>") if kind else (Path(command[0]).read_text(), command[0])
    if not kind:
        main.__file__ = name
    exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


def _paths(environment: Mapping[str, str]) -> list[str]:
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path.cwd() / path) for path in paths if path]


if __name__ == "__main__":
    for module in sys.argv[2:]:
        import_module(module)
    gc.freeze()  # forks need not look at what was imported
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))
