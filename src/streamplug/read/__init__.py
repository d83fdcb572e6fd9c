"""Bytes from near: opens local shards and decodes their samples."""

from streamplug.read.chosen import chosen, chosen_one
from streamplug.read.decoders import decoded_by
from streamplug.read.encoded import Encoded
from streamplug.read.ranges import RangeShards
from streamplug.read.reader import Reader
from streamplug.read.samples import Samples
from streamplug.read.shards import OpenShards

__all__ = [
    "Encoded",
    "OpenShards",
    "RangeShards",
    "Reader",
    "Samples",
    "chosen",
    "chosen_one",
    "decoded_by",
]
