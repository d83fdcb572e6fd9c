"""The built-in compressions."""
