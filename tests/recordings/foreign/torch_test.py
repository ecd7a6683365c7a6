"""Runs one of PyTorch's own `DistributedTest`s, from the installed wheel, with two processes and NCCL.

    python torch_test.py NAME
"""

import os
import sys
import tempfile
import unittest

# The tests read these when they are imported.
os.environ.setdefault("BACKEND", "nccl")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())

import torch  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402


class Spawned(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=2).run(Spawned(sys.argv[1]))
    if result.skipped:
        print("skipped:", result.skipped[0][1])
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
