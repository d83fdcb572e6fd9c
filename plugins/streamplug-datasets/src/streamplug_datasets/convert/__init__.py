"""Converters, one module for each data set; none of them imports torch."""
