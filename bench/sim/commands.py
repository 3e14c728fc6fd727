#!/usr/bin/env python3
"""How long `overtake simulate` takes on many devices, from the model to the table.

    bench/sim/commands.py build/release/overtake [--rounds 3] [--only gpt2] [--no-fold]

Prints the CPU time, the clock (best of the rounds), the most memory and the simulated step of each case; with --no-fold
every replica is simulated, which is the baseline (cases that take minutes then are left out).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

GPT3 = ("gpt2 --set layers=96,width=12288,heads=96,sequence=2048,positions=2048,dropout=0 --pp 16 --micro-batches 16 "
        "--pipeline 1f1b --memory-cap 2000G")
CASES = [  # arguments, whether all replicas can be simulated in a minute or so
    ("resnet-50 --machine dgx-h100:8 --dp 64 --batch 2048", True),
    ("resnet-50 --machine dgx-h100:16 --dp 128 --batch 4096", True),
    ("resnet-50 --machine dgx-h100:64 --dp 512 --batch 16384", True),
    ("resnet-50 --machine dgx-h100:64 --dp 512 --batch 16384 --chunk 0", True),
    ("resnet-50 --machine dgx-h100:128 --dp 1024 --batch 32768", True),
    ("gpt2 --machine dgx-h100:8 --dp 64 --batch 512", True),
    ("gpt2 --machine dgx-h100:128 --dp 1024 --batch 8192", True),
    ("resnet-50 --machine dgx-h100:8 --dp 64 --batch 2048 --compare all", True),
    (f"{GPT3} --machine dgx-h100:128 --dp 64 --batch 1024", True),
    (f"{GPT3} --machine dgx-h100:2048 --dp 1024 --batch 16384", False),
]


def run(command):
    """CPU seconds, seconds, MiB and what was printed."""
    with tempfile.TemporaryFile() as out:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        clock = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}: {errors.decode().strip()}")
        out.seek(0)
        return usage.ru_utime + usage.ru_stime, clock, usage.ru_maxrss / 1024, json.loads(out.read())


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("overtake")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default="", help="cases whose text contains this")
    options.add_argument("--no-fold", action="store_true", help="simulate every replica")
    options = options.parse_args()
    print(f"{'CPU s':>8} {'clock s':>8} {'MiB':>6} {'ms/step':>10}  overtake simulate")
    for text, is_short in CASES:
        if options.only not in text or (options.no_fold and not is_short):
            continue
        command = [options.overtake, "simulate", *text.split(), "--json"] + ["--no-fold"] * options.no_fold
        rounds = [run(command) for _ in range(options.rounds)]
        print(f"{min(r[0] for r in rounds):8.2f} {min(r[1] for r in rounds):8.2f} {max(r[2] for r in rounds):6.0f} "
              f"{rounds[0][3]['step_ms']:10.3f}  {text}", flush=True)


if __name__ == "__main__":
    main()
