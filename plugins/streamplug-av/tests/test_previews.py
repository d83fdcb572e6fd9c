"""What reports show of video and sound."""

from __future__ import annotations

from streamplug_tools.previews import preview

from streamplug.plugin import make


def test_a_video_is_shown_by_a_frame(media):
    video = make("encoding", "video")
    shown = preview(video, media(2.0))
    assert shown.text == "<Video: 2.00 s, 64 x 48, 12 fps>"
    [picture] = shown.images
    assert (picture.width, picture.height) == (64, 48)
    assert preview(video, media(2.0), draw=False).images == ()
    assert "cannot be decoded" in preview(video, b"nothing").note


def test_sound_is_shown_by_its_waveform(media):
    shown = preview(
        make("encoding", "audio"), media(2.0, container="wav", codec="", audio="pcm_s16le")
    )
    assert shown.text == "<Audio: 2.00 s, 8,000 Hz, 1 channel>"
    assert shown.images[0].width > shown.images[0].height
