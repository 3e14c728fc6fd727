#!/usr/bin/env python3
"""Compares the searched pipeline schedule with every named one, by the simulator, in 60 settings.

    bench/sim/never_slower.py build/release/overtake [--calls 10] [--only bert]

Six networks on five clusters in two layouts. Exits with 1 if the search is slower than a named schedule anywhere, or
if it gives another step time or comes from elsewhere in another call.
"""
import argparse
import json
import subprocess
import sys
import time

MODELS = ["resnet-50", "bert-24", "gpt2", "gpt3-medium", "vit-b-16", "transformer"]
CLUSTERS = ["p3.8xlarge:2", "p3.16xlarge", "dgx-a100", "dgx-h100", "dgx-h200"]
LAYOUTS = [["--pp", "8", "--micro-batches", "32"], ["--dp", "2", "--pp", "4", "--micro-batches", "16"]]


def simulate(overtake, arguments):
    run = subprocess.run([overtake, "simulate", *arguments, "--json"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def schedule_of(row):
    return row["schedule"].split(" + ")[0]


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("overtake")
    options.add_argument("--calls", type=int, default=10, help="searches of each setting, which must agree")
    options.add_argument("--only", default="", help="settings whose text contains this")
    options = options.parse_args()
    print(f"{'setting':<62} {'search':>11} {'best named':>11}  {'gain':>6} {'time':>7}  from")
    bad = count = 0
    for model in MODELS:
        for cluster in CLUSTERS:
            for layout in LAYOUTS:
                setting = [model, "--machine", cluster, *layout]
                text = " ".join(setting)
                if options.only not in text:
                    continue
                out = simulate(options.overtake, [*setting, "--compare", "all"])
                # A schedule that does not fit into memory is no rival of one that does.
                searched = next((r for r in out["runs"] if schedule_of(r) == "search"), None)
                named = [r for r in out["runs"] if schedule_of(r) != "search"]
                if searched is not None:
                    named = [r for r in named if r["fits"] or not searched["fits"]]
                if searched is None or not named:
                    print(f"{text:<62} nothing to compare: {'; '.join(out['left_out'])[:200]}")
                    bad += searched is None and bool(named)
                    continue
                best = min(named, key=lambda r: r["step_ms"])
                count += 1
                begin = time.monotonic()
                again = [simulate(options.overtake, [*setting, "--pipeline", "search"])["runs"][0]
                         for _ in range(options.calls - 1)]
                seconds = (time.monotonic() - begin) / max(1, len(again))
                is_slower = searched["step_ms"] > best["step_ms"] * (1 + 1e-12)
                differs = any(r["step_ms"] != searched["step_ms"] or r.get("reason") != searched.get("reason")
                              for r in again)
                bad += is_slower or differs
                print(f"{text:<62} {searched['step_ms']:>8.3f} ms {best['step_ms']:>8.3f} ms  "
                      f"{best['step_ms'] / searched['step_ms'] - 1:>6.1%} {seconds:>5.1f} s  "
                      f"{searched.get('reason', '')} (best named: {schedule_of(best)})"
                      f"{'  SLOWER' if is_slower else ''}{'  DIFFERS' if differs else ''}", flush=True)
    print(f"{count} settings, {bad} of them slower or different in another call")
    sys.exit(1 if bad else 0)


main()
