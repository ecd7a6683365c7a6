"""Trains a small transformer of the library `transformers` with its own `Trainer`, under torchrun.

    torchrun --nproc-per-node 2 trainer.py [ddp|fsdp|accumulate]
"""

import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        tokens = (torch.arange(32) * (at + 3)) % 128
        return {"input_ids": tokens, "labels": tokens}


def main():
    how = sys.argv[1] if len(sys.argv) > 1 else "ddp"
    options = {"fsdp": "full_shard"} if how == "fsdp" else {}
    if how == "accumulate":
        options["gradient_accumulation_steps"] = 2
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=6, per_device_train_batch_size=4, logging_steps=2, save_strategy="no",
            report_to=[], eval_strategy="steps", eval_steps=3, **options,
        )
        config = GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=128, n_positions=64)
        Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens(), eval_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
