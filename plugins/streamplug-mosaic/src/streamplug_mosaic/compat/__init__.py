"""Classes and functions that behave as those of mosaicml-streaming."""
