"""NVIDIA AIStore (ais://) for streamplug."""
