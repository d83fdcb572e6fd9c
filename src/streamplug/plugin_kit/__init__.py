"""Helpers for authors of plugins."""
