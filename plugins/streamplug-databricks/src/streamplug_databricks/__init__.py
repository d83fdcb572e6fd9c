"""Databricks Unity Catalog volumes and DBFS (dbfs:/) for streamplug."""
