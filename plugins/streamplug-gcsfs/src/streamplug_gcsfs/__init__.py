"""Google Cloud Storage (gs://) for streamplug, through gcsfs."""
