"""The encodings that need nothing but numpy."""
