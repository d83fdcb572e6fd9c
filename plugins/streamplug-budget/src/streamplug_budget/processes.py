"""Functions in other Python processes, which do not import the program that runs here."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from streamplug.errors import StreamplugError
from streamplug.plugin import registrations

_LOG = logging.getLogger("streamplug_budget")
_SERVE = """
import sys
sys.path[:] = filter(None, sys.path)  # not the working directory, which may be one of data
import pickle
answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what functions print must not get into the answer
sys.path[:] = pickle.load(sys.stdin.buffer)
import cloudpickle
from streamplug.plugin import restore
plugins = pickle.load(sys.stdin.buffer)
try:
    restore(cloudpickle.loads(plugins))
except Exception:
    answers.write(pickle.dumps(None))
    sys.exit()
try:
    function, part = cloudpickle.load(sys.stdin.buffer)
    answer = cloudpickle.dumps((function(part), None))
except BaseException as error:
    try:
        answer = cloudpickle.dumps((None, error))
        pickle.loads(answer)  # fails for classes whose __init__ takes other arguments than BaseException's
    except Exception:
        from streamplug.errors import StreamplugError
        answer = cloudpickle.dumps((None, StreamplugError(f"{type(error).__name__}: {error}")))
answers.write(answer)
"""


def map_processes(function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Return the results of a function for some parts, each computed in a process of its own.

    `multiprocessing` would import the main module again, which opens the data set again in a script that has
    no ``if __name__ == "__main__"``. If a plugin registered in this process cannot be pickled, or cannot be
    imported elsewhere, all parts are computed in it.

    Raises:
        Exception: The error of the first part that fails; a `StreamplugError` with its type and text if it
            cannot be pickled.
    """
    import cloudpickle

    try:
        plugins = cloudpickle.dumps(registrations())
    except Exception as error:  # noqa: BLE001 - classes can raise anything when pickled
        _LOG.info("using one process, as a registered plugin cannot be pickled: %s", error)
        return [function(part) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(lambda part: _call(function, part, plugins), parts))


def _call(function: Callable[[Any], Any], part: Any, plugins: bytes) -> Any:
    import cloudpickle

    sent = pickle.dumps(sys.path) + pickle.dumps(plugins) + cloudpickle.dumps((function, part))
    done = _run_python(_SERVE, sent)
    if done.returncode:
        raise StreamplugError(
            f"a process that measured samples or planned an epoch ended with {done.returncode}; -9 often "
            "means that memory ran out"
        )
    answer = cloudpickle.loads(done.stdout)
    if answer is None:  # the process could not import the plugins that are registered here
        return function(part)
    result, error = answer
    if error is not None:
        raise error
    return result


def _run_python(code: str, sent: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", code], input=sent, stdout=subprocess.PIPE, check=False
    )
