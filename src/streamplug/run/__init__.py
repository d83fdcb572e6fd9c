"""Epoch iteration over opened streams."""
