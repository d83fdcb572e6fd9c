"""Modules that have the names of mosaicml-streaming, each imported when it is first used."""

from __future__ import annotations

import sys
from functools import cache, wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from streamplug.errors import ConfigError
from streamplug_mosaic.names import HOMES, MODULES, VERSION

_DATASETS = (
    *MODULES["streaming.multimodal"],
    *MODULES["streaming.text"],
    *MODULES["streaming.vision"],
)


def install() -> None:
    """Make ``import streaming`` give these modules, in this process and those forked from it.

    Raises:
        ConfigError: If mosaicml-streaming itself has been imported already.
    """
    imported = sys.modules.get("streaming")
    if isinstance(imported, AliasModule):
        return
    if imported is not None:
        raise ConfigError(
            "mosaicml-streaming has been imported already: call streamplug_mosaic.install() before"
        )
    register_modules(
        {"streaming": AliasModule("streaming", "streaming"), **make_modules("streaming")}
    )


def explain_missing_modules() -> None:
    """Make imports of modules and names that are missing here raise errors that name the replacement."""
    if not any(isinstance(finder, _MissingModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MissingModuleFinder())


def make_modules(package: str) -> dict[str, AliasModule]:
    """Return the modules of mosaicml-streaming below a package, by their names there.

    Args:
        package: Name of the package that stands for ``streaming``.
    """
    names = (name for name in MODULES if name != "streaming")
    return {
        target: AliasModule(target, name)
        for name in names
        for target in [package + name.removeprefix("streaming")]
    }


def register_modules(modules: dict[str, AliasModule]) -> None:
    """Make modules importable; the packages that they are in must be among them or imported."""
    sys.modules.update(modules)
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


class AliasModule(ModuleType):
    """A module whose names are imported when they are first used."""

    def __init__(self, name: str, original: str) -> None:
        """Make a module.

        Args:
            name: Its name.
            original: Name of the module of mosaicml-streaming whose names it has.
        """
        super().__init__(name, f"{original} of mosaicml-streaming, by streamplug.")
        self.__path__: list[str] = []  # a package whose modules are all registered
        self.__spec__ = ModuleSpec(name, None, origin=__name__, is_package=True)
        self.__all__ = list(MODULES[original])
        self._original = original
        if original == "streaming":
            self.__version__ = VERSION

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = find_name(self._original, name)
        setattr(self, name, value)
        return value


class _MissingModuleFinder(MetaPathFinder):
    """Refuses modules of mosaicml-streaming that are missing here, and says what to use instead.

    Python also looks for a module where ``from module import name`` finds no such name.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Refuse a module of mosaicml-streaming, or one of this package: all that exist were found before.

        Raises:
            ModuleNotFoundError: If it is one.
        """
        package, _, name = fullname.partition(".")
        is_alias = package == "streaming" and isinstance(sys.modules.get(package), AliasModule)
        if name and (is_alias or package == "streamplug_mosaic"):
            from streamplug_mosaic.differences import replacement_of

            # Without a name, lest `from streaming.base import x` takes it for a missing attribute.
            raise ModuleNotFoundError(
                f"{fullname}: streamplug_mosaic has no such name; use {replacement_of(f'streaming.{name}')}"
            )


def find_name(module: str, name: str) -> Any:
    """Return what a name of a module of mosaicml-streaming stands for.

    Args:
        module: Name of the module there, such as ``"streaming.base"``.
        name: The name.

    Raises:
        AttributeError: If there is no such name; the text says what to use instead.
        ImportError: If it comes with a distribution that is not installed.
    """
    if name not in MODULES[module]:
        from streamplug_mosaic.differences import replacement_of

        raise AttributeError(
            f"{module}.{name}: streamplug_mosaic has no such name; it has "
            f"{', '.join(MODULES[module])}. Use {replacement_of(f'{module}.{name}')}"
        )
    if name in _DATASETS:
        return dataset_class(name)
    if name == "dataframe_to_mds":
        return _without_digests(_import_from(name, "streamplug_spark"))
    home = next(home for home, names in HOMES.items() if name in names)
    return getattr(import_module(f"streamplug_mosaic.compat.{home}"), name)


@cache
def dataset_class(name: str) -> type:
    """Return the class of a well-known data set, with the defaults that it has in mosaicml-streaming."""
    from streamplug_mosaic.compat.dataset import DatasetDefaults, StreamingDataset

    ours = _import_from(name, "streamplug_datasets")
    base = StreamingDataset if name == "StreamingInsideWebVid" else DatasetDefaults
    members = {"__doc__": ours.__doc__, "__module__": "streamplug_mosaic"}  # where pickle finds it
    return type(name, (base, ours), members)


@cache
def _without_digests(function: Any) -> Any:
    """Return `dataframe_to_mds` that writes digests only if they are asked for."""

    @wraps(function)
    def dataframe_to_mds(
        dataframe: Any, merge_index: bool = True, mds_kwargs: Any = None, **kwargs: Any
    ) -> Any:
        options = dict(mds_kwargs or {})
        options["hashes"] = options.get("hashes") or ()
        return function(dataframe, merge_index, options, **kwargs)

    return dataframe_to_mds


def _import_from(name: str, module: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        distribution = module.replace("_", "-")
        raise ImportError(f"{name} comes with a plugin: pip install {distribution}") from None
