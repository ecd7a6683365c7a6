"""Processes that a program forks, with a GPU each, through CuPy's own collectives.

    cupy_processes.py PORT reduce|transfer|scatter
"""

import multiprocessing
import sys

PROCESSES = 2
COUNT = 1024


def child(rank, port, what):
    import cupy
    from cupyx.distributed import init_process_group

    with cupy.cuda.Device(rank):
        comm = init_process_group(PROCESSES, rank, host="127.0.0.1", port=port)
        mine = cupy.arange(COUNT, dtype="f4") + rank
        out = cupy.zeros_like(mine)
        of_each = cupy.zeros((PROCESSES, COUNT), dtype="f4")
        if what == "reduce":
            comm.all_reduce(mine, out)
            comm.reduce(mine, out, root=0)
            comm.broadcast(mine, root=1)
        elif what == "transfer":
            if rank == 0:
                comm.send(mine, 1)
                comm.recv(out, 1)
            else:
                comm.recv(out, 0)
                comm.send(mine, 0)
            comm.send_recv(mine, out, 1 - rank)
        else:
            comm.scatter(of_each + rank, out, root=0)
            comm.gather(mine, of_each, root=1)
            comm.all_gather(mine, of_each, COUNT)
            comm.reduce_scatter(of_each, out, COUNT)
        cupy.cuda.Device(rank).synchronize()
        comm.barrier()
        comm.stop()


def main():
    port, what = int(sys.argv[1]), sys.argv[2]
    # So that they end without handlers, as Python's forks do unless somebody asks for another way.
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=child, args=(rank, port, what)) for rank in range(PROCESSES)]
    for one in children:
        one.start()
    for one in children:
        one.join()
    sys.exit(max(one.exitcode for one in children))


if __name__ == "__main__":
    main()
