"""LitData chunks for streamplug."""
