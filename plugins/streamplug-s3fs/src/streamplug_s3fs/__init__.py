"""Amazon S3 and compatible object stores (s3://) for streamplug, through s3fs."""
