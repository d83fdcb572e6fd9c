"""Image columns (pil, jpeg, png and lists of them) for streamplug, through Pillow."""
