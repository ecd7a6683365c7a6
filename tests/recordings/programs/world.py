"""What every program here begins and ends with. Not here: what they are about."""

import argparse
import hashlib
import os

import torch
import torch.distributed as dist

ELEMENTS = 1024


def begin(eager: bool = True):
    """Joins the job of torchrun. Returns the rank, the number of ranks, and whether this rank is to depart from
    what the others do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed-divergence", action="store_true", help="the last rank departs from the others")
    parser.add_argument("--lazy", action="store_true", help="communicators are made at first use")
    arguments = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device if eager and not arguments.lazy else None)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return rank, ranks, arguments.seed_divergence and rank == ranks - 1


def tensor(value: float, elements: int = ELEMENTS):
    """Numbers that tell where they come from."""
    return torch.arange(elements, dtype=torch.float32, device="cuda") + value


def end(*results) -> None:
    """Prints what came out, in few words, and leaves the job."""
    torch.cuda.synchronize()
    digest = hashlib.sha256()
    for result in results:
        digest.update(result.detach().cpu().contiguous().numpy().tobytes())
    print(f"digest {dist.get_rank()} {digest.hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()
