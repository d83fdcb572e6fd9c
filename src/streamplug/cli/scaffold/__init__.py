"""Generator of plugin distributions, with an example and tests of each kind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from string import Template

from streamplug.errors import ConfigError, OutputExistsError
from streamplug.plugin.kinds import KINDS

__all__ = ["EXAMPLES", "new_plugin"]

EXAMPLES = {
    "callback": (
        "the three slowest downloads",
        'dataset = StreamingDataset(..., callbacks=["{}"])',
    ),
    "compression": ("the container of the old lzma program", 'compression = "{}:6"'),
    "encoding": ("UUIDs, 16 bytes each", 'columns = {{"id": "{}"}}'),
    "engine": ("a pool of processes", 'write_parts(..., engine="{}:4")'),
    "format": ("lines of hexadecimal text", 'writer = Writer(..., format="{}")'),
    "shuffle": (
        "shards in random order, each as it is",
        'dataset = StreamingDataset(..., shuffle=True, shuffle_algo="{}")',
    ),
    "storage": (
        "a whole data set in an SQLite file",
        'dataset = StreamingDataset(remote="{}:///path/of/a/database", local="cache")',
    ),
}
"""Description and usage of the example of each kind."""

_HERE = Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_SCHEME = re.compile(r"[a-z][a-z0-9-]*")


def new_plugin(name: str, kind: str, target: Path) -> Path:
    """Create a distribution of a plugin in `target`, and return its folder.

    `name` is that of the plugin, such as ``uuid``, or of the distribution, ``streamplug-uuid``.
    """
    given = name
    if kind not in EXAMPLES:
        raise ConfigError(f"kind={kind!r}: expected one of {', '.join(EXAMPLES)}")
    if not (_SCHEME if kind == "storage" else _NAME).fullmatch(name):
        more = "" if kind == "storage" else " and _"
        raise ConfigError(f"{name!r}: use lower-case letters, digits, -{more}, a letter first")
    # The name of the distribution, streamplug-NAME, is accepted, too.
    name = name.removeprefix("streamplug-").removeprefix("streamplug_")
    if not name[:1].isalpha():
        raise ConfigError(f"{given!r}: name the plugin, such as streamplug-uuid or uuid")
    if name in KINDS[kind].builtin:
        raise ConfigError(f"{name!r} is a built-in {kind}, which plugins cannot replace")
    what, use = EXAMPLES[kind]
    values = {
        "name": name,
        "kind": kind,
        "what": what,
        "use": use.format(name),
        "distribution": f"streamplug-{name.replace('_', '-')}",
        "module": f"streamplug_{name.replace('-', '_')}",
        "class_name": "".join(part.capitalize() for part in re.split("[-_]", name)),
    }
    folder = target / values["distribution"]
    if folder.exists():
        raise OutputExistsError(f"{folder} is there already; remove it, or choose another name")
    for path, place in _files(kind, values["module"]):
        out = folder / place
        out.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".tmpl":
            text = Template(path.read_text(encoding="utf-8")).substitute(values)
            out.with_suffix("").write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(path, out)
    return folder


def _files(kind: str, module: str) -> list[tuple[Path, Path]]:
    common = _HERE / "common"
    found = [
        (path, Path(path.relative_to(common).as_posix().replace("MODULE", module)))
        for path in sorted(common.rglob("*"))
        if path.is_file()
    ]
    test = f"test_{kind}.py.tmpl"
    return [
        *found,
        (_HERE / "kinds" / f"{kind}.py.tmpl", Path("src", module, f"{kind}.py.tmpl")),
        (_HERE / "kinds" / test, Path("tests", test)),
    ]
