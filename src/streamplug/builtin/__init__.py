"""The interfaces on the standard library, numpy and fsspec alone; reached by name, never imported."""
