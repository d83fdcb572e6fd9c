"""Identity of a function across processes and runs, for cached results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xxhash import xxh3_128


def function_key(function: Callable[..., Any]) -> str:
    """Return text that changes with a function, the file that defines it, and what it has captured."""
    import cloudpickle

    digest = xxh3_128()
    if inspect.isfunction(function) and (source := _read_source(function)):
        # The pickle of a function that can be imported is its name, and that of others differs between
        # processes by the order of sets of constants.
        captured = [cell.cell_contents for cell in function.__closure__ or ()]
        digest.update(source)
        digest.update(cloudpickle.dumps((function.__defaults__, function.__kwdefaults__, captured)))
        digest.update(f"{function.__qualname__} {function.__code__.co_firstlineno}".encode())
    else:
        digest.update(cloudpickle.dumps(function))
        digest.update(_read_source(type(function)) or b"")
        digest.update((_read_source(function) if inspect.isclass(function) else None) or b"")
    return f"function {digest.hexdigest()}"


def _read_source(thing: Any) -> bytes | None:
    """Return the file that defines a function or a class; None without one."""
    try:
        return Path(inspect.getsourcefile(thing) or "").read_bytes()
    except (TypeError, OSError):
        return None
