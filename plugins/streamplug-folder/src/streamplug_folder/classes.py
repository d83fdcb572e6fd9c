"""Selection, order and classes of files, as by torchvision's ImageFolder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamplug.errors import InvalidIndexError
from streamplug.plugin_kit import SYSTEM_DIRECTORIES

IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Lower-case suffixes of image files."""


@dataclass(frozen=True, slots=True)
class Classed:
    """Files with classes.

    Attributes:
        numbers: Numbers of the files, ordered by class, directory and name.
        labels: Class number of each file; classes are sorted by name.
        outside: A file without a class, or an empty string.
    """

    numbers: list[int]
    labels: list[int]
    outside: str


def is_hidden(name: str) -> bool:
    """Return whether a part of a path begins with a dot, or the first is a directory of software."""
    return "/." in f"/{name}" or name.partition("/")[0] in SYSTEM_DIRECTORIES


def classed(names: Sequence[str], endings: Sequence[str]) -> Classed:
    """Return the files with a class, the first directory of their path.

    Args:
        names: Paths of all files; those of hidden files only show that their directory is a class.
        endings: Lower-case suffixes of samples; empty for all files.

    Raises:
        InvalidIndexError: If there are no classes, or a class has no samples.
    """
    outside, taken, classes, classes_with_samples = "", [], set(), set()
    for number, name in enumerate(names):
        class_, slash, rest = name.partition("/")
        if is_hidden(name):
            if slash and not is_hidden(class_):
                classes.add(class_)
            continue
        if not slash:
            outside = outside or name
            continue
        classes.add(class_)
        if not endings or name.lower().endswith(tuple(endings)):
            classes_with_samples.add(class_)
            folder, _, last = rest.rpartition("/")
            taken.append((class_, folder, last, number))
    check_classes(sorted(classes - classes_with_samples), endings)
    if not classes:
        raise InvalidIndexError(
            f"{outside}: there are no directories, which would be classes; format='folder' takes files "
            "without classes"
        )
    label = {class_: number for number, class_ in enumerate(sorted(classes))}
    taken.sort()
    numbers, labels = [entry[-1] for entry in taken], [label[entry[0]] for entry in taken]
    return Classed(numbers, labels, outside)


def check_classes(empty: Sequence[str], endings: Sequence[str]) -> None:
    """Refuse classes without samples.

    Raises:
        InvalidIndexError: If there are `empty` classes.
    """
    if empty:
        files = f"a file that ends with {', '.join(endings)}" if endings else "files"
        raise InvalidIndexError(
            f"directories without {files} are no classes: {', '.join(empty)[:200]}; remove them, name the "
            "others in remote=, such as with {dog,cat}/**, or give a format of other files"
        )
