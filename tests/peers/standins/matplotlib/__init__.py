"""As much of matplotlib as shows an image."""
