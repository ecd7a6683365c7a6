"""A JAX program in several processes with one GPU each.

    python jax_processes.py [sum|gather|permute|matmul|train]     starts the processes itself
"""

import os
import subprocess
import sys

PROCESSES = 2


def child(rank, port, what):
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    jax.distributed.initialize(f"127.0.0.1:{port}", PROCESSES, rank, local_device_ids=[rank])
    mesh = Mesh(jax.devices(), ("x",))
    shards = NamedSharding(mesh, P("x"))
    n = 1 << 16
    mine = jnp.arange(n, dtype=jnp.float32) + rank
    whole = jax.make_array_from_single_device_arrays((PROCESSES * n,), shards, [mine])
    step = {
        "sum": lambda x: jax.lax.psum(x, "x"),
        "gather": lambda x: jax.lax.all_gather(x, "x").sum(0),
        "permute": lambda x: jax.lax.ppermute(x, "x", [(0, 1), (1, 0)]),
    }
    if what in step:
        run = jax.jit(
            jax.shard_map(step[what], mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
        )
        for _ in range(5):
            whole = run(whole)
        whole.block_until_ready()
    elif what == "matmul":
        a = jax.device_put(jnp.ones((256, 256)), NamedSharding(mesh, P("x", None)))
        b = jax.device_put(jnp.ones((256, 256)), NamedSharding(mesh, P(None, "x")))
        out = jax.jit(lambda a, b: (a @ b).sum())(a, b)
        for _ in range(3):
            out = jax.jit(lambda a, b: (a @ b @ a).mean())(a, b)
        out.block_until_ready()
    else:
        weights = jax.device_put(jnp.ones((64, 8)), NamedSharding(mesh, P()))
        batch = jax.device_put(jnp.ones((32, 64)), NamedSharding(mesh, P("x", None)))
        loss = jax.jit(jax.value_and_grad(lambda w, x: jnp.square(x @ w).mean()))
        for _ in range(5):
            value, gradient = loss(weights, batch)
            weights = weights - 0.01 * gradient
        weights.block_until_ready()
    print("rank", rank, "ended")


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "sum"
    if len(sys.argv) == 4:
        return child(int(sys.argv[2]), sys.argv[3], what)
    port = str(20000 + os.getpid() % 20000)
    command = [sys.executable, __file__, what]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    running = [subprocess.Popen([*command, str(rank), port], env=environment) for rank in range(PROCESSES)]
    return max(abs(one.wait()) for one in running)


if __name__ == "__main__":
    sys.exit(main())
