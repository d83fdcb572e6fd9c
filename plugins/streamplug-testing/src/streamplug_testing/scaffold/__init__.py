"""Generator of plugin distributions, with an example and tests of each kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import Template

from streamplug.errors import ConfigError, OutputExistsError
from streamplug.plugin import KINDS

__all__ = ["EXAMPLES", "new_plugin"]

EXAMPLES = {
    "access": (
        "all shards are downloaded before the first sample is read",
        'dataset = StreamingDataset(remote="s3://bucket/set", access="{}")',
    ),
    "callback": (
        "the three slowest downloads",
        'dataset = StreamingDataset(..., callbacks=["{}"])',
    ),
    "compression": ("the container of the old lzma program", 'compression = "{}:6"'),
    "encoding": ("UUIDs, 16 bytes each", 'columns = {{"id": "{}"}}'),
    "engine": ("a pool of processes", 'write_parts(..., engine="{}:4")'),
    "format": ("lines of hexadecimal text", 'writer = Writer(..., format="{}")'),
    "order": (
        "a contiguous part of each global batch for each rank",
        'dataset = StreamingDataset(..., batching_method="{}")',
    ),
    "shuffle": (
        "shards in random order, each as it is",
        'dataset = StreamingDataset(..., shuffle=True, shuffle_algo="{}")',
    ),
    "source": (
        "rows of a data set, whose numbers are in a file",
        'dataset = StreamingDataset(remote="path/of/the/file", format="{}")',
    ),
    "storage": (
        "a whole data set in an SQLite file",
        'dataset = StreamingDataset(remote="{}:///path/of/a/database", local="cache")',
    ),
}
"""Description and usage of the example of each kind."""

_REQUIRED = {"engine": ', "streamplug-tools"'}
"""What an example requires beside the core, whose version says which of it."""

_TEMPLATES = Path(__file__).parent
_NAME = re.compile(r"[a-z]([a-z0-9_-]*[a-z0-9])?")
_SCHEME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def new_plugin(name: str, kind: str, target: Path) -> Path:
    """Create a distribution of a plugin in `target`, and return its folder.

    `name` is that of the plugin, such as ``uuid``, or of the distribution, ``streamplug-uuid``.
    """
    if kind not in EXAMPLES:
        raise ConfigError(f"kind={kind!r}: expected one of {', '.join(EXAMPLES)}")
    plugin = name.removeprefix("streamplug-").removeprefix("streamplug_")
    if plugin != name and not plugin[:1].isalpha():
        raise ConfigError(f"{name!r}: name the plugin, such as streamplug-uuid or uuid")
    if not (_SCHEME if kind == "storage" else _NAME).fullmatch(name):
        underscore = "" if kind == "storage" else " and _"
        raise ConfigError(
            f"{name!r}: use lower-case letters, digits, -{underscore}, a letter first, "
            "and a letter or a digit last"
        )
    if plugin in KINDS[kind].builtin:
        raise ConfigError(f"{plugin!r} is a built-in {kind}, which plugins cannot replace")
    description, usage = EXAMPLES[kind]
    values = {
        "name": plugin,
        "kind": kind,
        "what": description,
        "use": usage.format(plugin),
        "required": _REQUIRED.get(kind, ""),
        "distribution": f"streamplug-{plugin.replace('_', '-')}",
        "module": f"streamplug_{plugin.replace('-', '_')}",
        "class_name": "".join(part.capitalize() for part in re.split("[-_]", plugin)),
    }
    folder = target / values["distribution"]
    if folder.exists():
        raise OutputExistsError(f"{folder} already exists; remove it, or choose another name")
    for template, place in _templates(kind, values["module"]):
        text = template.read_text(encoding="utf-8")
        if template.suffix == ".tmpl":
            text = Template(text).substitute(values)
        out = folder / place
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{out}: {error.strerror}; choose another directory to create the plugin in"
            ) from error
    return folder


def _templates(kind: str, module: str) -> Iterator[tuple[Path, str]]:
    """Yield the templates of a kind, and the path of each in the distribution."""
    common = _TEMPLATES / "common"
    for path in sorted(common.rglob("*")):
        if path.is_file():
            place = path.relative_to(common).as_posix()
            yield path, place.replace("MODULE", module).removesuffix(".tmpl")
    kinds = _TEMPLATES / "kinds"
    yield kinds / f"{kind}.py.tmpl", f"src/{module}/{kind}.py"
    yield kinds / f"test_{kind}.py.tmpl", f"tests/test_{kind}.py"
