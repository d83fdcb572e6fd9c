"""Imported, and not used."""
