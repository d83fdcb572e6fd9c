"""Which files are samples, in which order, and of which class: as ImageFolder of torchvision has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamplug.errors import InvalidIndexError

IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""How names of images end, in lower case."""


@dataclass(frozen=True, slots=True)
class Classed:
    """Files of classes.

    Attributes:
        numbers: Which files, in order: by class, then by directory, then by name.
        labels: The number of the class of each, in the order of their names.
        outside: A file that is in no class, if there is one.
    """

    numbers: list[int]
    labels: list[int]
    outside: str


def classed(names: Sequence[str], endings: Sequence[str]) -> Classed:
    """Return the files that are in a class: that is the first directory of their name.

    Args:
        names: Those of all files.
        endings: How those of samples end, in lower case; none for all files.

    Raises:
        InvalidIndexError: If there are no classes, or one has no samples.
    """
    outside, taken, classes, found = "", [], set(), set()
    for number, name in enumerate(names):
        class_, slash, rest = name.partition("/")
        if not slash:
            outside = outside or name
            continue
        classes.add(class_)
        if not endings or name.lower().endswith(tuple(endings)):
            found.add(class_)
            folder, _, last = rest.rpartition("/")
            taken.append((class_, folder, last, number))
    if empty := sorted(classes - found):
        raise InvalidIndexError(
            f"directories without a file that ends with {', '.join(endings)} are no classes: "
            f"{', '.join(empty)[:200]}; name the others in remote=, such as with "
            "{dog,cat}/**, or give a format of other files"
        )
    if not classes:
        raise InvalidIndexError(
            f"{outside}: there are no directories, which would be classes; format='folder' takes files "
            "without classes"
        )
    label = {class_: number for number, class_ in enumerate(sorted(classes))}
    taken.sort()
    return Classed([each[-1] for each in taken], [label[each[0]] for each in taken], outside)
