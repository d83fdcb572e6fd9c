"""S3, Google Cloud, Azure and HTTP for streamplug through obstore, a client written in Rust."""
