#!/usr/bin/env python3
"""What `fr_trace` of PyTorch and `rankcheck check` say of the same dumps, and what is true: a table in Markdown.

    python3 tests/dumps/against_fr_trace.py OUT [--real FOLDER] [--torch VERSION]

OUT gets torch's package, the dumps and what both printed. --real names a folder with a folder for each job that has a file
`fault_injection.log` naming the ranks of its faults. RANKCHECK names the command.

`fr_trace` is run as its documentation says: `python -m torch.distributed.flight_recorder.fr_trace DIR`, with the prefix of
the files where it asks for one, and, where a dump is missing, once more with --allow-incomplete-ranks. It is pure Python
and imports nothing else of torch, so its files alone are taken out of torch's wheel, unchanged; the one for macOS is the
smallest. Not here: whether rankcheck is right (`tests/tests/dumped.rs`).
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "torch/distributed/flight_recorder/"
# What is true of the kept dumps is what `tests/recordings/mistakes.py` was written to do.
KEPT = {
    "another_length": ("rank 1 calls another length", [0, 1], ["COLL-3"]),
    "groups_in_another_order-piped": ("two groups in opposite orders", [0, 1], []),
    "nobody_receives": ("rank 0 sends first, rank 1 receives too late", [0, 1], []),
    "one_batch_more": ("rank 0 leaves the loop first", [0], []),
    "one_transfer_more_in_a_batch": ("rank 0 has a transfer less", [0], []),
    "skipped_when_empty-piped": ("rank 1 leaves the loop first", [0, 1], ["COLL-2", "COLL-3"]),
    "stops_early": ("rank 1 stops", [1], []),
    "stops_early-piped": ("rank 1 stops", [1], []),
    "clean-nobody_receives": ("nothing is wrong", [], []),
    "clean-stops_early": ("nothing is wrong", [], []),
}


def install(out, version):
    """Takes fr_trace out of torch's wheel. Returns the environment in which it runs."""
    wheels, package = out / "wheels", out / "package"
    if not (package / PACKAGE).is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--platform", "macosx_14_0_arm64", "--python-version", "3.11", "--dest", str(wheels)]
        subprocess.run([*command, f"torch=={version}"], check=True)
        with zipfile.ZipFile(next(wheels.glob("torch-*.whl"))) as wheel:
            files = [name for name in wheel.namelist() if name.startswith(PACKAGE)]
            wheel.extractall(package, files)
        shutil.rmtree(wheels)
        # It prints its tables with this one.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(package), "tabulate"]
        subprocess.run(pip, check=True)
    return os.environ | {"PYTHONPATH": str(package)}


def run(command, environment=None, limit=600):
    began = time.monotonic()
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=limit)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def fr_trace(folder, environment, to):
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)]
    code, text, seconds = run(command, environment)
    if "Please specify --prefix" in text:
        prefix = next(re.sub(r"\d+$", "", path.name) for path in folder.iterdir() if re.search(r"_\d+$", path.name))
        command += ["--prefix", prefix]
        code, text, seconds = run(command, environment)
    if "Missing dump files" in text:
        code, text, seconds = run([*command, "--allow-incomplete-ranks"], environment)
    to.write_text(text)
    crash = re.findall(r"^(\w+(?:Error|Exception)\b.*)", text, re.MULTILINE) if "Traceback" in text else []
    messages = re.findall(r"^(?:Not all ranks joining|Collective sequence number).*", text, re.MULTILINE)
    missing = {int(rank) for ranks in re.findall(r"missing ranks: \{(.*)\}", text) for rank in ranks.split(",")}
    # "Culprit rank 0; …" and the ranks in a mismatch.
    errors = re.findall(r"^error msg: (.*)", text, re.MULTILINE)
    kinds = sorted({kind for error in errors for kind in re.findall(r"Error type: (\w+)", error)})
    culprits = {int(rank) for error in errors for rank in re.findall(r"[Cc]ulprit rank:? (\d+)", error)}
    if crash:
        says = "crashes: " + crash[-1].split(":")[0]
    elif not messages:
        undecided = "We cannot decide" in text
        says = "“cannot decide”" if undecided else "nothing"
    else:
        named = [f"ranks {text_of(missing)} missing"] if missing else []
        named += [" ".join([*kinds, f"(rank {text_of(culprits)})" if culprits else ""]).strip()] if kinds else []
        says = "; ".join(named) or "a mismatch"
    return {
        "says": says,
        "ranks": missing | culprits,
        "kinds": kinds,
        "messages": len(messages),
        "code": code,
        "lines": len(text.splitlines()),
        "seconds": seconds,
        "crash": bool(crash),
    }


