"""Scanning of data sets without an index: file listing, scanning, and the resulting index."""
