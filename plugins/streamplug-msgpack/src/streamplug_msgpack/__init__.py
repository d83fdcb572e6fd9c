"""Nested values with numpy arrays inside (msgpack) for streamplug."""
