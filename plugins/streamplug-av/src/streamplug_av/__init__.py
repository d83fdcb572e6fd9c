"""Columns of video and audio files for streamplug, through PyAV.

All names are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_av.audio import Audio
    from streamplug_av.clip_transform import RandomClips, RandomWindows
    from streamplug_av.decoders import AudioFiles, AudioWindows, VideoClips, VideoFiles
    from streamplug_av.folder import media_files
    from streamplug_av.lerobot import lerobot_episodes
    from streamplug_av.video import Video

_MODULES = {
    "Audio": "audio",
    "AudioFiles": "decoders",
    "AudioWindows": "decoders",
    "RandomClips": "clip_transform",
    "RandomWindows": "clip_transform",
    "Video": "video",
    "VideoClips": "decoders",
    "VideoFiles": "decoders",
    "lerobot_episodes": "lerobot",
    "media_files": "folder",
}

__all__ = [
    "Audio",
    "AudioFiles",
    "AudioWindows",
    "RandomClips",
    "RandomWindows",
    "Video",
    "VideoClips",
    "VideoFiles",
    "lerobot_episodes",
    "media_files",
]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'streamplug_av' has no attribute {name!r}")
        return getattr(import_module(f"streamplug_av.{_MODULES[name]}"), name)
