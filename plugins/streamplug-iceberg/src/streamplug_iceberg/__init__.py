"""Iceberg tables as data sets of streamplug."""
