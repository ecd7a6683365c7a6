"""Programs with symmetric memory of PyTorch on two GPUs, recorded one by one into `tests/recordings/symmetric`:

    rankcheck record --out DIR -- torchrun --nproc-per-node 2 tests/recordings/symmetric.py NAME

Each is right unless its name begins with `bad`.
"""
import os, sys
import torch, torch.distributed as dist
import torch.distributed._symmetric_memory as symm

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl" if "gloo" not in sys.argv[1] else "gloo")
group = dist.group.WORLD
G = group.group_name
ops = torch.ops.symm_mem
N = 1 << 16

def make(n=N, fill=True, dtype=torch.float32):
    t = symm.empty(n, dtype=dtype, device=f"cuda:{rank}")
    if fill:
        t.fill_(rank + 1)
    return t

def done():
    torch.cuda.synchronize()
    dist.barrier()

def one_shot(k=1):
    a = make()
    symm.rendezvous(a, G)
    for _ in range(k):
        ops.one_shot_all_reduce(a, "sum", G)
    done()

def two_shot():
    a = make(); symm.rendezvous(a, G); ops.two_shot_all_reduce_(a, "sum", G); done()

def both():
    a, b = make(), make(4 * N)
    symm.rendezvous(a, G); symm.rendezvous(b, G)
    ops.one_shot_all_reduce(a, "sum", G); ops.two_shot_all_reduce_(b, "sum", G); done()

def large():
    a, b = make(1 << 23), make(1 << 23)
    symm.rendezvous(a, G); symm.rendezvous(b, G)
    ops.two_shot_all_reduce_(a, "sum", G); ops.two_shot_all_reduce_(b, "sum", G); done()

def group_object():
    a = make(); symm.rendezvous(a, group); ops.one_shot_all_reduce(a, "sum", G); done()

def implicit():
    a = make(); ops.one_shot_all_reduce(a, "sum", G); done()

def out():
    a = make(); symm.rendezvous(a, G); o = torch.empty_like(a)
    ops.one_shot_all_reduce_out(a, "sum", G, o); done()

def copy_op():
    a = make(); symm.rendezvous(a, G); x = torch.ones(N, device="cuda")
    ops.one_shot_all_reduce_copy(a, x, "sum", G); done()

def overload():
    a = make(); symm.rendezvous(a, G); ops.one_shot_all_reduce.default(a, "sum", G); done()

def barrier():
    a = make(); h = symm.rendezvous(a, G); h.barrier(); h.barrier(channel=1); done()

def pull():
    a = make(); h = symm.rendezvous(a, G); h.barrier()
    b = h.get_buffer(1 - rank, (N,), torch.float32); c = torch.empty(N, device="cuda"); c.copy_(b)
    h.barrier(); done()

def push():
    a = make(); h = symm.rendezvous(a, G); h.barrier()
    h.get_buffer(1 - rank, (N,), torch.float32).copy_(torch.ones(N, device="cuda"))
    h.barrier(); done()

def signals():
    a = make(); h = symm.rendezvous(a, G)
    if rank == 0: h.put_signal(1)
    else: h.wait_signal(0)
    if rank == 1: h.put_signal(0, channel=3)
    else: h.wait_signal(1, channel=3)
    done()

def ping():
    a = make(); h = symm.rendezvous(a, G)
    for i in range(10):
        h.put_signal(1 - rank, channel=2); h.wait_signal(1 - rank, channel=2)
    done()

def streams():
    a, b = make(), make(1 << 23)
    ha, hb = symm.rendezvous(a, G), symm.rendezvous(b, G)
    s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s): hb.barrier(channel=1)
    ha.barrier(channel=0); torch.cuda.current_stream().wait_stream(s); done()

def graph():
    a = make(); symm.rendezvous(a, G); ops.one_shot_all_reduce(a, "sum", G); torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g): ops.one_shot_all_reduce(a, "sum", G)
    for _ in range(3): g.replay()
    done()

def workspace():
    h = symm.get_symm_mem_workspace(G, 1 << 20); h.barrier(); done()

