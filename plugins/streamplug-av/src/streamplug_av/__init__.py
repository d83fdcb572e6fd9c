"""Columns of video and audio files for streamplug, through PyAV.

All names are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_av.audio import Audio as Audio
    from streamplug_av.clip_transform import RandomClips as RandomClips
    from streamplug_av.clip_transform import RandomWindows as RandomWindows
    from streamplug_av.decoders import AudioFiles as AudioFiles
    from streamplug_av.decoders import AudioWindows as AudioWindows
    from streamplug_av.decoders import VideoClips as VideoClips
    from streamplug_av.decoders import VideoFiles as VideoFiles
    from streamplug_av.folder import media_files as media_files
    from streamplug_av.lerobot import lerobot_episodes as lerobot_episodes
    from streamplug_av.video import Video as Video
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "audio": "Audio",
            "clip_transform": "RandomClips RandomWindows",
            "decoders": "AudioFiles AudioWindows VideoClips VideoFiles",
            "folder": "media_files",
            "lerobot": "lerobot_episodes",
            "video": "Video",
        },
    )
