"""The encoding $name for streamplug."""
