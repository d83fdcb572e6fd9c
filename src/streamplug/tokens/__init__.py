"""Tokens: data sets of token sequences, seen as rows of one length."""

from streamplug.tokens.dataset import TokenDataset
from streamplug.tokens.views import TokenBlocks, TokenPacks

__all__ = ["TokenBlocks", "TokenDataset", "TokenPacks"]
