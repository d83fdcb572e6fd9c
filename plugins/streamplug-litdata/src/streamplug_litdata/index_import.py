"""Import of LitData's index.json, with validation of every field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from streamplug_files import DatasetFiles

from streamplug.errors import ConfigError, InvalidIndexError
from streamplug_litdata.sizes import whole_sizes
from streamplug_litdata.specs import FILES, IMAGES, Spec, Stored, is_key

SINGLE, TOKENS = "value", "tokens"
"""Column names of data sets whose samples are single values, and of those of tokens."""

_VECTORS = ("no_header_numpy", "no_header_tensor")
_NOT_IN_ROWS = FILES | IMAGES | {"pil", "jpeg_array", "graph", "numpy", "tensor", "text", *_VECTORS}
_ROW_KINDS = frozenset(["str", "int", "float", "bool", "bytes", "null", "list", "map", "struct"])
_UNSURE_CODE = 11
"""The first dtype code that had another meaning in the first versions."""

_DICTS = ("builtins.dict", "collections.OrderedDict", "collections.defaultdict")
_DICT_TREES = frozenset(["dict", "items"])
_LISTS = {"builtins.list": "list", "builtins.tuple": "tuple", "collections.deque": "list"}


class ChunkConfig(NamedTuple):
    """Settings of an index.json that all chunks share.

    Attributes:
        layout: Layout of items in a chunk: ``"items"``, ``"frames"``, ``"packed"`` or ``"tokens"``.
        compression: Compression of whole files, or None.
        columns: Column specs by name.
    """

    layout: str
    compression: str | None
    columns: Mapping[str, Spec]


def is_index(index: Any) -> bool:
    """Return whether a parsed index.json is LitData's."""
    return isinstance(index, dict) and "chunks" in index and "config" in index


def entries_of(
    index: Any, spec: str, block: int | None, files: DatasetFiles
) -> list[dict[str, Any]]:
    """Convert an index.json of LitData to index entries.

    Args:
        index: The parsed index.json.
        spec: Format of the entries, without the layout.
        block: Tokens per sample, if tokens are read in blocks.
        files: Files of the data set.

    Raises:
        ConfigError: If the data set cannot be read.
        InvalidIndexError: If the index.json is damaged.
    """
    chunks = index["chunks"]
    if not isinstance(chunks, list) or not all(map(_is_chunk, chunks)):
        raise InvalidIndexError(
            "'chunks' must be a list of what has 'filename', 'chunk_size' and 'chunk_bytes'"
        )
    if not chunks:
        raise InvalidIndexError(
            "it lists no chunks: the data set is empty, or was not written whole"
        )
    if not isinstance(index["config"], dict):
        raise InvalidIndexError("'config' must be an object")
    config = _config(index["config"], chunks, block)
    shared = {
        "format": f"{spec}{config.layout}",
        "version": 2,
        "compression": config.compression,
        "columns": [[name, str(column)] for name, column in config.columns.items()],
    }
    packed = f".{config.compression}.bin"
    stored: Mapping[str, int] = {}
    if config.compression is not None:
        # The index.json has only their decompressed sizes.
        stored = files.sizes([c["filename"] for c in chunks if c["filename"].endswith(packed)])
    entries = []
    for chunk, size in zip(chunks, whole_sizes(chunks, packed, files)):
        name = chunk["filename"]
        raw = name.removesuffix(packed) + ".bin" if name in stored else name
        zipped = {"basename": name, "bytes": stored[name], "hashes": {}} if name in stored else None
        own = {
            "samples": chunk["chunk_size"] if block is None else _blocks(chunk, block),
            "raw_data": {"basename": raw, "bytes": size, "hashes": {}},
            "zip_data": zipped,
        }
        entries.append({**shared, **own})
    return entries


def _is_chunk(chunk: Any) -> bool:
    return (
        isinstance(chunk, dict)
        and isinstance(chunk.get("filename"), str)
        and all(type(chunk.get(key)) is int for key in ("chunk_size", "chunk_bytes"))
    )


def _blocks(chunk: Mapping[str, Any], block: int) -> int:
    tokens = chunk.get("dim")
    if type(tokens) is not int or tokens < 0:
        raise InvalidIndexError(f"{chunk['filename']!r}: 'dim' must say how many tokens it has")
    return tokens // block


def _config(config: Mapping[str, Any], chunks: Sequence[Any], block: int | None) -> ChunkConfig:
    if config.get("encryption") is not None:
        raise ConfigError("the chunks are encrypted, which is not read; write them without")
    if config.get("format") == "mds":
        raise ConfigError("this is an index of MDS shards: leave out format=, and give their own")
    kinds, loader = config.get("data_format"), config.get("item_loader")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise InvalidIndexError(f"data_format must be a list of names, got {kinds!r:.60}")
    # The first versions do not store the loader; only token data sets have counts.
    counted = bool(chunks) and chunks[0].get("dim") is not None
    tokens = loader == "TokensLoader" or (loader is None and counted)
    if loader not in (None, "PyTreeLoader", "TokensLoader"):
        raise ConfigError(f"the chunks are for the item loader {loader!r:.60}, which is not read")
    if loader is None:
        _check_codes(kinds)
    layout, compression = _layout(config)
    if tokens:
        return _tokens(kinds, layout, compression)
    if block is not None:
        raise ConfigError(f"block={block}: these chunks have no tokens, but items")
    return ChunkConfig(layout, compression, _columns(config, kinds))


