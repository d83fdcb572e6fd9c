"""LZ4 compression (lz4) for streamplug."""
