"""Episodes of data sets in LeRobot's layout: Parquet files of frames beside MP4 files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import ceil
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer

from streamplug.errors import ConfigError, DataError, DecodeError, InvalidIndexError, NotFound
from streamplug.index import validate_basename
from streamplug.plugin_kit import parsing, storage_error
from streamplug.types import Sample
from streamplug_av.container import (
    decode_errors,
    open_container,
    select_stream,
    start_seconds,
    video_edits,
)
from streamplug_av.movie_index import end_edits
from streamplug_av.value_file import ValueFile

_INFO = "meta/info.json"
_PATTERN = re.compile(
    r"(?:[^{}]|\{(?:episode_chunk|chunk_index|file_index|episode_index|video_key)(?::0[0-9]{1,2}d)?\})+"
)
"""What patterns of file names may have."""


def lerobot_episodes(
    root: str | Path, columns: Sequence[str] | None = None, *, cut: bool = True
) -> Iterator[Sample]:
    """Yield a sample for each episode of a data set in LeRobot's layout, version 2 or 3.

    Needs streamplug-parquet, which the extra ``streamplug-av[lerobot]`` installs.

    Args:
        root: Directory of the data set, with ``meta/info.json``.
        columns: Features to take, those of videos included; None takes all.
        cut: Whether files of several episodes are cut, so that they show the frames of one; they are not
            encoded again. Else a sample has the whole file.

    Yields:
        ``episode``; ``length``, the number of its frames; ``tasks``, a list of their texts; an array of shape
        ``[length, ...]`` and of the stored dtype for each numeric feature, a list for others; and for each
        video feature the bytes of the file and, as ``<feature>.start`` and ``<feature>.stop``, the seconds of
        the episode in it. Frame k of a video that is cut belongs to row k of the arrays.

    Raises:
        ConfigError: If there is no such data set, or no such feature, a feature has the name of another
            column, or streamplug-parquet is not installed.
        DataError: If a file is damaged, takes far more memory than its size, or contradicts another.
        StorageError: If a file is missing or cannot be read.
    """
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}: expected a list, such as [{columns!r}]")
    base = Path(root)
    try:
        data = _read_bytes(base / _INFO)
    except NotFound as error:
        raise ConfigError(f"{base}: no data set of LeRobot, it has no {_INFO}") from error
    with parsing(str(base / _INFO)):
        info = {**json.loads(data)}
        features = {name: feature["dtype"] for name, feature in info["features"].items()}
    if unknown := sorted(set(columns or ()) - features.keys()):
        raise ConfigError(f"columns={unknown}: the data set has {sorted(features)}")
    taken = [name for name in features if columns is None or name in columns]
    videos = [name for name in taken if features[name] == "video"]
    own = {"episode", "length", "tasks"}.union(*((f"{v}.start", f"{v}.stop") for v in videos))
    if reserved := sorted(own.intersection(taken)):
        raise ConfigError(
            f"{base}: features {reserved} have the names of columns of an episode; leave them out of columns="
        )
    stored = [name for name in taken if name not in videos]
    # Several episodes may be in one file.
    read = lru_cache(maxsize=2)(partial(_read_tables, names=["episode_index", *stored]))
    for where, episode in _episodes(base, info, videos):
        with parsing(where):
            number = int(episode["episode_index"])
            path = _path(base, info, episode, "data", "")
        tables = read(path)
        with parsing(str(path)):
            length, values = _frames(tables, number, stored)
        with parsing(where):
            if length != episode["length"]:
                raise DataError(
                    f"{where}: episode {number} has {episode['length']} frames according to its meta data, "
                    f"and {length} in its file {path}"
                )
            tasks = episode.get("tasks") or []
            if not isinstance(tasks, list):
                raise DataError(f"{where}: tasks={tasks!r:.80}: expected a list of texts")
            sample: Sample = {"episode": number, "length": length, "tasks": tasks, **values}
            for name in videos:
                sample |= _video(base, info, episode, name, cut)
        yield sample


def _episodes(
    base: Path, info: Mapping[str, Any], videos: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the metadata of each episode, and the file and line or row of it, for errors."""
    listed = base / "meta" / "episodes.jsonl"
    episodes = []
    if listed.exists():
        for number, line in enumerate(_read_bytes(listed).splitlines(), 1):
            where = f"{listed}: line {number}"
            if line.strip():
                with parsing(where):
                    episodes.append((where, {**json.loads(line)}))
        return episodes
    files = sorted((base / "meta" / "episodes").rglob("[!.]*.parquet"))
    if not files:
        raise ConfigError(
            f"{base}: version {info.get('codebase_version')}: no meta/episodes of version 2 or 3"
        )
    names = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    fields = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
    names += [f"videos/{video}/{field}" for video in videos for field in fields]
    for file in files:
        tables = _read_tables(file, names)
        with parsing(str(file)):
            rows = [row for table in tables for row in table.to_pylist()]
        episodes += [(f"{file}: row {number}", row) for number, row in enumerate(rows)]
    return episodes


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise storage_error(error, str(path)) from error


