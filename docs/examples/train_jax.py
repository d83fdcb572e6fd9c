"""Trains with JAX, without torch, on any number of processes, and continues where it stood.

    python docs/examples/train_jax.py --out run
    python docs/examples/train_jax.py --out run --processes 2 --process 0 --coordinator 127.0.0.1:1234

Kill it whenever you like. Started again, on any number of processes, it goes on after the last checkpoint.
"""

from __future__ import annotations

import argparse
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from waves import GLOBAL_BATCH, note, options_of, write_waves

from streamplug import StreamingDataset, World


def arguments() -> argparse.Namespace:
    parser = options_of(__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0, help="which of them this is")
    parser.add_argument("--coordinator", help="address of the first of them")
    return parser.parse_args()


def loss_of(weights: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jnp.tanh(x @ weights["in"] + weights["bias"])
    return jnp.mean((hidden @ weights["out"] - y) ** 2)


@jax.jit
def train_step(weights: Any, momentum: Any, x: jax.Array, y: jax.Array) -> Any:
    loss, slope = jax.value_and_grad(loss_of)(weights, x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, slope)
    return jax.tree.map(lambda w, m: w - 0.01 * m, weights, momentum), momentum, loss


def train(options: argparse.Namespace) -> None:
    ranks, rank = jax.process_count(), jax.process_index()
    # Processes of one machine; with one on each: World(nodes=ranks, rank=rank).
    dataset = StreamingDataset(
        local=str(options.data),
        shuffle=True,
        batch_size=GLOBAL_BATCH // ranks,
        world=World(ranks_per_node=ranks, rank=rank),
    )
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    dealt, everywhere = (
        NamedSharding(mesh, PartitionSpec("batch")),
        NamedSharding(mesh, PartitionSpec()),
    )
    rng = np.random.default_rng(0)
    weights = {
        "in": rng.normal(size=(8, 16)),
        "bias": np.zeros(16),
        "out": rng.normal(size=(16, 1)) / 4,
    }
    momentum = jax.tree.map(np.zeros_like, weights)
    checkpoint, step = options.out / "checkpoint.pickle", 0
    if checkpoint.exists():
        saved = pickle.loads(checkpoint.read_bytes())
        weights, momentum, step = saved["weights"], saved["momentum"], saved["step"]
        dataset.load_state_dict(saved["data"])  # the same on all processes
    weights, momentum = jax.device_put((weights, momentum), everywhere)

    while step < options.steps:
        for batch in dataset.batches(num_threads=options.workers):
            x, y, ids = (
                jax.make_array_from_process_local_data(dealt, batch[name])
                for name in ("x", "y", "id")
            )
            weights, momentum, loss = train_step(weights, momentum, x, y)
            step += 1
            samples = multihost_utils.process_allgather(ids, tiled=True).tolist()
            if rank == 0:
                note(options.out, step, loss.item(), samples)
            if rank == 0 and step % options.every == 0:
                part = checkpoint.with_suffix(".part")
                saved = jax.tree.map(np.asarray, {"weights": weights, "momentum": momentum})
                part.write_bytes(
                    pickle.dumps({**saved, "data": dataset.state_dict(), "step": step})
                )
                part.replace(checkpoint)  # so that there is always a whole one
            if step == options.steps:
                break


def main() -> None:
    options = arguments()
    jax.config.update("jax_enable_x64", True)  # what differs between worlds is rounding alone
    if options.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(options.coordinator, options.processes, options.process)
    if options.process == 0:
        write_waves(options.data)
    multihost_utils.sync_global_devices("the data set is there")
    train(options)


if __name__ == "__main__":
    main()
