"""Directories of files as data sets for streamplug: one file a sample, classes by directory."""
