#!/usr/bin/env python3
"""Runs the fuzzing programs one after the other and prints a table of what came of it.

    tests/fuzz/build.sh deep
    tests/fuzz/run.py --runs 1000000              # all; or some: run.py --runs 1000000 plan trace

Exits with 1 if there is a finding; the input is then in build/fuzz/findings/TARGET, the program's words in TARGET.log.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The longest input of each: seeds fit, and a run is quick.
TARGETS = {"safetensors": 1024, "npy": 512, "spec": 512, "machine": 1024, "checkpoint": 2048, "network": 4096,
           "profile": 4096, "trace": 4096, "chakra": 4096, "plan": 12000, "onnx": 1024, "import": 1024}
HANGS_AFTER_S = 15


def run_target(name: str, build: pathlib.Path, runs: int) -> dict:
    found, findings = build / "found" / name, build / "findings" / name
    shutil.rmtree(findings, ignore_errors=True)
    for folder in (found, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [str(build / f"fuzz_{name}"), f"-runs={runs}", f"-max_len={TARGETS[name]}", f"-timeout={HANGS_AFTER_S}",
               "-entropic=0", "-reduce_inputs=0", "-rss_limit_mb=4096", f"-artifact_prefix={findings}/", str(found)]
    command += [str(folder) for part in ("corpus", "found", "regressions") if (folder := HERE / part / name).is_dir()]
    if (words := HERE / f"{name}.dict").exists():
        command.append(f"-dict={words}")
    begin = time.monotonic()
    with open(build / f"{name}.log", "w+", errors="replace") as log:
        status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        log.seek(0)
        text = log.read()
    seconds = time.monotonic() - begin
    done = [int(n) for n in re.findall(r"^(?:Done |#)(\d+)", text, re.MULTILINE)]
    largest = re.search(r"largest allocation: (\d+) bytes; ([\d.]+) times", text)
    return {"name": name, "inputs": max(done, default=0), "seconds": seconds, "status": status,
            "largest": int(largest[1]) if largest else 0, "ratio": float(largest[2]) if largest else 0.0,
            "findings": len(list(findings.iterdir())) or int(status != 0)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs of each")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build" / "fuzz")
    arguments = parser.parse_args()
    for name in arguments.targets:
        if name not in TARGETS:
            parser.error(f"{name}: no such target; there are {', '.join(TARGETS)}")
    print("| target | inputs | inputs/s | largest allocation | times its input | findings |\n|---|---|---|---|---|---|")
    is_clean = True
    for name in arguments.targets or TARGETS:
        r = run_target(name, arguments.build, arguments.runs)
        print(f"| {name} | {r['inputs']} | {r['inputs'] / r['seconds']:.0f} | {r['largest']} B | {r['ratio']:.1f} | "
              f"{r['findings']} |", flush=True)
        is_clean = is_clean and r["findings"] == 0
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
