#!/usr/bin/env python3
"""Out of order against in order, side by side, over networks and batches.

    bench/schedules/run.py --device cuda --overtake build/cuda/overtake
    bench/schedules/run.py --device cpu

Both sides are the same program with the same kernels; only the schedule differs. Prints a table: milliseconds per step in
order and with --schedule auto, their ratio, how far predictions were off, and memory. A prediction is made seconds before
the steps it is compared with, and a machine may change its speed in between: the first figure is of the plan's time at the
speed of the steps in order that were measured beside it, those in brackets are of both plans' times as predicted.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEQUENCE = "sequence=128,dropout=0"
NETWORKS = {
    "cuda": [("densenet-121", ""), ("densenet-169", ""), ("mobilenet-v3-large", ""), ("resnet-50", ""),
             ("inception-v3", ""), ("bert-12", SEQUENCE), ("lstm", ""), ("ffnn", "")],
    "cpu": [("lenet", ""), ("mobilenet-v3-large", ""), ("densenet-121", ""), ("transformer", "")],
}
BATCHES = {"cuda": [8, 16, 32, 64], "cpu": [1, 2, 4]}
SMALL = {"cuda": 32, "cpu": 4}  # the geometric mean is over batches up to this


def measure(options, network, settings, batch):
    command = [options.overtake, "bench", network, "--batch", str(batch), "--lr", "0.0001", "--device", options.device,
               "--schedules", "in-order,auto", "--steps", str(options.steps), "--plan-seconds", str(options.plan_seconds),
               "--micro-batches", str(options.micro_batches), "--json", "--fresh-profile"]
    if settings:
        command += ["--set", settings]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    in_order, auto = json.loads(done.stdout.splitlines()[-1])["rows"]
    return {"network": network, "batch": batch, "in_order_ms": in_order["step_ms"], "auto_ms": auto["step_ms"],
            "runs_as": auto["runs_as"], "predicted_in_order_ms": auto["candidates"][0]["predicted_ms"],
            "predicted_ms": auto["predicted_ms"], "in_order_bytes": in_order["peak_bytes"],
            "auto_bytes": auto["peak_bytes"], "equal": in_order["weights_hash"] == auto["weights_hash"],
            "reason": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""}


def percent_off(row):
    """As predicted: of the chosen plan, and of the steps in order."""
    pairs = [(row["predicted_ms"], row["auto_ms"]), (row["predicted_in_order_ms"], row["in_order_ms"])]
    return [100 * (predicted / measured - 1) for predicted, measured in pairs if predicted > 0]


def percent_off_beside(row):
    """Of the chosen plan, at the speed of the steps in order beside it; of plans that are in order nothing is left to say."""
    if row["runs_as"] == "in-order" or row["predicted_in_order_ms"] <= 0:
        return None
    speed = row["in_order_ms"] / row["predicted_in_order_ms"]
    return 100 * (speed * row["predicted_ms"] / row["auto_ms"] - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--overtake", default=str(ROOT / "build/release/overtake"), help="the program to measure")
    parser.add_argument("--networks", nargs="*", help="only these")
    parser.add_argument("--batches", nargs="*", type=int, help="default: %s" % BATCHES)
    parser.add_argument("--micro-batches", type=int, default=1, help="pieces that a batch is cut into")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--plan-seconds", type=float, default=120)
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    rows = []
    print(f"{'network':20}{'batch':>6}{'in order':>10}{'auto':>10}{'ratio':>8}{'predicted off':>22}{'memory':>9}  runs as")
    for network, settings in NETWORKS[options.device]:
        if options.networks and network not in options.networks:
            continue
        for batch in options.batches or BATCHES[options.device]:
            row = measure(options, network, settings, batch)
            rows.append(row)
            beside = percent_off_beside(row)
            off = (f"{beside:+.1f} " if beside is not None else "") + f"({', '.join(f'{x:+.1f}' for x in percent_off(row))}) %"
            print(f"{network:20}{batch:6}{row['in_order_ms']:10.3f}{row['auto_ms']:10.3f}"
                  f"{row['in_order_ms'] / row['auto_ms']:8.3f}{off:>22}"
                  f"{row['auto_bytes'] / row['in_order_bytes']:9.3f}  {row['runs_as']}", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    if not rows:
        sys.exit("nothing was measured: no network of that name")
    small = [r["in_order_ms"] / r["auto_ms"] for r in rows if r["batch"] <= SMALL[options.device]]
    offs = [abs(x) for r in rows for x in percent_off(r)]
    if small:
        mean = math.exp(sum(map(math.log, small)) / len(small))
        print(f"geometric mean up to batch {SMALL[options.device]}: {mean:.3f}x; least {min(small):.3f}x")
    beside = [abs(x) for r in rows if (x := percent_off_beside(r)) is not None]
    if beside:
        print(f"predictions out of order, at the speed beside: off by {sum(beside) / len(beside):.1f} % on average, "
              f"{max(beside):.1f} % at most")
    if offs:
        print(f"all predictions as made: off by {sum(offs) / len(offs):.1f} % on average, {max(offs):.1f} % at most")
    print(f"equal weights: {'yes' if all(r['equal'] for r in rows) else 'NO'}")


if __name__ == "__main__":
    main()
