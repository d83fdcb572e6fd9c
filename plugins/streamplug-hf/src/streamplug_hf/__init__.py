"""Data sets of the Hugging Face Hub (hf://) for streamplug."""
