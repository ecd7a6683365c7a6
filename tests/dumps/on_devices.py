#!/usr/bin/env python3
"""Flight Recorder dumps, NCCL's log and a recording of the same jobs: the programs of `mistakes.py`, broken and clean.

    python3 tests/dumps/on_devices.py OUT [--jobs N] [--only WORD] [--budget SECONDS]

OUT/NAME/ has `dumps/` (one file a rank, by torch's watchdog, or by the program where it ends in order), `log/` (NCCL's,
one file a process), `recording/` and `output`. RANKCHECK names the command. Broken programs are run with communicators
made at once and, those of transfers, when they are used. A few hang without a timeout, and are asked for their dumps by
torch's pipe. Not here: what is said about them (`rankcheck check`).
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/recordings/mistakes.py"
TRANSFERS = ["nobody_receives", "both_send_first", "receives_less", "one_transfer_more_in_a_batch"]
PIPED = ["skipped_when_empty", "groups_in_another_order", "stops_early"]


def cases():
    names = subprocess.run([sys.executable, PROGRAM, "--list"], capture_output=True, text=True, check=True)
    names = names.stdout.split()
    for name in names:
        yield name, name, ["--broken"]
    for name in PIPED:
        yield f"{name}-piped", name, ["--broken", "--timeout", "600"]
    for name in TRANSFERS:
        yield f"{name}-lazy", name, ["--broken", "--lazy"]
    for name in names:
        yield f"clean-{name}", name, []


def run(number, rankcheck, out, case, name, options):
    at = out / case
    shutil.rmtree(at, ignore_errors=True)
    for folder in ["dumps", "log"]:
        (at / folder).mkdir(parents=True)
    environment = os.environ | {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "5000",
        "TORCH_NCCL_ENABLE_TIMING": str(number % 2),
        "TORCH_FR_DUMP_TEMP_FILE": str(at / "dumps/rank_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(at / "dumps/rank_"),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(at / "pipe_"),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,COLL",
        "NCCL_DEBUG_FILE": str(at / "log/%h.%p"),
        "NCCL_NVLS_ENABLE": "0",
    }
    program = ["torchrun", "--nproc-per-node", "2", "--master-port", str(29600 + number), str(PROGRAM), name]
    program += ["--timeout", "12", "--dump", str(at / "dumps/rank_"), *options]
    command = [rankcheck, "record", "--out", str(at / "recording"), "--", *program]
    with open(at / "output", "w") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return case, process.wait(35 if case.endswith("-piped") else 75)
        except subprocess.TimeoutExpired:
            if case.endswith("-piped"):
                ask_for_dumps(at)
            os.killpg(process.pid, 9)
            return case, "killed"


def ask_for_dumps(at):
    for pipe in at.glob("pipe_*.pipe"):
        # Whoever has ended no longer reads its pipe.
        with contextlib.suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"1")
            os.close(descriptor)
    time.sleep(8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--only", default="", help="cases whose names have this word")
    parser.add_argument("--budget", type=float, default=480, help="seconds after which nothing is begun")
    arguments = parser.parse_args()
    rankcheck = os.environ.get("RANKCHECK", str(ROOT / "target/release/rankcheck"))
    out, began = arguments.out.resolve(), time.monotonic()

    def one(numbered):
        number, (case, name, options) = numbered
        if time.monotonic() - began > arguments.budget:
            return case, "not begun"
        return run(number, rankcheck, out, case, name, options)

    chosen = [case for case in cases() if arguments.only in case[0]]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for case, code in pool.map(one, enumerate(chosen)):
            dumps = sorted(path.name for path in (out / case / "dumps").glob("*"))
            print(case, code, *dumps, flush=True)


if __name__ == "__main__":
    main()
