"""Chunks of LitData for streamplug."""
