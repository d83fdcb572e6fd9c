"""Snappy compression (snappy) for streamplug."""
