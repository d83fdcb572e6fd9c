"""Data loader for torchtitan: rows of tokens, on any number of ranks, with an exact state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader

from streamplug import StreamingDataLoader, TokenBlocks, TokenDataset, World


class StreamplugDataLoader(BaseDataLoader):
    """Yields inputs and labels epoch after epoch."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """`dataset_path` is the location of the data set."""

        seed: int = 9176
        num_workers: int = 0

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int,
        local_batch_size: int,
        **_: Any,
    ) -> None:
        # Ranks of tensor or pipeline parallelism have the same dp_rank, and so the same samples.
        dataset = TokenDataset(
            remote=config.dataset_path,
            tokens=TokenBlocks(column="tokens", length=seq_len, extras=["targets"]),
            shuffle=True,
            shuffle_seed=config.seed,
            batch_size=local_batch_size,
            world=World(ranks_per_node=dp_world_size, rank=dp_rank),
        )
        self.loader = StreamingDataLoader(dataset, num_workers=config.num_workers)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            for rows in self.loader:
                yield {"input": rows["tokens"].long()}, rows["targets"].long()

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict:
            self.loader.load_state_dict(state_dict)