def _read_tables(path: Path, names: Sequence[str]) -> list[Any]:
    """Return the row groups of a Parquet file, with those of some columns that it has."""
    try:
        from streamplug_parquet.memory_bounds import naming
        from streamplug_parquet.metadata_tables import read_file
    except ImportError as error:
        raise ConfigError(
            "LeRobot's layout needs streamplug-parquet: pip install 'streamplug-av[lerobot]'"
        ) from error
    data = _read_bytes(path)
    with naming(str(path)):
        return read_file(data, names)


def _path(
    base: Path, info: Mapping[str, Any], episode: Mapping[str, Any], prefix: str, key: str
) -> Path:
    pattern = info.get("video_path" if key else "data_path")
    number = int(episode["episode_index"])
    chunk = episode.get(f"{prefix}/chunk_index")
    if chunk is None:  # version 2, in which each episode has its own files
        with parsing(str(base / _INFO)):
            chunk = number // info.get("chunks_size", 1000)
    file = episode.get(f"{prefix}/file_index", number)
    if not isinstance(pattern, str) or _PATTERN.fullmatch(pattern) is None:
        raise DataError(f"{base / _INFO}: {pattern!r:.200} is no pattern of file names")
    # Only what the pattern allows: other formats take any memory, and read attributes.
    path = pattern.format(
        episode_chunk=int(chunk),
        chunk_index=int(chunk),
        file_index=int(file),
        episode_index=number,
        video_key=key,
    )
    try:
        return base / validate_basename(path, f"{base / _INFO}")
    except InvalidIndexError as error:
        raise DataError(str(error)) from None


def _frames(tables: Sequence[Any], number: int, names: Sequence[str]) -> tuple[int, Sample]:
    """Return the number of frames of an episode, and those of the columns that the file has."""
    rows = [np.flatnonzero(table["episode_index"].to_numpy() == number) for table in tables]
    sample: Sample = {}
    for name in names:
        if tables and name in tables[0].column_names:
            parts = (table[name].take(part) for table, part in zip(tables, rows))
            values = [value for part in parts for value in part.to_pylist()]
            sample[name] = _array(values, tables[0][name].type)
    return sum(map(len, rows)), sample


def _array(values: list[Any], type_: Any) -> Any:
    """Return values of an Arrow type as an array of the dtype of its items; a list if they are no numbers."""
    import pyarrow as pa

    try:
        array = np.array(values)
    except ValueError:  # of unequal lengths
        return values
    if array.dtype.kind not in "biuf":
        return values
    # Extension types come first: the value_type of those of the package datasets is text.
    while inner := getattr(type_, "storage_type", None) or getattr(type_, "value_type", None):
        type_ = inner
    # Not to_pandas_dtype, which needs pandas before version 26.
    dtype = pa.nulls(0, type_).to_numpy(zero_copy_only=False).dtype
    if dtype.kind in "iu" and array.dtype.kind == "f":
        # NumPy makes floats of small and large numbers of uint64 together, and would round them.
        return np.array(values, dtype)
    return array.astype(dtype, copy=False) if values else array


