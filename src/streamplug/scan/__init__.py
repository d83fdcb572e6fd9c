"""Data sets without an index: listing and scanning their files, and the index made from that."""
