"""The data set of token rows as an IterableDataset of torch."""

from streamplug.adapters import StreamingDataset
from streamplug_tokens import dataset


class TokenDataset(dataset.TokenDataset, StreamingDataset):  # noqa: D101 - below
    __doc__ = dataset.TokenDataset.__doc__