def _video(
    base: Path, info: Mapping[str, Any], episode: Mapping[str, Any], name: str, cut: bool
) -> Sample:
    prefix = f"videos/{name}"
    path = _path(base, info, episode, prefix, name)
    start = float(episode.get(f"{prefix}/from_timestamp", 0.0))
    number, length = episode["episode_index"], episode["length"]
    with parsing(str(base / _INFO)):
        frame_seconds = 1 / info["fps"]
    # Some writers give the time of the last frame as to_timestamp.
    end = start + length * frame_seconds
    stop = max(float(episode.get(f"{prefix}/to_timestamp", end)), end)
    data = _read_bytes(path)
    if cut and f"{prefix}/from_timestamp" in episode:
        try:
            # As in LeRobot, rows belong to the nearest frames.
            data, _, frames = cut_video(data, start, end, frame_seconds / 2)
        except DecodeError as error:
            raise DecodeError(f"{path}: episode {number}: {error}") from error
        if frames != length:
            raise DataError(
                f"{path}: episode {number} has {length} frames, but the video {frames} from {start:.3f} to "
                f"{stop:.3f} s; cut=False takes videos without a check"
            )
        start, stop = 0.0, stop - start
    return {name: data, f"{name}.start": start, f"{name}.stop": stop}


def cut_video(
    data: bytes, start: float, stop: float, tolerance: float = 0.0
) -> tuple[bytes, float, int]:
    """Return an MP4 file that shows the frames of a time range, without encoding them again.

    The file has the packets from the key frame before the range, which its edit list does not show.

    Args:
        data: The file to cut.
        start: Begin of the range in seconds from the begin of the file.
        stop: End of the range, likewise.
        tolerance: Seconds by which a frame may come before `start` to count, or before `stop` not to.

    Returns:
        The file, the time in `data` of its first frame in seconds, and the number of its frames.

    Raises:
        DecodeError: If it is no file of video, is damaged, or has no frames in the range.
    """
    file, out = ValueFile(data), io.BytesIO()
    with (
        decode_errors(f"cannot cut the file from {start:.3f} to {stop:.3f} s"),
        open_container(file) as source,
    ):
        stream = select_stream(source, "video")
        if len(video_edits(source, file, stream)) > 1:
            raise DecodeError(
                "a file whose edit list has several parts cannot be cut; encode it again"
            )
        tick, origin = float(stream.time_base), start_seconds(source)
        early = max(tolerance, tick / 2)
        first, end = (ceil((at - early + origin) / tick) for at in (start, stop))
        packets = []
        for packet in _packets_from(source, stream, int((start + origin) / tick + 0.5)):
            if packet.dts is None or packet.pts is None or packet.dts >= end:
                break
            packets.append(packet)
        # Frames that are shown before the key frame cannot be decoded.
        first = max(first, packets[0].pts) if packets else first
        shown = {packet.pts: packet.duration for packet in packets if first <= packet.pts < end}
        if not shown:
            raise DecodeError(f"the file has no frames from {start:.3f} to {stop:.3f} s")
        begin, last = min(shown), max(shown)
        # Packets after the range are needed to decode frames that are shown before.
        later = min((packet.pts for packet in packets if packet.pts > last), default=None)
        # Durations in the edit list are in ticks of the movie.
        options = {"movie_timescale": str(stream.time_base.denominator)}
        with av.open(out, "w", format="mp4", options=options) as target:
            # Else PyAV looks for an encoder with the name of the decoder, and libdav1d is none.
            copied = target.add_stream_from_template(stream, opaque=True)
            for packet in packets:
                packet.pts, packet.dts = packet.pts - begin, packet.dts - begin
                packet.stream = copied
                target.mux(packet)
    cut = out.getvalue()
    if later is not None:
        end = min(last + (shown[last] or 1), later)
        cut = end_edits(cut, copied.index + 1, (end - begin) * tick)
    return cut, begin * tick - origin, len(shown)


def _packets_from(source: InputContainer, stream: Any, pts: int) -> Iterator[Any]:
    """Yield packets from a key frame that is shown at `pts` or before it, if there is one."""
    at = pts
    while True:
        source.seek(at, stream=stream)
        packets = source.demux(stream)
        first = next(packets, None)
        # Seeking finds the last key frame that is decoded by then, which may be shown later.
        if first is None or first.pts is None or first.dts is None or first.pts <= pts:
            break
        if first.dts > at:  # there is none before it
            break
        at = first.dts - 1
    if first is not None:
        yield first
        yield from packets
