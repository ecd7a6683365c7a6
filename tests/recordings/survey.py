#!/usr/bin/env python3
"""Records programs that nobody of this project wrote, small programs with one mistake each, and slow ones, on two GPUs,
and judges each recording.

    tests/recordings/survey.py OUT [--family NAME]… [--only WORD] [--jobs N] [--budget SECONDS]

`OUT/results.jsonl` gets a line a run, `OUT/kept.tar.gz` the recordings of runs that were not judged as wanted, and a
table is printed. `RANKCHECK` is the command (target/release/rankcheck), `EXAMPLES` a checkout of pytorch/examples, and `BUILT` a folder
with a folder for each of `nccl-tests`, `nccl-examples` and `cuda-samples`, with their programs as their makefiles make them. What is
not there is left out. The programs of others are where they are installed: PyTorch's tests come with its wheel.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOREIGN = HERE / "foreign"

# Of the tests that two processes can run and that use NCCL: point to point, every collective, groups, DDP and its hooks.
TORCH_TESTS = """
average_parameters periodic_model_averager coalescing_manager
coalescing_manager_async batch_isend_irecv_nccl batch_isend_irecv_ring_exchange_nccl batch_isend_irecv_self_nccl
batch_isend_irecv_no_rank_zero_nccl send_recv_nccl send_recv_nccl_torch_profiler broadcast_cuda
nccl_high_priority_stream reduce_sum_cuda reduce_sum_cuda_twice reduce_scatter_v_cuda reduce_scatter_tensor_cuda
all_reduce_sum_cuda all_reduce_sum_cuda_async all_reduce_sum_cuda_complex all_reduce_complex_unsupported_ops scatter_checks
scatter_cuda scatter_cuda_complex gather_checks gather_cuda all_gather_cuda all_gather_cuda_complex all_gather_v_cuda
all_gather_into_cat_tensor_cuda all_gather_into_stack_tensor_cuda all_gather_coalesced_simple all_gather_coalesced_complex
all_gather_coalesced_full_group all_gather_coalesced_with_empty all_to_all_single_equal_split_cuda
all_to_all_single_equal_split_cuda_complex all_to_all_single_unequal_split_cuda all_to_all_single_unequal_split_cuda_complex
all_to_all_cuda all_to_all_cuda_complex all_to_all_single_equal_split_group_cuda all_to_all_single_unequal_split_group_cuda
all_to_all_group_cuda all_to_all_single_equal_split_full_group_cuda all_to_all_single_unequal_split_full_group_cuda
all_to_all_full_group_cuda barrier_cuda barrier_group_cuda barrier_full_group_cuda DistributedDataParallel
DistributedDataParallel_non_default_stream DistributedDataParallel_with_amp_and_grad_is_view
DistributedDataParallel_SyncBatchNorm DistributedDataParallel_SyncBatchNorm_Channels_Last
DistributedDataParallel_SyncBatchNorm_No_Affine DistributedDataParallel_SyncBatchNorm_2D_Input
DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_Running_Value
DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_gradient DistributedDataParallel_SyncBatchNorm_half
ddp_zero_output_features ddp_comm_hook_logging ddp_hook_with_optimizer_parity_adamw ddp_hook_with_optimizer_parity_sgd
get_data_parallel_params ddp_apply_optim_in_backward ddp_native_mixed_precision_ignored_params
ddp_native_mixed_precision_no_grad_as_bucket_view_no_set_grad_none
ddp_native_mixed_precision_grad_as_bucket_view_set_grad_to_none ddp_hook_parity_allreduce
ddp_hook_parity_allreduce_process_group ddp_hook_parity_powerSGD ddp_hook_parity_post_localSGD accumulate_gradients_no_sync
accumulate_gradients_no_sync_grad_is_view accumulate_gradients_no_sync_allreduce_hook
accumulate_gradients_no_sync_allreduce_with_then_hook get_future post_localSGD_optimizer_parity
post_localSGD_optimizer_step_reload ddp_logging_data_gpu ddp_bucket_cap_mb_list nccl_backend_bool_allreduce
nccl_backend_bool_allgather nccl_backend_bool_reduce nccl_backend_bool_broadcast all_gather_object_default_pg
all_gather_object_subgroup ddp_sync_module_states ddp_grad_div_uneven_inputs ddp_profiling_torch_profiler
ddp_join_model_equivalence ddp_uneven_inputs ddp_uneven_input_join_disable ddp_uneven_input_exception broadcast_object_list
ddp_ignore_params_arg ddp_shared_grad_acc_unused_params ddp_device ddp_namedtuple grads_same_across_ranks_with_no_sync
ddp_control_flow_same_across_ranks invalid_static_graph ddp_control_flow_different_across_ranks scatter_object_list
output_unused_in_loss_tuple_module output_unused_in_loss_dict_module undefined_grad_parity_unused_parameters
different_graph_across_ranks ddp_build_debug_param_to_name_mapping ddp_multiple_nested_unused_params_error ddp_inference
ddp_sync_bn_training_vs_eval ddp_python_error_logged ddp_static_graph_nested_types ddp_returns_tensor_with_no_grad
detect_ddp_is_actually_static ddp_new_tensor_in_fwd ddp_buffer_hook_allreduce_return_future ddp_buffer_hook_allreduce
ddp_broadcast_buffer_via_hook ddp_remove_autograd_hooks ddp_broadcast_buffer static_graph_multi_forward sync_bn_logged
stateless_api_with_ddp ddp_forward_backward_hook skip_all_reduce_unused_parameters
""".split()

# Two devices of one process, by one thread and by two; then graphs, registered buffers, windows, and the like.
NCCL_TESTS = ["-g 2", "-t 2", "-g 2 -G 2", "-g 2 -R 1", "-g 2 -R 2", "-g 2 -p 1", "-g 2 -z 1", "-g 2 -N 2", "-t 2 -R 2", "-t 2 -G 2"]


def torchrun(port, *program):
    return ["torchrun", "--nproc-per-node", "2", "--master-port", str(port), *map(str, program)]


def listed(script):
    """The programs of one of our scripts: the names of its decorated functions."""
    return re.findall(r"^@program\ndef (\w+)", (HERE / script).read_text(), re.MULTILINE)


def programs(families):
    """Yields (family, name, command of a port, folder, stopped after so many seconds)."""
    python, examples = sys.executable, os.environ.get("EXAMPLES")
    if "torch" in families:
        for test in TORCH_TESTS:
            yield "torch", test, lambda _, t=test: [python, FOREIGN / "torch_test.py", f"test_{t}"], None, None
    if "examples" in families and examples:
        distributed = pathlib.Path(examples) / "distributed"
        for folder, words in {
            "ddp": ["example.py"],
            "ddp-tutorial-series": ["multigpu_torchrun.py", "3", "2"],
            "tensor_parallelism": ["tensor_parallel_example.py"],
            "tensor_parallelism:sequence": ["sequence_parallel_example.py"],
            "FSDP2": ["example.py"],
            "FSDP2:mixed": ["example.py", "--mixed-precision"],
            "FSDP2:prefetch": ["example.py", "--explicit-prefetching"],
        }.items():
            at = distributed / folder.split(":")[0]
            yield "examples", folder, lambda port, w=words: torchrun(port, *w), at, None
    if "accelerate" in families:
        for module in ["test_script", "test_sync", "test_ops", "test_distributed_data_loop", "test_merge_weights"]:
            words = ["-m", f"accelerate.test_utils.scripts.{module}"]
            yield "accelerate", module, lambda port, w=words: torchrun(port, *w), None, None
    if "transformers" in families:
        for how in ["ddp", "fsdp", "accumulate"]:
            yield "transformers", how, lambda port, h=how: torchrun(port, FOREIGN / "trainer.py", h), None, None
    if "lightning" in families:
        for how in ["ddp", "fsdp", "ddp_find_unused_parameters_true"]:
            yield "lightning", how, lambda _, h=how: [python, FOREIGN / "lightning_demo.py", h], None, None
    if "jax" in families:
        for what in ["sum", "gather", "permute", "matmul", "train"]:
            yield "jax", what, lambda _, w=what: [python, FOREIGN / "jax_processes.py", w], None, None
    if "jax-one" in families:
        for what in ["sum", "matmul", "train"]:
            yield "jax-one", what, lambda _, w=what: [python, FOREIGN / "jax_one_process.py", w], None, None
    if "cupy-one" in families:
        for what in ["all", "ranks", "threads"]:
            yield "cupy-one", what, lambda _, w=what: [python, FOREIGN / "cupy_one_process.py", w], None, None
        for what in ["reshard", "sum", "add", "replicate"]:
            yield "cupy-one", what, lambda _, w=what: [python, FOREIGN / "cupy_arrays.py", w], None, None
    if "cupy" in families:
        for what in ["reduce", "transfer", "scatter"]:
            yield "cupy", what, lambda port, w=what: [python, FOREIGN / "cupy_processes.py", port, w], None, None
    if "torch-ipc" in families:
        for what in ["queue", "far", "model", "event"]:
            yield "torch-ipc", what, lambda _, w=what: [python, FOREIGN / "torch_shared.py", w], None, None
    built = pathlib.Path(os.environ.get("BUILT", "nowhere"))
    if "nccl-tests" in families:
        sizes = ["-b", "8", "-e", "4M", "-f", "8", "-n", "5", "-w", "2"]
        for program in sorted((built / "nccl-tests").glob("*_perf")):
            collective = program.stem.removesuffix("_perf")
            for how in NCCL_TESTS if collective == "all_reduce" else NCCL_TESTS[:2]:
                yield "nccl-tests", f"{collective} {how}", lambda _, p=program, h=how: [p, *sizes, *h.split()], None, None
    for family in ["nccl-examples", "cuda-samples"]:
        for program in sorted((built / family).glob("*")) if family in families else []:
            yield family, program.name, lambda _, p=program: [p], None, None
    mistakes, pauses = HERE / "mistakes.py", HERE / "pauses.py"
    for name in listed("mistakes.py"):
        if "clean" in families:
            yield "clean", name, lambda port, n=name: torchrun(port, mistakes, n), None, None
        if "broken" in families:
            yield "broken", name, lambda port, n=name: torchrun(port, mistakes, n, "--broken"), None, 45
    if "slow" in families:
        for name in listed("pauses.py"):
            yield "slow", name, lambda port, n=name: torchrun(port, pauses, n), None, 45


FAMILIES = [
    "torch", "examples", "accelerate", "transformers", "lightning", "jax", "jax-one", "cupy", "cupy-one", "torch-ipc", "nccl-tests",
    "nccl-examples", "cuda-samples", "clean", "broken", "slow",
]


def marked(name):
    """The lines of a program of mistakes.py at which its mistake is looked for."""
    lines = (HERE / "mistakes.py").read_text().splitlines()
    begins = lines.index(next(line for line in lines if line.startswith(f"def {name}(")))
    ends = next((at for at in range(begins + 1, len(lines)) if lines[at].startswith(("def ", "@"))), len(lines))
    return [at + 1 for at in range(begins, ends) if lines[at].endswith("# mistake")]


def run(number, rankcheck, out, family, name, command, folder, stop):
    at = out / "runs" / f"{family}-{name}".replace(":", "-").replace("/", "-")
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir(parents=True)
    words = [rankcheck, "record", "--out", at / "recording", "--", *command(21000 + 7 * number)]
    environment = {
        "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_ENABLE_MONITORING": "0", "TOKENIZERS_PARALLELISM": "false", **os.environ,
    }
    began = time.monotonic()
    with open(at / "log", "wb") as log:
        running = subprocess.Popen(
            [str(word) for word in words], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = running.wait(stop or 150)
        except subprocess.TimeoutExpired:
            code = "stopped"
            # The processes of the program, and not the command that waits for them: it sees them end.
            for child in children(running.pid):
                kill(child, signal.SIGKILL)
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
    seconds = time.monotonic() - began
    judged = subprocess.run(
        [rankcheck, "check", at / "recording", "--format", "json"], capture_output=True, text=True, check=False
    )
    text = subprocess.run([rankcheck, "check", at / "recording"], capture_output=True, text=True, check=False)
    (at / "report").write_text(text.stdout + text.stderr)
    (at / "report.json").write_text(judged.stdout)
    lines = text.stdout.splitlines()
    result = {
        "family": family, "name": name, "code": code, "seconds": round(seconds, 1), "exit": text.returncode,
        "verdict": lines[0].split()[0] if lines and text.returncode != 2 else "UNREADABLE",
        "head": (lines or text.stderr.splitlines() or [""])[:2],
        "bytes": sum(one.stat().st_size for one in (at / "recording").rglob("*") if one.is_file()),
    }
    if family == "broken":
        wanted = marked(name)
        result["line"] = any(f"mistakes.py:{line}" in text.stdout for line in wanted)
        result["root"] = [line.strip() for line in lines if line.startswith(("  root ", "  cycle "))]
    return result, at


def children(process):
    """All processes that come from one, the youngest first."""
    parents = collections.defaultdict(list)
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(stat.rsplit(")", 1)[1].split()[1])].append(int(entry.name))
    found, wanted = [], [process]
    while wanted:
        below = parents[wanted.pop()]
        found += below
        wanted += below
    return found[::-1]


def kill(process, how):
    try:
        os.kill(process, how)
    except ProcessLookupError:
        pass


def as_wanted(result):
    """Whether a run was judged as it should be."""
    verdict, family = result["verdict"], result["family"]
    if family == "broken":
        return verdict in ("FAILS", "HANGS") and result["line"]
    if family == "slow":
        return verdict != "HANGS" and verdict != "FAILS"
    # Transfers and all-to-alls in place do not work, nccl-tests says so (`reportErrors`), and runs them all the same.
    if family == "nccl-tests" and result["name"].startswith(("alltoall", "sendrecv")):
        return result["code"] == 0 and verdict == "FAILS"
    # What fails by itself is counted, and not expected to be anything.
    return result["code"] == 0 and verdict == "HOLDS"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--only", default="", help="programs whose names have this word")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--budget", type=float, default=480, help="seconds after which nothing is begun")
    arguments = parser.parse_args()
    out, began = arguments.out.resolve(), time.monotonic()
    rankcheck = os.environ.get("RANKCHECK", ROOT / "target/release/rankcheck")
    chosen = [one for one in programs(arguments.family or FAMILIES) if arguments.only in one[1]]
    counted, kept, skipped = collections.defaultdict(collections.Counter), [], 0
    out.mkdir(parents=True, exist_ok=True)

    def one(numbered):
        number, (family, name, command, folder, stop) = numbered
        if time.monotonic() - began > arguments.budget:
            return None
        return run(number, rankcheck, out, family, name, command, folder, stop)

    with open(out / "results.jsonl", "w") as results, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done in pool.map(one, enumerate(chosen)):
            if done is None:
                skipped += 1
                continue
            result, at = done
            results.write(json.dumps(result) + "\n")
            results.flush()
            counts = counted[result["family"]]
            counts["programs"] += 1
            counts["in order"] += result["code"] == 0
            counts[result["verdict"]] += 1
            counts["as wanted"] += as_wanted(result)
            if result["family"] in ("broken", "slow") or result["code"] == 0:
                counts["judged"] += 1
            elif result["verdict"] == "UNREADABLE":
                continue
            if not as_wanted(result):
                kept.append(at)
                print(f"{result['family']} {result['name']} code={result['code']}", *result["head"], sep="\n  ")
    with tarfile.open(out / "kept.tar.gz", "w:gz") as archive:
        for at in kept:
            archive.add(at, arcname=at.name)
    columns = ["programs", "in order", "HOLDS", "FAILS", "HANGS", "UNKNOWN", "UNREADABLE", "judged", "as wanted"]
    print("\nfamily".ljust(15), *(column.rjust(10) for column in columns))
    for family, counts in counted.items():
        print(family.ljust(14), *(str(counts[column]).rjust(10) for column in columns))
    print(f"{skipped} not begun: the budget was used up" if skipped else "all were run")


if __name__ == "__main__":
    main()
