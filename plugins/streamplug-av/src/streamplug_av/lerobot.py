"""Episodes of data sets in LeRobot's layout: Parquet files of frames beside MP4 files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np

from streamplug.errors import ConfigError, DataError, InvalidIndexError
from streamplug.index.basename import validate_basename
from streamplug.types import Sample
from streamplug_av.container import decode_errors

_INFO = "meta/info.json"
_PATTERN = re.compile(
    r"(?:[^{}]|\{(?:episode_chunk|chunk_index|file_index|episode_index|video_key)(?::0[0-9]{1,2}d)?\})+"
)
"""What patterns of file names may have."""


def lerobot_episodes(
    root: str | Path, columns: Sequence[str] | None = None, *, cut: bool = True
) -> Iterator[Sample]:
    """Yield a sample for each episode of a data set in LeRobot's layout, version 2 or 3.

    Needs pyarrow.

    Args:
        root: Directory of the data set, with ``meta/info.json``.
        columns: Features to take, those of videos included; None takes all.
        cut: Whether videos are cut to their episode, at key frames and without encoding them again; else
            a sample has the whole file, which other episodes may share.

    Yields:
        ``episode`` and ``length``, the number of its frames; an array of shape ``[length, ...]`` for each
        numeric feature, a list for others; and for each video feature the bytes of the file and, as
        ``<feature>.start`` and ``<feature>.stop``, the seconds of the episode in it.

    Raises:
        ConfigError: If there is no such data set, or no such feature.
        DataError: If its files contradict each other.
    """
    base = Path(root)
    try:
        info = json.loads((base / _INFO).read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{base}: no data set of LeRobot, it has no {_INFO}") from error
    features = {name: feature["dtype"] for name, feature in info["features"].items()}
    if unknown := sorted(set(columns or ()) - features.keys()):
        raise ConfigError(f"columns={unknown}: the data set has {sorted(features)}")
    taken = [name for name in features if columns is None or name in columns]
    videos = [name for name in taken if features[name] == "video"]
    read = lru_cache(maxsize=2)(_read_table)  # several episodes may be in one file
    for episode in _episodes(base, info):
        number = int(episode["episode_index"])
        table = read(base / _path(info["data_path"], episode, "data", ""))
        rows = np.flatnonzero(table["episode_index"].to_numpy() == number)
        if len(rows) != episode["length"]:
            raise DataError(
                f"{base}: episode {number} has {episode['length']} frames according to its meta data, and "
                f"{len(rows)} in its file"
            )
        sample: Sample = {"episode": number, "length": len(rows)}
        for name in taken:
            if name not in videos and name in table.column_names:
                sample[name] = _values(table[name].take(rows))
        for name in videos:
            sample |= _video(base, info, episode, name, cut)
        yield sample


def _episodes(base: Path, info: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = base / "meta" / "episodes.jsonl"
    if listed.exists():
        return [json.loads(line) for line in listed.read_text().splitlines() if line]
    files = sorted((base / "meta" / "episodes").rglob("*.parquet"))
    if not files:
        raise ConfigError(
            f"{base}: version {info.get('codebase_version')}: no meta/episodes of version 2 or 3"
        )
    return [row for file in files for row in _read_table(file).to_pylist()]


def _read_table(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.read_table(path)


def _path(pattern: Any, episode: Mapping[str, Any], prefix: str, key: str) -> str:
    number = int(episode["episode_index"])
    size = 1000  # of the chunks of version 2
    chunk = episode.get(f"{prefix}/chunk_index", number // size)
    file = episode.get(f"{prefix}/file_index", number)
    if not isinstance(pattern, str) or _PATTERN.fullmatch(pattern) is None:
        raise DataError(f"{_INFO}: {pattern!r:.200} is no pattern of file names")
    # Only what the pattern allows: other formats take any memory, and read attributes.
    path = pattern.format(
        episode_chunk=int(chunk),
        chunk_index=int(chunk),
        file_index=int(file),
        episode_index=number,
        video_key=key,
    )
    try:
        return validate_basename(path, _INFO)
    except InvalidIndexError as error:
        raise DataError(str(error)) from None


def _values(column: Any) -> Any:
    values = column.to_pylist()
    try:
        array = np.array(values)
    except ValueError:  # of unequal lengths
        return values
    return array if array.dtype.kind in "biuf" else values


def _video(
    base: Path, info: Mapping[str, Any], episode: Mapping[str, Any], name: str, cut: bool
) -> Sample:
    prefix = f"videos/{name}"
    path = base / _path(info["video_path"], episode, prefix, name)
    start = float(episode.get(f"{prefix}/from_timestamp", 0.0))
    stop = float(episode.get(f"{prefix}/to_timestamp", episode["length"] / info["fps"]))
    data = path.read_bytes()
    if cut and f"{prefix}/from_timestamp" in episode:
        with decode_errors(f"{path}"):
            data, begin = cut_video(data, start, stop)
        start, stop = start - begin, stop - begin
    return {name: data, f"{name}.start": start, f"{name}.stop": stop}


def cut_video(data: bytes, start: float, stop: float) -> tuple[bytes, float]:
    """Return an MP4 file with the packets of a time range, from the key frame before it, and its begin.

    Args:
        data: The file to cut.
        start: Begin of the range in seconds.
        stop: End of the range in seconds.

    Returns:
        The file, and the time in `data` at which it begins, in seconds.
    """
    out = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(out, "w", format="mp4") as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream)
        tick = float(stream.time_base)
        source.seek(int((start + tick / 2) / tick), stream=stream)
        first: int | None = None
        for packet in source.demux(stream):
            if packet.dts is None or packet.pts is None or packet.dts * tick >= stop - tick / 2:
                break
            if first is None:
                first = packet.pts
            packet.pts, packet.dts = packet.pts - first, packet.dts - first
            packet.stream = copied
            target.mux(packet)
    return out.getvalue(), (first or 0) * tick
