"""Generated functions that decode single samples of MDS shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from types import CodeType
from typing import TYPE_CHECKING, Any

from streamplug.interfaces import Column
from streamplug.types import Bytes1D, Sample

if TYPE_CHECKING:
    from streamplug.builtin.formats.mds_layout import MDSLayout

_CODE = """\
def row(index):
    try:
        p0, stop = bounds[index], bounds[index + 1]
        {lengths} = heads(view, p0)
        {places}
        if {last} + rest != stop:
            raise ValueError
        return {{{cells}}}
    except Exception:
        return with_care(index)
"""


def row_reader(
    data: Bytes1D,
    bounds: memoryview,
    layout: MDSLayout,
    columns: Sequence[Column],
    with_care: Callable[[int], Sample],
) -> Callable[[int], Sample]:
    """Return a function that decodes a sample by its number in the shard.

    Args:
        data: The file.
        bounds: Start of each sample, and end of the last, shape ``[samples + 1]``.
        layout: Layout of the columns in a sample.
        columns: Columns to decode.
        with_care: Called if the generated function fails, to raise an error that names the value.
    """
    heads = Struct(f"<{layout.fixed.count(None)}I").unpack_from
    names = {column.name for column in columns}
    known: dict[str, Any] = {"bounds": bounds, "heads": heads, "rest": layout.rest}
    known |= {"view": memoryview(data), "with_care": with_care}  # type: ignore[arg-type]  # an array is a buffer
    # A value starts `before` bytes after p: the sample's start plus all variable sizes in front of it.
    cells, p, before = [], 0, layout.lengths
    for number, (column, size) in enumerate(zip(layout.columns, layout.fixed)):
        place = f"p{p}"
        if size is None:
            p += 1
            place += f", p{p}"
        if column.name in names:
            known[f"name{number}"] = column.name
            known[f"decode{number}"] = column.encoding.bound_decoder(data[before:])
            cells.append(f"name{number}: decode{number}({place})")
        before += size or 0
    exec(_compiled(p, ", ".join(cells)), known)  # noqa: S102 - numbered names, none from the data
    # Removed from its own globals: the reference cycle would keep the file open.
    row: Callable[[int], Sample] = known.pop("row")
    return row


@lru_cache(256)
def _compiled(lengths: int, cells: str) -> CodeType:
    code = _CODE.format(
        lengths="".join(f"n{n}, " for n in range(lengths)) or "()",
        places="; ".join(f"p{n + 1} = p{n} + n{n}" for n in range(lengths)) or "pass",
        last=f"p{lengths}",
        cells=cells,
    )
    return compile(code, "<a row of MDS>", "exec")
