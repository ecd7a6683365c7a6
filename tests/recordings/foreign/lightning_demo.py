"""Trains Lightning's own demo model on two devices.

    python lightning_demo.py [ddp|fsdp|ddp_find_unused_parameters_true]
"""

import sys
import tempfile

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

if __name__ == "__main__":
    strategy = sys.argv[1] if len(sys.argv) > 1 else "ddp"
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            accelerator="gpu", devices=2, strategy=strategy, max_epochs=1, limit_train_batches=5, limit_val_batches=2,
            default_root_dir=folder, enable_progress_bar=False, logger=False,
        )
        trainer.fit(BoringModel())
