"""Processes that share memory of a GPU through PyTorch, without NCCL: by CUDA's IPC.

    torch_shared.py queue|far|model|event
"""

import sys

import torch
import torch.multiprocessing

TENSORS = 6
COUNT = 1 << 16


def give(queue, done):
    torch.cuda.set_device(0)
    for nth in range(TENSORS):
        queue.put(torch.full((COUNT,), float(nth), device="cuda:0") * 2)
    # Who gives memory has to live until it was used.
    done.wait()


def take(queue, done, device):
    torch.cuda.set_device(device)
    total = 0.0
    for _ in range(TENSORS):
        total += float(queue.get().to(f"cuda:{device}").sum())
    done.set()
    assert total == COUNT * TENSORS * (TENSORS - 1)


def train(model, lock):
    torch.cuda.set_device(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        with lock:
            optimizer.zero_grad(set_to_none=True)
            model(torch.randn(16, 32, device="cuda:0")).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()


def wait(pipe):
    torch.cuda.set_device(1)
    handle, shared = pipe.recv()
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", 0), handle)
    with torch.cuda.device(0):
        torch.cuda.current_stream().wait_event(event)
        pipe.send(float((shared + 1).sum()))


def record(context):
    here, there = context.Pipe()
    other = context.Process(target=wait, args=(there,))
    other.start()
    torch.cuda.set_device(0)
    shared = torch.zeros(COUNT, device="cuda:0")
    event = torch.cuda.Event(enable_timing=False, interprocess=True)
    for _ in range(50):
        shared += 1
    event.record()
    here.send((event.ipc_handle(), shared))
    assert here.recv() == 51.0 * COUNT
    return [other]


def main():
    context = torch.multiprocessing.get_context("spawn")
    what = sys.argv[1]
    if what in ("queue", "far"):
        queue, done = context.Queue(), context.Event()
        others = [
            context.Process(target=give, args=(queue, done)),
            context.Process(target=take, args=(queue, done, 0 if what == "queue" else 1)),
        ]
        for other in others:
            other.start()
    elif what == "model":
        model, lock = torch.nn.Linear(32, 8).to("cuda:0"), context.Lock()
        model.share_memory()
        torch.cuda.synchronize()
        others = [context.Process(target=train, args=(model, lock)) for _ in range(2)]
        for other in others:
            other.start()
    else:
        others = record(context)
    for other in others:
        other.join()
    sys.exit(max(other.exitcode for other in others))


if __name__ == "__main__":
    main()
