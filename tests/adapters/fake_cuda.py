"""A stand-in for `torch.cuda`: streams whose work waits until a test runs it.

It has only what copies may use, so that a call of anything else, such as `synchronize`, fails.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch  # noqa: TID251


class Event:
    done = False


class Stream:
    """Work in order; a wait holds up what comes after it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.work: deque[Callable[[], bool]] = deque()

    def add(self, work: Callable[[], object]) -> None:
        self.work.append(lambda: work() is not False)

    def record_event(self) -> Event:
        event = Event()
        self.add(lambda: setattr(event, "done", True))
        return event

    def wait_event(self, event: Event) -> None:
        self.add(lambda: event.done)

    def run(self) -> None:
        """Do the work up to the first wait for what is not done."""
        while self.work and self.work[0]():
            self.work.popleft()


class DeviceTensor(torch.Tensor):
    """Memory of a device, which is filled when the stream of its copy runs."""

    streams: list[Stream]

    def record_stream(self, stream: Stream) -> None:
        self.streams.append(stream)


class PinnedTensor(torch.Tensor):
    cuda: FakeCuda

    def is_pinned(self) -> bool:
        return True

    def to(self, device: torch.device, *, non_blocking: bool) -> DeviceTensor:  # type: ignore[override]
        assert non_blocking
        stream = self.cuda.current_stream(device)
        assert stream.device == device
        plain = self.as_subclass(torch.Tensor)
        target = torch.zeros_like(plain)
        copied: DeviceTensor = target.as_subclass(DeviceTensor)
        copied.streams = []
        self.cuda.log.append(("copy", str(device)))
        self.cuda.copies.append(weakref.ref(copied))
        stream.add(lambda: target.copy_(plain))
        return copied


class FakeCuda:
    """In place of `torch.cuda`, on a machine of two devices."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.copies: list[weakref.ref[DeviceTensor]] = []
        self.streams: list[Stream] = []
        self.capturing = False
        self.device = 0
        self.main = {n: Stream(torch.device("cuda", n)) for n in range(2)}
        self._current: dict[int, Stream] = dict(self.main)

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self.device

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Stream(self, device: torch.device) -> Stream:
        self.streams.append(Stream(device))
        return self.streams[-1]

    def current_stream(self, device: torch.device) -> Stream:
        return self._current[self.device if device.index is None else device.index]

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = dict(self._current)
        self._current[stream.device.index] = stream
        try:
            yield
        finally:
            self._current = before


class FakeTorch:
    """torch, but for pinned memory and CUDA."""

    def __init__(self) -> None:
        self.cuda = FakeCuda()
        self.max_pinned_bytes = 1 << 20

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty_like(self, tensor: torch.Tensor, *, pin_memory: bool) -> PinnedTensor:
        assert pin_memory
        if tensor.nbytes > self.max_pinned_bytes:
            raise MemoryError("out of pinned memory")
        return self.pin(torch.empty_like(tensor))

    def pin(self, tensor: torch.Tensor) -> PinnedTensor:
        pinned: PinnedTensor = tensor.as_subclass(PinnedTensor)
        pinned.cuda = self.cuda
        return pinned

    def run(self, turns: int = 2) -> None:
        """Run all streams until their work is done, or stuck."""
        for _ in range(turns):
            for stream in (*self.cuda.main.values(), *self.cuda.streams):
                stream.run()
