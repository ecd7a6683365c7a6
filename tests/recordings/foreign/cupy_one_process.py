"""One process that drives two GPUs through CuPy: communicators made at once, in a group, or by two threads.

    cupy_one_process.py all|ranks|threads
"""

import sys
import threading

import cupy
from cupy.cuda import nccl

COUNT = 1 << 20


def buffers():
    made = []
    for device in range(2):
        with cupy.cuda.Device(device):
            made.append((cupy.ones(COUNT, dtype="f4"), cupy.cuda.Stream(non_blocking=True)))
            cupy.cuda.Device(device).synchronize()
    return made


def reduce(comm, buffer, stream):
    comm.allReduce(buffer.data.ptr, buffer.data.ptr, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)


def by_one_thread(comms):
    made = buffers()
    for _ in range(5):
        nccl.groupStart()
        for device, (buffer, stream) in enumerate(made):
            with cupy.cuda.Device(device):
                reduce(comms[device], buffer, stream)
        nccl.groupEnd()
    for device, (buffer, stream) in enumerate(made):
        with cupy.cuda.Device(device):
            stream.synchronize()
            assert float(buffer[0]) == 2.0**5


def all_at_once():
    by_one_thread(nccl.NcclCommunicator.initAll(2))


def in_a_group():
    unique, comms = nccl.get_unique_id(), []
    nccl.groupStart()
    for device in range(2):
        with cupy.cuda.Device(device):
            comms.append(nccl.NcclCommunicator(2, unique, device))
    nccl.groupEnd()
    by_one_thread(comms)


def by_two_threads():
    unique = nccl.get_unique_id()

    def rank(device):
        with cupy.cuda.Device(device):
            comm, stream = nccl.NcclCommunicator(2, unique, device), cupy.cuda.Stream(non_blocking=True)
            buffer = cupy.ones(COUNT, dtype="f4")
            cupy.cuda.Device(device).synchronize()
            for _ in range(5):
                reduce(comm, buffer, stream)
            stream.synchronize()
            assert float(buffer[0]) == 2.0**5

    threads = [threading.Thread(target=rank, args=[device]) for device in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


{"all": all_at_once, "ranks": in_a_group, "threads": by_two_threads}[sys.argv[1]]()
