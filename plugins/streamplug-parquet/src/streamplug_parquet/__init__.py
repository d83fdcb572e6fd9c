"""Parquet files for streamplug: read as they are, and written."""
