"""Azure Blob Storage and Data Lake Storage (az://, abfs://) for streamplug, through adlfs."""