def low_ag():
    a = make(); symm.rendezvous(a, G); ops._low_contention_all_gather(a, G); done()

def low_rs():
    a = make(); symm.rendezvous(a, G); ops._low_contention_reduce_scatter(a, "sum", G); done()

def fused_ag():
    A = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16); B = torch.randn(128, 64, device="cuda", dtype=torch.bfloat16)
    for _ in range(2): ops.fused_all_gather_matmul(A, [B], 0, G)
    done()

def fused_rs():
    A = torch.randn(128, 128, device="cuda", dtype=torch.bfloat16); B = torch.randn(128, 64, device="cuda", dtype=torch.bfloat16)
    for _ in range(2): ops.fused_matmul_reduce_scatter(A, B, "sum", 0, G)
    done()

def subgroup():
    g = dist.new_group([0, 1]); a = make(); symm.rendezvous(a, g); ops.one_shot_all_reduce(a, "sum", g.group_name); done()

def two_groups():
    g = dist.new_group([0, 1]); a, b = make(), make(1 << 23)
    symm.rendezvous(a, G); symm.rendezvous(b, g)
    ops.one_shot_all_reduce(a, "sum", G); ops.two_shot_all_reduce_(b, "sum", g.group_name); done()

def loop():
    for i in range(4):
        a = make(1 << 22); symm.rendezvous(a, G); ops.one_shot_all_reduce(a, "sum", G); torch.cuda.synchronize(); del a
    done()

def several():
    ts = [make(1 << 22) for _ in range(4)]
    for t in ts: symm.rendezvous(t, G)
    for t in ts: ops.two_shot_all_reduce_(t, "sum", G)
    done()

def different_lines():
    if rank == 0:
        a = make()
    else:
        a = make()
    symm.rendezvous(a, G); ops.one_shot_all_reduce(a, "sum", G); done()

def with_nccl():
    a = make(); symm.rendezvous(a, G); x = torch.ones(8, device="cuda")
    for _ in range(5): dist.all_reduce(x); ops.one_shot_all_reduce(a, "sum", G)
    done()

def gloo_one(): one_shot()
def many(): one_shot(50)

def again():
    a = make()
    for _ in range(3): symm.rendezvous(a, G)
    ops.one_shot_all_reduce(a, "sum", G); done()

def compiled():
    a = make(); symm.rendezvous(a, G)
    def f(x): return ops.one_shot_all_reduce(x, "sum", G) + 1
    f = torch.compile(f)
    for _ in range(3): f(a)
    done()

def pool():
    p = symm.get_mem_pool(torch.device("cuda", rank))
    with torch.cuda.use_mem_pool(p): a = torch.ones(N, device="cuda")
    symm.rendezvous(a, G); ops.one_shot_all_reduce(a, "sum", G); done()

def bad_order():
    bufs = {}
    for n in "ab": bufs[n] = make(1 << 23)
    for n in ("ab" if rank == 0 else "ba"):
        symm.rendezvous(bufs[n], G)
    ops.one_shot_all_reduce(bufs["a"], "sum", G); ops.one_shot_all_reduce(bufs["b"], "sum", G); done()

def bad_order_lines():
    a = make(1 << 23)
    b = make(1 << 23)
    if rank == 1:
        symm.rendezvous(b, G)
    symm.rendezvous(a, G)
    if rank == 0:
        symm.rendezvous(b, G)
    ops.one_shot_all_reduce(a, "sum", G); done()

def bad_missing():
    a = make()
    if rank == 0: symm.rendezvous(a, G)
    done()

def bad_signal():
    a = make(); h = symm.rendezvous(a, G)
    if rank == 0: h.wait_signal(1)
    done()

def bad_op():
    a, b = make(1 << 23), make(1 << 23); symm.rendezvous(a, G); symm.rendezvous(b, G)
    for t in ((a, b) if rank == 0 else (b, a)): ops.one_shot_all_reduce(t, "sum", G)
    done()

globals()[sys.argv[1]]()
dist.destroy_process_group()
