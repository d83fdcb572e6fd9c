"""Lists of archives: URLs with braces and variables, shuffled, resampled, and split among processes."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from streamplug_files import expand_braces

from streamplug.config import detect_world, whole_number
from streamplug.errors import ConfigError
from streamplug.interfaces import public_url
from streamplug.types import World
from streamplug_webdataset.stages import FunctionStage, Stage

Urls = str | Iterable[str]

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_MAX_NESTED_VARIABLES = 10


def located(urls: Any) -> str | list[str]:
    """Return where archives are, as the `remote` of a stream takes it.

    Args:
        urls: A path or URL, several with ``::`` between them, or a list. ``${NAME}`` in a text stands for the
            environment variable ``WDS_NAME``.

    Raises:
        ConfigError: If that is nothing that can be read.
    """
    if isinstance(urls, str):
        parts = _with_variables(urls).split("::")
        return _url(parts[0]) if len(parts) == 1 else [_url(url) for url in parts]
    if isinstance(urls, Iterable) and not isinstance(urls, (dict, bytes)):
        located_urls = [_url(_with_variables(str(url))) for url in urls]
        if located_urls:
            return located_urls
    got = type(urls).__name__ if urls else "none"  # not its items, which may have credentials
    raise ConfigError(f"urls=: expected paths or URLs of archives, got {got}")


def expand_urls(urls: str) -> list[str]:
    """Return the URLs that a text stands for, with ``::``, ``{…}`` and ``${NAME}``.

    Raises:
        ConfigError: If a brace or a variable has no meaning.
    """
    return [url for part in _with_variables(urls).split("::") for url in expand_braces(part)]


def _with_variables(text: str) -> str:
    expanded = text
    for _ in range(_MAX_NESTED_VARIABLES):
        expanded, count = _VARIABLE.subn(_variable, expanded)
        if not count:
            return expanded
    raise ConfigError(
        f"{public_url(text)!r:.80}: its environment variables name each other without end"
    )


def _variable(match: re.Match[str]) -> str:
    name = f"WDS_{match[1]}"
    if name not in os.environ:
        raise ConfigError(
            f"${{{match[1]}}} in the URL stands for the environment variable {name}, which is not set"
        )
    return os.environ[name]


def _url(text: str) -> str:
    if text.startswith("pipe:") or text == "-":
        raise ConfigError(
            f"{text[:5]!r}: commands are not run for data; name the URL itself, such as "
            "s3://bucket/x-{0000..0099}.tar, which the storages read"
        )
    if text.endswith((".yaml", ".yml", ".json")):
        raise ConfigError(
            f"{public_url(text)!r:.80}: expected archives; mix data sets with streams of StreamingDataset"
        )
    return local_name(text)


def local_name(text: str) -> str:
    """Return a path without ``file:`` in front of it; URLs as they are."""
    return text if text.startswith("file://") else text.removeprefix("file:")


class SimpleShardList:
    """The archives that a `DataPipeline` begins with; yields ``{"url": …}`` for each.

    Attributes:
        urls: Their URLs, without braces.
        seed: Of their order; None for as they are listed.
    """

    def __init__(self, urls: Urls, seed: int | None = None) -> None:
        """List archives.

        Args:
            urls: As for `WebDataset`.
            seed: Puts them into random order.

        Raises:
            ConfigError: If there are none.
        """
        self.remote = urls if isinstance(urls, str) else list(urls)
        self.urls = expand_urls(urls) if isinstance(urls, str) else list(self.remote)
        if not self.urls:
            raise ConfigError("urls=[]: expected paths or URLs of archives")
        self.seed = seed

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        urls = list(self.urls)
        if self.seed is not None:
            random.Random(self.seed).shuffle(urls)
        for url in urls:
            yield {"url": url}


class ResampledShards:
    """Archives drawn at random with replacement; in a `DataPipeline` with no `nshards`, pass after pass.

    Attributes:
        urls: Their URLs, without braces.
        nshards: How many are drawn in an epoch.
        seed: Of the draw, if `deterministic`.
        worker_seed: Returns a further seed, which differs by process.
        deterministic: Whether the same epoch draws the same archives.
        epoch: How often it has been iterated over, from -1.
    """

    def __init__(  # noqa: PLR0917 - those of webdataset, in its order
        self,
        urls: Urls,
        nshards: int = sys.maxsize,
        seed: int = 0,
        worker_seed: Callable[[], int] | None = None,
        deterministic: bool = False,
        max_urls: int = int(1e6),
        empty_check: bool = True,
    ) -> None:
        """Draw archives.

        Args:
            urls: As for `WebDataset`.
            nshards: How many to draw in an epoch.
            seed: Of the draw, if `deterministic`.
            worker_seed: Returns a further seed, by default the number of this process among all.
            deterministic: Whether the same epoch draws the same archives.
            max_urls: How many of a list to take at most.
            empty_check: Whether a list without archives is an error.

        Raises:
            ConfigError: If there are no archives and `empty_check`.
        """
        self.remote = urls if isinstance(urls, str) else list(islice(urls, max_urls))
        self.urls = expand_urls(urls) if isinstance(urls, str) else list(self.remote)
        if not self.urls and empty_check:
            raise ConfigError("urls=[]: expected paths or URLs of archives")
        self.nshards = nshards
        self.plain = nshards == sys.maxsize and worker_seed is None and not deterministic
        self.worker_seed = _process if worker_seed is None else worker_seed
        self.deterministic = deterministic
        self.seed = seed
        self.epoch = -1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.epoch += 1
        drawn = (self.worker_seed(), self.epoch, self.seed) if self.deterministic else None
        draw = random.Random(None if drawn is None else repr(drawn))
        for _ in range(self.nshards if self.urls else 0):
            yield {"url": draw.choice(self.urls)}


def shardspec(spec: Urls) -> SimpleShardList:
    """Return the list of archives that a spec stands for; lists in YAML are refused.

    Raises:
        ConfigError: If it stands for none.
    """
    located(spec)
    return SimpleShardList(spec)


# -- split among processes ------------------------------------------------------------


class Splitter:
    """Deals what comes in to ranks or workers; on a plan, samples are dealt, so there is nothing to do."""

    def __init__(self, name: str, split: Callable[[Iterable[Any], World], Iterator[Any]]) -> None:
        self.__name__, self._split = name, split

    def __call__(self, src: Iterable[Any], group: None = None) -> Iterator[Any]:
        """Yield this process's part of `src`.

        Raises:
            ConfigError: If a process group is given: ranks are those of the environment.
        """
        if group is not None:
            raise ConfigError(
                f"{self.__name__}(group=…): ranks are those of the environment; leave it out"
            )
        return self._split(src, current_world())

    def __repr__(self) -> str:
        return self.__name__


def _by_node(src: Iterable[Any], world: World) -> Iterator[Any]:
    return islice(src, world.rank, None, world.ranks)


def _by_worker(src: Iterable[Any], world: World) -> Iterator[Any]:
    return islice(src, world.worker, None, world.workers_per_rank)


def _on_one_node(src: Iterable[Any], world: World) -> Iterator[Any]:
    if world.ranks > 1:
        raise ConfigError(
            f"single_node_only: there are {world.ranks} ranks, which would all read the same; use "
            "split_by_node"
        )
    return iter(src)


split_by_node = Splitter("split_by_node", _by_node)
split_by_worker = Splitter("split_by_worker", _by_worker)
single_node_only = Splitter("single_node_only", _on_one_node)


def current_world() -> World:
    """Return where this process stands among ranks and the workers of a torch loader."""
    if "torch" not in sys.modules:
        return detect_world()
    from streamplug.adapters import TorchPlacement

    return TorchPlacement(None, 1, keep_nodes=False).worker()


def _process() -> int:
    world = current_world()
    return world.rank * world.workers_per_rank + world.worker


# -- stages ---------------------------------------------------------------------------


def resampled(n: int = sys.maxsize) -> Stage:
    """Draw `n` of the archives that come in, with replacement, others in each epoch.

    Raises:
        ConfigError: If `n` is no number.
    """
    whole_number("resampled", n, 0)

    def run(src: Iterable[Any]) -> Iterator[Any]:
        items: Sequence[Any] = list(src)
        draw = random.Random()
        for _ in range(n if items else 0):
            yield draw.choice(items)

    run.__name__ = "resampled"
    return FunctionStage(run)


def non_empty(src: Iterable[Any]) -> Iterator[Any]:
    """Yield what comes in.

    Raises:
        ConfigError: If nothing does.
    """
    empty = True
    for sample in src:
        empty = False
        yield sample
    if empty:
        raise ConfigError("non_empty: nothing came in; are there fewer archives than processes?")
