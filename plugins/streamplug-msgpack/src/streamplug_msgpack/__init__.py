"""Nested values with NumPy arrays (msgpack) for streamplug."""
