"""Data set of ``streamplug explain``, from a config file, or from locations and a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplug.config import is_integer, load
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from streamplug.stream import Stream
from streamplug.types import World
from streamplug_tools.config_sections import check_loader

if TYPE_CHECKING:
    from streamplug_tokens.dataset import TokenDataset

CONFIG_ENDINGS = (".toml", ".yaml", ".yml", ".json")
_STATE_TYPES: dict[str, type] = {
    "batch_budget": dict,
    "batch_options": dict,
    "choose": list,
    "curriculum": list,
    "global_batch": int,
    "segments": list,
    "shares": list,
}
"""Types of the values of a state that are used here, not only passed to the data set."""


def open_dataset(
    locations: Sequence[str], state: Mapping[str, Any], options: Mapping[str, Any]
) -> StreamingDataset:
    """Open the data set of a config file, or of URLs and the values of a state; nothing is decoded."""
    _check_types(state)
    world = _world(options["ranks"], options["nodes"])
    global_batch = state.get("global_batch")
    if global_batch is not None and global_batch % world.ranks:
        raise ConfigError(
            f"the state's global batch of {global_batch} is not a multiple of --ranks={world.ranks}"
        )
    batch_size = options["batch_size"] or (global_batch // world.ranks if global_batch else None)
    if (budget := state.get("batch_budget")) is not None:
        batch_size = budget.get("max_samples")
    if is_config(locations):
        return _open_configured(locations[0], batch_size, world)
    algorithm = state.get("shuffle_algo", options["shuffle_algo"])
    column = (state.get("batch_options") or {}).get("column")
    batching = _batching(state, options["batching_method"])
    arguments = {
        **_mixture(locations, state, options["storage_options"]),
        "batch_size": batch_size,
        "shuffle": algorithm is not None,
        "shuffle_algo": algorithm or "window",
        "shuffle_seed": state.get("shuffle_seed", options["shuffle_seed"]),
        "shuffle_block_size": state.get("shuffle_block_size", options["shuffle_block_size"]),
        "num_canonical_nodes": state.get("num_canonical_nodes", options["num_canonical_nodes"]),
        "partition_algo": state.get("partition_algo", options["partition_algo"]),
        **batching,
        "columns": [column] if column else None,
        "allow_unsafe_types": batching.get("batch_budget") is None,  # nothing else is decoded
        "world": world,
    }
    if state.get("tokens") is None:
        return StreamingDataset(**arguments)
    return _token_dataset_class().from_state_tokens(state["tokens"], **arguments)


def _check_types(state: Mapping[str, Any]) -> None:
    for name, type_ in _STATE_TYPES.items():
        value = state.get(name)
        if value is not None and not isinstance(value, type_):
            raise StateError(f"the state has {name}={value!r:.60}: it was changed")
    for change in state.get("curriculum") or ():
        if not (isinstance(change, Mapping) and is_integer(change.get("step"))):
            raise StateError(f"the state has {change!r:.60} in its curriculum: it was changed")
    for segment in state.get("segments") or ():
        if not isinstance(segment, Mapping):
            raise StateError(f"the state has {segment!r:.60} in its segments: it was changed")


def state_to_load(
    locations: Sequence[str], saved: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a state for the data set of `open_dataset`.

    Its changes of proportions hold without the curriculum that planned them, which only a config file has.

    Args:
        locations: Those of the data set.
        saved: The state as it was saved.
        state: Its values, see `streamplug.plan.state.unpack`.
    """
    segments = state.get("segments")
    if is_config(locations) or not segments:
        return {**saved}
    return {**saved, "segments": [{**segment, "planned": False} for segment in segments]}


def _batching(state: Mapping[str, Any], default: str) -> dict[str, Any]:
    method = state.get("batching_method", default)
    if method != "budget":  # the only one that has options of its own
        return {"batching_method": method}
    if not state:
        raise ConfigError(
            f"--batching={method}: its options are in a config file or a state; give either as LOCATION or "
            "--state"
        )
    if state.get("batch_options") is None:
        raise ConfigError(
            "the state is of batches whose samples a function measured, which no file has; use explain() of "
            "the data set in the program of the run"
        )
    return {"batching_method": method, "batch_budget": state["batch_options"] or None}


def is_config(locations: Sequence[str]) -> bool:
    """Return whether the only location is a config file."""
    return len(locations) == 1 and locations[0].lower().endswith(CONFIG_ENDINGS)


def _token_dataset_class() -> type[TokenDataset]:
    try:
        from streamplug_tokens.dataset import TokenDataset
    except ModuleNotFoundError:
        raise ConfigError(
            "rows of tokens are read by streamplug-tokens, which is not installed: "
            "pip install streamplug-tokens"
        ) from None
    return TokenDataset


def _open_configured(path: str, batch_size: int | None, world: World) -> StreamingDataset:
    config = load(Path(path))
    check_loader(config)
    loader = config.get("loader")
    if batch_size is None and isinstance(loader, Mapping):
        batch_size = loader.get("batch_size")
        if isinstance(batch_size, str) and batch_size.isdecimal():  # from the environment
            batch_size = int(batch_size)
    options: dict[str, Any] = {"world": world}
    if batch_size is not None:
        options["batch_size"] = batch_size
    section = config.get("dataset", config)
    if isinstance(section, Mapping) and section.get("batch_budget") is None:
        options["allow_unsafe_types"] = True  # nothing is decoded
    has_tokens = isinstance(section, Mapping) and "tokens" in section
    dataset_class = _token_dataset_class() if has_tokens else StreamingDataset
    return dataset_class.from_config(config, callbacks=(), progress_bar=False, **options)


def _world(ranks: int, nodes: int) -> World:
    if nodes < 1 or ranks % nodes:
        raise ConfigError(f"--ranks={ranks} is not a multiple of --nodes={nodes}")
    return World(nodes=nodes, ranks_per_node=ranks // nodes)


def _mixture(
    locations: Sequence[str], state: Mapping[str, Any], options: Mapping[str, Any] | None
) -> dict[str, Any]:
    choose = state.get("choose")
    if choose is None:
        segments, changes = (
            state.get("segments"),
            state.get("curriculum"),
        )  # the latter in version 1
        curriculum = changes and {change["step"]: change["proportions"] for change in changes}
        if segments:  # the others are in the state
            curriculum = {0: segments[0].get("proportions")}
        return {
            "streams": [Stream(remote=place, storage_options=options) for place in locations],
            "epoch_size": state.get("epoch_size"),
            "curriculum": curriculum,
        }
    if len(choose) != len(locations):
        raise ConfigError(f"the state is of {len(choose)} streams; give the location of each")
    shares = state.get("shares")
    weights: list[dict[str, Any]] = [{"choose": n} for n in choose]
    if shares is not None:
        weights = [{"proportion": share} for share in shares]
    return {
        "streams": [
            Stream(remote=place, storage_options=options, **weight)
            for place, weight in zip(locations, weights)
        ],
        "epoch_size": None if shares is None else state.get("epoch_size"),
        "sampling_method": state.get("sampling_method"),
        "sampling_granularity": state.get("sampling_granularity"),
    }
