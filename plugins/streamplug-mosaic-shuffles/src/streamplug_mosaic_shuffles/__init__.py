"""The shuffle algorithms of mosaicml-streaming for streamplug."""
