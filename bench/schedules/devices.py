#!/usr/bin/env python3
"""One lane on every device against two, side by side: pipelines and replicas on processes or on virtual GPUs.

    bench/schedules/devices.py --processes 2                                        # on CPU cores
    bench/schedules/devices.py --processes 2 --threads 1 --baseline OLD/overtake    # beside an older program
    bench/schedules/devices.py --virtual-gpus 4 --overtake build/cuda/overtake

Trains each case with --schedule in-order, auto and ooo in turn, in rounds, so that the machine's moods hit all alike.
Prints the median step of each, how far its prediction was off, and what in-order (or the older program) takes of it. The
weights must be the same in all; if they are not, or a row with auto is slower than the first one by more than --slack,
the exit status is 1.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU_CASES = [
    ("gpt2", "sequence=256,dropout=0", 32, "--pp 4 --micro-batches 8 --pipeline 1f1b"),
    ("gpt2", "sequence=256,dropout=0", 32, "--pp 4 --micro-batches 8 --pipeline search"),
    ("bert-24", "sequence=128,dropout=0", 64, "--pp 4 --micro-batches 8 --pipeline 1f1b"),
    ("bert-24", "sequence=128,dropout=0", 64, "--pp 4 --micro-batches 8 --pipeline search"),
]
CPU_CASES = [
    ("bert-12", "sequence=64,layers=4,width=256,heads=4,dropout=0", 16, "--pp 2 --micro-batches 4 --pipeline 1f1b"),
    ("resnet-18", "image=64,classes=10", 16, "--pp 2 --micro-batches 4 --pipeline zb-h1"),
    ("cnn", "", 64, "--dp 2 --reduce by-layer"),
]


def train(program, case, schedule, options):
    model, settings, batch, layout = case
    command = [program]
    if options.processes:
        command += ["launch", "-n", str(options.processes), "--"]
    command += ["train", model, "--batch", str(batch), *layout.split(), "--data", "synthetic:512", "--lr", "0.0001",
                "--steps", str(options.steps), "--parts", "2", "--predict", "--json"]
    if settings:
        command += ["--set", settings]
    if options.threads:
        command += ["--threads", str(options.threads)]
    if options.virtual_gpus:
        command += ["--device", "cuda", "--virtual-gpus", str(options.virtual_gpus), "--virtual-link", "50GB/s,5us"]
    if schedule:
        command += ["--schedule", schedule]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overtake", default=str(ROOT / "build/release/overtake"), help="the program to measure")
    parser.add_argument("--baseline", help="an older program, which runs in turn with it")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--processes", type=int, help="on CPU cores")
    where.add_argument("--virtual-gpus", type=int, help="of one GPU")
    parser.add_argument("--threads", type=int, help="of each process; default: its cores")
    parser.add_argument("--schedules", default="in-order,auto,ooo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--slack", type=float, default=0.03, help="part of a step that noise may take")
    parser.add_argument("--only", default="", help="cases whose text contains this")
    options = parser.parse_args()
    runs = [(name, options.overtake, name) for name in options.schedules.split(",")]
    if options.baseline:
        runs.insert(0, ("baseline", options.baseline, ""))
    bad = False
    print(f"{'case':<58} {'schedule':<9} {'ms/step':>9} {'predicted':>10} {'ratio':>7}  weights")
    for case in GPU_CASES if options.virtual_gpus else CPU_CASES:
        text = f"{case[0]} batch {case[2]} {case[3]}"
        if options.only not in text:
            continue
        steps = {name: [] for name, _, _ in runs}
        last = {}
        for _ in range(options.rounds):
            for name, program, schedule in runs:
                last[name] = train(program, case, schedule, options)
                steps[name].append(last[name]["step_ms"])
        first = statistics.median(steps[runs[0][0]])
        for name, _, _ in runs:
            ms, predicted = statistics.median(steps[name]), last[name].get("predicted_ms")
            off = f"{100 * (predicted / last[name]['step_ms'] - 1):+.1f} %" if predicted else ""
            print(f"{text:<58} {name:<9} {ms:9.3f} {off:>10} {first / ms:6.3f}x  {last[name]['weights_hash']}", flush=True)
            text = ""
            bad |= name == "auto" and ms > first * (1 + options.slack)
        bad |= len({run["weights_hash"] for run in last.values()}) > 1
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