def _tokens(kinds: Sequence[str], layout: str, compression: str | None) -> ChunkConfig:
    if len(kinds) != 1 or kinds[0].partition(":")[0] not in _VECTORS:
        raise ConfigError(f"tokens are one array for each item, these are {kinds!r:.60}")
    if layout != "items":
        raise ConfigError("tokens that are compressed within their chunks are not read")
    return ChunkConfig("tokens", compression, {TOKENS: Spec(kinds[0])})


def _layout(config: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the layout of items in a chunk, and the compression of whole files."""
    compression, level = config.get("compression"), config.get("compression_level")
    if compression is None:
        return "items", None
    if not isinstance(compression, str) or compression.partition(":")[0] != "zstd":
        raise ConfigError(f"compression {compression!r:.60} is not read, only zstd")
    layouts = {None: "items", "chunk": "items", "batch": "frames", "sample": "packed"}
    if not isinstance(level, (str, type(None))) or level not in layouts:
        raise ConfigError(f"compression_level {level!r:.60} is not read")
    return layouts[level], compression if layouts[level] == "items" else None


def _check_codes(kinds: Sequence[str]) -> None:
    for kind in kinds:
        name, _, code = kind.partition(":")
        if name == "no_header_numpy" and code.isdecimal() and int(code[:4]) >= _UNSURE_CODE:
            raise ConfigError(
                f"{kind!r}: this set is from one of the first versions of LitData, in which the codes of "
                "complex and boolean arrays were others on each machine; write it again"
            )


def _columns(config: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, Spec]:
    left = list(kinds)
    tree = _tree(config.get("data_spec"), left)
    if left:
        raise InvalidIndexError(f"data_format has {len(kinds)} names, data_spec has fewer leaves")
    stored = _top(tree)
    dicts = isinstance(tree, dict) and not _DICT_TREES.isdisjoint(tree)
    rows = _row_kinds(config.get("types"), kinds) if dicts else None
    if rows is None:
        return {name: Spec(tree) for name, tree in stored.items()}
    columns = {}
    for name in {**stored, **rows}:
        tree = stored.get(name)
        # Only pickled and missing leaves need the kind of the Arrow rows.
        columns[name] = Spec(tree, rows.get(name, "null") if tree in (None, "pickle") else None)
    return columns


def _tree(text: Any, left: list[str]) -> Stored:
    """Return the leaves of a sample, parsed from PyTorch's serialized tree spec."""
    try:
        version, spec = json.loads(text)
        if version != 1:
            raise InvalidIndexError(f"data_spec has version {version!r:.60}")
        return _node(spec, left)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        if isinstance(error, InvalidIndexError):
            raise
        raise InvalidIndexError(f"data_spec {text!r:.60} does not describe samples") from None


def _node(spec: Mapping[str, Any], left: list[str]) -> Stored:
    kind, children = spec["type"], spec["children_spec"]
    if kind is None:
        return left.pop(0)
    if kind in _LISTS:
        return {_LISTS[kind]: [_node(child, left) for child in children]}
    if kind not in _DICTS:
        raise ConfigError(f"samples have values of type {kind!r:.60}, which is not read")
    context = spec["context"]
    if isinstance(
        context, dict
    ):  # of a defaultdict, with the names of its factory, which is not imported
        keys = context["dict_context"]
    else:
        context = json.loads(context)
        keys = context[1] if kind.endswith("defaultdict") else context
    keys = [key if is_key(key) else repr(key) for key in keys]
    if len(set(keys)) != len(children):
        raise InvalidIndexError(f"keys {keys!r:.60} for {len(children)} values")
    items = [(key, _node(child, left)) for key, child in zip(keys, children)]
    # JSON objects have no other keys than strings.
    return {"dict": dict(items)} if all(isinstance(key, str) for key in keys) else {"items": items}


def _top(tree: Stored) -> dict[str, Stored]:
    """Return the columns of samples of a tree."""
    if not isinstance(tree, dict):
        return {SINGLE: tree}
    ((kind, inside),) = tree.items()
    branches = dict(inside if kind in _DICT_TREES else enumerate(inside))
    if not branches:
        raise ConfigError("samples have no values")
    columns = {str(key): branch for key, branch in branches.items()}
    if len(columns) != len(branches):
        raise ConfigError(
            f"samples have keys that would be one column: {list(branches)!r:.60}; write them with other keys"
        )
    return columns


def _row_kinds(types: Any, kinds: Sequence[str]) -> dict[str, str] | None:
    """Return the columns of chunks of Arrow rows; None if the data set has no such chunks."""
    safe = all(kind.partition(":")[0] not in _NOT_IN_ROWS for kind in kinds)
    if not isinstance(types, dict) or not types or not safe:
        return None
    if not all(_in_rows(kind) for kind in types.values()):
        return None
    return {name: _kind(kind) for name, kind in types.items()}


def _kind(said: Any) -> str:
    return str(said.get("type")) if isinstance(said, dict) else str(said)


def _in_rows(said: Any) -> bool:
    if _kind(said) not in _ROW_KINDS:
        return False
    if not isinstance(said, dict):
        return True
    inside = said.get("fields") or {}
    if not isinstance(inside, dict):
        return False
    values = [said["value"]] if said.get("value") is not None else []
    return all(map(_in_rows, [*inside.values(), *values]))
