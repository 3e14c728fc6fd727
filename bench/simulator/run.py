#!/usr/bin/env python3
"""What the cluster simulator says of steps beside what they take, over networks and batches.

    bench/simulator/run.py --device cpu
    bench/simulator/run.py --device cuda --overtake build/cuda/overtake --json simulator.json

A prediction is `overtake simulate MODEL --measure DEVICE` on a cluster of that one device: tasks measured one by one, put
together by the simulator. The measurement is `overtake bench MODEL --schedules in-order`. Machines change their speed, so the
two take turns, in every other round the other one first. A row has the medians of both over rounds, how far the slowest
measurement is above the fastest, and how far the prediction of a round was off: the median, the least and the most. Needs
nothing but Python.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = {  # network, settings, batches
    "cpu": [("lenet", "", [16, 128]), ("mobilenet-v3-large", "", [2, 8]), ("densenet-121", "", [1, 4]),
            ("transformer", "", [2, 8]), ("lstm", "", [8, 32])],
    "cuda": [("resnet-50", "", [8, 32]), ("densenet-121", "", [8, 32]), ("bert-12", "sequence=128", [8, 32]),
             ("gpt2", "sequence=256", [8, 32]), ("mobilenet-v3-large", "", [8, 32]), ("lstm", "", [8, 32])],
}
CLUSTER = {"cpu": "cpu-hosts", "cuda": "h200"}
PRECISION = {"cpu": "f32", "cuda": "bf16"}


def run(command):
    """The last line of a command's output, as JSON."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(options, network, settings, batch):
    common = [network, "--batch", str(batch), "--optimizer", "adamw", "--precision", PRECISION[options.device], "--json"]
    if settings:
        common += ["--set", settings]
    simulate = [options.overtake, "simulate", *common, "--measure", options.device, "--machine", CLUSTER[options.device]]
    bench = [options.overtake, "bench", *common, "--device", options.device, "--schedules", "in-order", "--lr", "0.0001",
             "--steps", str(options.steps)]
    predicted, measured = [], []
    for i in range(options.rounds):
        for command in (simulate, bench) if i % 2 == 0 else (bench, simulate):
            if command is simulate:
                predicted.append(run(command)["step_ms"])
            else:
                measured.append(run(command)["rows"][0]["step_ms"])
    off = [100 * (p / m - 1) for p, m in zip(predicted, measured)]
    return {"network": network, "settings": settings, "batch": batch, "predicted_ms": predicted, "measured_ms": measured,
            "off_percent": off}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--overtake", default=str(ROOT / "build/release/overtake"), help="the program to measure")
    parser.add_argument("--networks", nargs="*", help="only these")
    parser.add_argument("--batches", nargs="*", type=int, help="instead of each network's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="measured steps of a round")
    parser.add_argument("--json", help="write the rows, with all rounds, to this file")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    rows = []
    print(f"{'network':20}{'batch':>6}{'predicted ms':>14}{'measured ms':>13}{'spread':>9}{'off':>9}")
    for network, settings, batches in CASES[options.device]:
        if options.networks and network not in options.networks:
            continue
        for batch in options.batches or batches:
            row = measure(options, network, settings, batch)
            rows.append(row)
            measured = row["measured_ms"]
            spread = 100 * (max(measured) / min(measured) - 1)
            off = row["off_percent"]
            print(f"{network:20}{batch:6}{statistics.median(row['predicted_ms']):14.3f}{statistics.median(measured):13.3f}"
                  f"{spread:7.1f} %{statistics.median(off):+7.1f} %  ({min(off):+.1f} to {max(off):+.1f})", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    if not rows:
        sys.exit("nothing was measured: no network of that name")
    offs = [statistics.median(r["off_percent"]) for r in rows]
    print(f"off by {statistics.mean(map(abs, offs)):.1f} % on average, {max(map(abs, offs)):.1f} % at worst; "
          f"all together {statistics.mean(offs):+.1f} %")


if __name__ == "__main__":
    main()
