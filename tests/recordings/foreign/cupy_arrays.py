"""Distributed arrays of CuPy on two devices of one process, which order each other by events and through the host.

    cupy_arrays.py reshard|sum|add|replicate
"""

import sys

import cupy
from cupyx.distributed import array as da

what = sys.argv[1]
rows = {0: [(slice(0, 8), slice(0, 16))], 1: [(slice(8, 16), slice(0, 16))]}
columns = {0: [(slice(0, 16), slice(0, 8))], 1: [(slice(0, 16), slice(8, 16))]}
whole = {0: [(slice(0, 16), slice(0, 16))], 1: [(slice(0, 16), slice(0, 16))]}
a = cupy.arange(256, dtype="f4").reshape(16, 16)
if what == "reshard":
    x = da.distributed_array(a, rows).reshard(columns)
    y = x.reshard(rows)
    assert (y.get() == cupy.asnumpy(a)).all()
elif what == "sum":
    x = da.distributed_array(a, rows)
    assert (x.sum(axis=0).get() == cupy.asnumpy(a.sum(axis=0))).all()
elif what == "add":
    x = da.distributed_array(a, rows)
    for _ in range(10):
        x = x + x
        x = x.reshard(columns).reshard(rows)
    x.get()
elif what == "replicate":
    x = da.distributed_array(a, whole)
    x.reshard(rows).get()
