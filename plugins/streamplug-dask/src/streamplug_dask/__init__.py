"""Dask for streamplug: data sets are written on its clusters."""
