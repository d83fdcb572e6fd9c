"""Delta Lake tables as data sets of streamplug."""
