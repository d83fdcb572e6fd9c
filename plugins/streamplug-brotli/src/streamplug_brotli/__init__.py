"""Brotli compression (br) for streamplug."""
