"""Damaged files of LeRobot data sets, and those that would take far more memory than their size."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from streamplug_av import lerobot_episodes
from streamplug_parquet import memory_bounds
from streamplug_parquet.budget import Budget
from streamplug_testing.memory import takes_less_of_the_system

from streamplug.errors import ConfigError, CorruptShardError, DataError, NotFound

MB = 1 << 20
INFO = {
    "fps": 10,
    "features": {"action": {"dtype": "float32"}},
    "data_path": "data/{file_index:03d}.parquet",
}
EPISODES = [{"episode_index": n, "length": 5, "data/file_index": 0} for n in range(2)]
FRAMES = {"episode_index": [0] * 5 + [1] * 5, "action": [n / 2 for n in range(10)]}


@pytest.fixture
def root(tmp_path):
    """A data set of two episodes, listed in JSON lines."""
    for name in ("meta", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "meta/info.json").write_text(json.dumps(INFO))
    (tmp_path / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, EPISODES)))
    parquet.write_table(pa.table(FRAMES), tmp_path / "data/000.parquet", row_group_size=3)
    return tmp_path


@pytest.fixture
def listed(root):
    """The Parquet file that lists the episodes instead."""
    (root / "meta/episodes.jsonl").unlink()
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(EPISODES), path)
    return path


@pytest.fixture
def low_limit(monkeypatch):
    monkeypatch.setattr(memory_bounds, "MIN_LIMIT_BYTES", 32 * MB)
    monkeypatch.setattr(memory_bounds, "budget", Budget(0))


def repeated(rows, size=MB):
    """Return text of `size` bytes in each row, which takes little in a file."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * size])


def write(path, columns, **options):
    options = {"compression": "zstd", "store_schema": False, **options}
    parquet.write_table(pa.table(columns), path, dictionary_pagesize_limit=1 << 30, **options)
    assert path.stat().st_size < 100_000


def refuses(root, path, match):
    def act():
        with pytest.raises(CorruptShardError, match=f"^{re.escape(str(path))}: .*{match}"):
            list(lerobot_episodes(root))

    return takes_less_of_the_system(64 * MB, act)


def test_episodes_of_several_row_groups(root, listed):
    samples = list(lerobot_episodes(root))
    assert [(s["episode"], s["action"].tolist()) for s in samples] == [
        (0, [0.0, 0.5, 1.0, 1.5, 2.0]),
        (1, [2.5, 3.0, 3.5, 4.0, 4.5]),
    ]


@pytest.mark.parametrize("row_group_size", [1000, 20])
def test_a_list_of_episodes_that_expands(root, listed, row_group_size, low_limit):
    numbers = np.arange(1000)
    columns = {"episode_index": numbers, "length": repeated(1000)}
    write(listed, columns, row_group_size=row_group_size)
    assert refuses(root, listed, r"more than the limit of \d+")


@pytest.mark.parametrize("row_group_size", [1000, 20])
def test_frames_that_expand(root, row_group_size, low_limit):
    columns = {"episode_index": np.arange(1000), "action": repeated(1000)}
    write(root / "data/000.parquet", columns, row_group_size=row_group_size)
    assert refuses(root, root / "data/000.parquet", r"more than the limit of \d+")


def test_episodes_and_frames_without_number(root, listed):
    for path in (listed, root / "data/000.parquet"):
        write(path, {"episode_index": np.zeros(1_000_000, np.int64), "length": np.zeros(1_000_000)})
        assert refuses(root, path, r"it has 1000000 rows in \d+ bytes, more than")
        parquet.write_table(pa.Table.from_pylist(EPISODES), listed)


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("meta/info.json", "{", "meta/info.json is damaged: JSONDecodeError"),
        ("meta/info.json", "[]", "meta/info.json is damaged: TypeError"),
        ("meta/info.json", "[" * 100_000, "meta/info.json is damaged: RecursionError"),
        ("meta/info.json", '{"fps": 10}', "meta/info.json is damaged: KeyError: 'features'"),
        ("meta/info.json", '{"features": {"a": 1}}', "meta/info.json is damaged: TypeError"),
        ("meta/info.json", '{"features": {}}', "meta/info.json: None is no pattern"),
        ("meta/episodes.jsonl", "\xff", "episodes.jsonl: line 1 is damaged: UnicodeDecodeError"),
        ("meta/episodes.jsonl", "\n\n{", "episodes.jsonl: line 3 is damaged: JSONDecodeError"),
        ("meta/episodes.jsonl", "\n7", "episodes.jsonl: line 2 is damaged: TypeError"),
        ("meta/episodes.jsonl", "{}", "line 1 is damaged: KeyError: 'episode_index'"),
        ("meta/episodes.jsonl", '{"episode_index": 1e999}', "line 1 is damaged: OverflowError"),
        ("meta/episodes.jsonl", '{"episode_index": 0}', "line 1 is damaged: KeyError: 'length'"),
        ("data/000.parquet", "PAR1", "data/000.parquet: its footer is damaged"),
    ],
)
def test_what_is_damaged_is_named(root, name, text, match):
    (root / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=rf"^{re.escape(str(root))}/.*{match}"):
        list(lerobot_episodes(root))


def test_what_is_damaged_in_tables_is_named(root, listed):
    for columns, match in (
        ({"length": [5]}, "row 0 is damaged: KeyError: 'episode_index'"),
        ({"episode_index": [0], "length": [None]}, "row 0: .* None frames"),
    ):
        parquet.write_table(pa.table(columns), listed)
        with pytest.raises(DataError, match=f"^{re.escape(str(listed))}: {match}"):
            list(lerobot_episodes(root))
    parquet.write_table(pa.Table.from_pylist(EPISODES), listed)
    path = root / "data/000.parquet"
    parquet.write_table(pa.table({"action": [1.0]}), path)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))} is damaged: KeyError"):
        list(lerobot_episodes(root))
    path.unlink()
    with pytest.raises(NotFound, match=f"^{re.escape(str(path))} does not exist"):
        list(lerobot_episodes(root))


def test_speed_of_frames_is_needed_for_videos(root):
    features = {"view": {"dtype": "video"}}
    info = {**INFO, "features": features, "video_path": "view.mp4", "fps": 0}
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match=r"meta/info\.json is damaged: ZeroDivisionError"):
        list(lerobot_episodes(root))


@pytest.mark.parametrize(
    "text",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile://{root}/other.ts\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile other.ts\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nt=0 0\nm=video 45670 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
    ],
)
def test_videos_are_cut_from_no_other_files(root, listed, media, monkeypatch, text):
    features = {"view": {"dtype": "video"}}
    info = {**INFO, "features": features, "video_path": "view.mp4"}
    (root / "meta/info.json").write_text(json.dumps(info))
    place = {"videos/view/from_timestamp": 0.0, "videos/view/to_timestamp": 0.5}
    parquet.write_table(pa.Table.from_pylist([{**EPISODES[0], **place}]), listed)
    (root / "other.ts").write_bytes(media(container="mpegts"))
    monkeypatch.chdir(root)  # lists name files below the working directory
    (root / "view.mp4").write_text(text.format(root=root))
    with pytest.raises(DataError, match=r"^.*view\.mp4: episode 0: cannot "):
        list(lerobot_episodes(root))


def test_what_is_needed_is_named(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "streamplug_parquet.metadata_tables", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamplug-av\[lerobot\]'"):
        list(lerobot_episodes(root))