def rankcheck(folder, to):
    command = [os.environ.get("RANKCHECK", str(ROOT / "target/release/rankcheck")), "check", str(folder)]
    code, text, seconds = run(command)
    to.write_text(text)
    _, report, _ = run([*command, "--format", "json"])
    report = json.loads(report[: report.rindex("}") + 1])
    [job] = report["jobs"]
    roots = [root["rank"] for root in job["roots"]]
    circle = sorted({step["rank"] for cycle in job["cycles"] for step in cycle})
    parts = [", ".join(job["rules"])] if job["rules"] else []
    parts += [f"root {text_of(roots)}"] if roots else []
    parts += [f"cycle of {text_of(circle)}"] if circle else []
    says = f"{job['verdict'].upper()} " + "; ".join(parts)
    at = {place["rank"] for finding in job["findings"] for place in finding["at"]}
    return {
        "says": says.strip(),
        "roots": set(roots),
        "ranks": set(roots) | set(circle) | at,
        "rules": job["rules"],
        "verdict": job["verdict"],
        "code": code,
        "lines": len(text.splitlines()),
        "seconds": seconds,
    }


def text_of(ranks):
    ranks = sorted(ranks)
    return ", ".join(map(str, ranks)) if len(ranks) < 9 else f"{ranks[0]}, {ranks[1]} … ({len(ranks)} ranks)"


def right(true, rules, named, said, silent):
    """Whether what is said is what is true: nothing of a healthy job; a rule that is broken; or exactly the ranks. Where calls
    have to fit those of another rank, that one may be named too."""
    if not true:
        return silent
    return bool(set(rules) & said) or named == set(true) or bool(rules) and set(true) <= named and len(named) < 3


def jobs(out, real):
    if real:
        for folder in sorted(path for path in real.iterdir() if (path / "fault_injection.log").is_file()):
            log = (folder / "fault_injection.log").read_text()
            ranks = [int(rank) for rank in re.search(r"Fault ranks: \[(.*)\]", log).group(1).split(",")]
            kind = re.search(r"fault_type: (\w+)", log).group(1)
            yield f"{folder.name} (real)", folder, (f"{kind} on {text_of(ranks)}", ranks, [])
    for name, truth in KEPT.items():
        yield f"{name} (devices)", ROOT / "tests/dumps/runs" / name, truth
    made = out / "made"
    for name, said in json.loads((made / "truth.json").read_text()).items():
        yield name, made / name, (said["truth"], said["ranks"], said["rules"])


# What fr_trace calls the breaking of a rule.
KINDS = {
    "COLL-2": {"COLLECTIVE_TYPE_MISMATCH"},
    "COLL-3": {"SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH"},
    "COLL-4": set(),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--real", type=pathlib.Path, help="a folder of real jobs")
    parser.add_argument("--torch", default="2.14.1", help="the version of torch whose fr_trace is run")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    environment = install(out, arguments.torch)
    made = out / "made"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    write = ["cargo", "run", "--quiet", "-p", "rankcheck-tests", "--example", "write_dumps", "--", str(made)]
    subprocess.run(write, check=True, cwd=ROOT)
    print(f"torch {arguments.torch}, Python {sys.version.split()[0]}\n")
    print("| job | what is true | rankcheck | fr_trace | its messages, exit code, seconds |")
    print("| --- | --- | --- | --- | --- |")
    mark = {True: "", False: " **✗**"}
    count, simulated = collections.Counter(), collections.defaultdict(collections.Counter)
    slowest = collections.Counter()
    said = out / "said"
    said.mkdir(exist_ok=True)
    for name, folder, (truth, true, rules) in jobs(out, arguments.real):
        word = name.split()[0]
        ours = rankcheck(folder, said / f"{word}.rankcheck")
        theirs = fr_trace(folder, environment, said / f"{word}.fr_trace")
        silent = ours["verdict"] not in ("fails", "hangs") and not ours["roots"]
        rules_of_theirs = {rule for rule in rules if KINDS[rule] & set(theirs["kinds"])}
        scores = {
            "jobs": 1,
            "rankcheck": right(true, rules, ours["roots"] or ours["ranks"], set(ours["rules"]), silent),
            "fr_trace": not theirs["crash"]
            and right(true, rules, theirs["ranks"], rules_of_theirs, not theirs["messages"]),
            "crashes": theirs["crash"],
            "accused": not true and ours["verdict"] in ("fails", "hangs"),
        }
        count.update(scores)
        slowest = {tool: max(slowest[tool], says["seconds"]) for tool, says in (("rankcheck", ours), ("fr_trace", theirs))}
        if word.startswith("simulated-"):
            simulated[truth].update(scores)
            continue
        seconds = f"{theirs['messages']}, {theirs['code']}, {theirs['seconds']:.1f}"
        row = [name, truth, ours["says"] + mark[scores["rankcheck"]], theirs["says"] + mark[scores["fr_trace"]], seconds]
        print("| " + " | ".join(row) + " |", flush=True)
    print("\n| simulated jobs: what is true | jobs | rankcheck right | fr_trace right | fr_trace crashes |")
    print("| --- | --- | --- | --- | --- |")
    for truth, scores in simulated.items():
        print(f"| {truth} | {scores['jobs']} | {scores['rankcheck']} | {scores['fr_trace']} | {scores['crashes']} |")
    print(
        f"\n{count['jobs']} jobs: rankcheck right in {count['rankcheck']}, fr_trace in {count['fr_trace']} "
        f"({count['crashes']} crashes); {count['accused']} healthy ones FAIL or HANG; "
        f"the slowest takes rankcheck {slowest['rankcheck']:.1f} s and fr_trace {slowest['fr_trace']:.1f} s"
    )


if __name__ == "__main__":
    main()
