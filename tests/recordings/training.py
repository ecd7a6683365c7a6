#!/usr/bin/env python3
"""Trains a small transformer as people train large ones, on the GPUs that torchrun gives, to be recorded.

    torchrun --nproc-per-node 2 tests/recordings/training.py ddp|fsdp2|pipeline [--compile] [--steps N]

It has what loops of real training have besides the step: batches that a thread pins, a clipped gradient, a schedule of the
learning rate, a loss that is printed every ten steps, an evaluation every fifty and a checkpoint every hundred.
"""

import argparse
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WORDS, WIDTH, LENGTH, BATCH, BLOCKS = 512, 128, 64, 8, 4


class Text(Dataset):
    def __len__(self):
        return 1 << 16

    def __getitem__(self, at):
        line = (torch.arange(LENGTH + 1) * (at % 7 + 1) + at) % WORDS
        return line[:-1], line[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = self.heads(self.before(x)).view(*x.shape[:2], 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(F.gelu(self.wide(self.after(x))))


class Model(nn.Module):
    """All of it, or the blocks of one stage with what comes before the first and behind the last."""

    def __init__(self, blocks, first=True, last=True):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH) if first else None
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.out = nn.Linear(WIDTH, WORDS) if last else None

    def forward(self, x):
        x = self.words(x) if self.words is not None else x
        for block in self.blocks:
            x = block(x)
        return self.out(x) if self.out is not None else x


def cost(out, wanted):
    return F.cross_entropy(out.flatten(0, 1), wanted.flatten())


def made(how, compiled, rank, ranks, device):
    """What is optimized, and a function that makes one step's gradients and gives the loss."""
    torch.manual_seed(7)
    if how == "pipeline":
        model = Model(BLOCKS // ranks, rank == 0, rank == ranks - 1).to(device)
        run = torch.compile(model) if compiled else model
        schedule = Schedule1F1B(PipelineStage(run, rank, ranks, device), n_microbatches=4, loss_fn=cost)

        def step(words, wanted):
            losses = []
            if rank == 0:
                schedule.step(words)
            elif rank == ranks - 1:
                schedule.step(target=wanted, losses=losses)
            else:
                schedule.step()
            return torch.stack(losses).mean() if losses else torch.zeros((), device=device)

        return model, step, None

    model = Model(BLOCKS).to(device)
    if how == "fsdp2":
        for block in model.blocks:
            if compiled:
                block.compile()
            fully_shard(block)
        fully_shard(model)
        run = model
    else:
        run = DistributedDataParallel(model, device_ids=[device.index], bucket_cap_mb=1)
        run = torch.compile(run) if compiled else run

    def step(words, wanted):
        loss = cost(run(words), wanted)
        loss.backward()
        return loss.detach()

    return model, step, run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["ddp", "fsdp2", "pipeline"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=160)
    options = parser.parse_args()

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    model, step, run = made(options.how, options.compile, rank, ranks, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    batches = iter(DataLoader(Text(), BATCH, pin_memory=True, num_workers=0))
    kept = pathlib.Path(tempfile.mkdtemp())

    for nth in range(1, options.steps + 1):
        words, wanted = (part.to(device, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        loss = step(words, wanted)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if nth % 10 == 0:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {nth}: {loss.item():.4f}", flush=True)
        if nth % 50 == 0 and run is not None:
            with torch.no_grad():
                seen = torch.stack([cost(run(words), wanted) for _ in range(2)]).mean()
            dist.all_reduce(seen)
        if nth % 100 == 0:
            if options.how != "fsdp2":
                torch.save(model.state_dict(), kept / f"{nth}-{rank}.pt")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
