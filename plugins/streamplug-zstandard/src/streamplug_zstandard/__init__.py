"""Zstandard compression (zstd) for streamplug."""
