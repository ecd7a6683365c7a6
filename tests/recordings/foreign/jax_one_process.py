"""One process that drives two GPUs through XLA: a sum, a product of sharded matrices, or a data-parallel training.

    jax_one_process.py sum|matmul|train
"""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()[:2]), ("x",))


def put(value, *axes):
    return jax.device_put(value, NamedSharding(mesh, P(*axes)))


def sums():
    total = jax.jit(jax.shard_map(lambda part: jax.lax.psum(part, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    print(total(put(jnp.arange(2048.0), "x")).sum())


def matmul():
    product = jax.jit(lambda a, b: (a @ b).sum())
    for _ in range(5):
        print(product(put(jnp.ones((512, 512)), "x", None), put(jnp.ones((512, 512)), None, "x")))


def train():
    @jax.jit
    def step(weights, batch):
        loss, gradient = jax.value_and_grad(lambda w: ((batch @ w - 1) ** 2).mean())(weights)
        return weights - 0.1 * gradient, loss

    weights, batch = put(jnp.ones((256, 256)) * 0.01), put(jnp.ones((128, 256)), "x")
    for _ in range(20):
        weights, loss = step(weights, batch)
    print(loss)


{"sum": sums, "matmul": matmul, "train": train}[sys.argv[1]]()
