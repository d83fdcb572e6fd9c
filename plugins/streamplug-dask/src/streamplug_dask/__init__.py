"""Writing of data sets on Dask clusters for streamplug."""
