"""Directories of files as data sets for streamplug: one file per sample, classes by directory."""
