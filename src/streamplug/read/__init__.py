"""Bytes from near: opens local shards and decodes their samples."""

from streamplug.read.chosen import chosen, chosen_one
from streamplug.read.decoders import decoded_by
from streamplug.read.ranges import RangeShards
from streamplug.read.reader import Reader
from streamplug.read.shards import OpenShards

__all__ = ["OpenShards", "RangeShards", "Reader", "chosen", "chosen_one", "decoded_by"]
