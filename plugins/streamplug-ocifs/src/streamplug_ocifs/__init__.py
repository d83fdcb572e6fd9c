"""Oracle Cloud's Object Storage (oci://) for streamplug, through ocifs."""
