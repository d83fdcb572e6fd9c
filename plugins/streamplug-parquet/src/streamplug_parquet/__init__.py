"""Parquet files for streamplug: reading existing files and writing shards."""
