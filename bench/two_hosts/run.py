#!/usr/bin/env python3
"""Data-parallel training on two hosts: how gradients are brought together, side by side, and PyTorch's DDP.

    bench/two_hosts/run.py --overtake build/release/overtake [--python VENV/bin/python]

Hosts are network namespaces with a core and a shaped link each (scripts/test_cluster.py; needs root). All rows of a case
take turns, round by round, so that a busy machine is unfair to none; a row's figure is the median over rounds of the
median over a round's steps. `alone` is one process on one core with a host's part of the batch and no communication: no
row can be faster, nor faster than the link takes for the gradients. PyTorch is left out where --python has none.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
import test_cluster  # noqa: E402

HOSTS = 2
ORDERS = ["buckets", "by-layer", "scatter-gather", "first-k"]
CASES = {  # the zoo's network, its settings, samples of a host, links
    "resnet-50": ("resnet-50", {"image": 224, "classes": 1000}, 8, ["400Mbit"]),
    # As large as the published BERT-Medium.
    "bert-medium": (
        "bert-12",
        {"layers": 8, "width": 512, "heads": 8, "sequence": 128, "vocabulary": 30522, "dropout": 0},
        8,
        ["1Gbit"],
    ),
    "bert-base": (
        "bert-12",
        {"layers": 12, "width": 768, "heads": 12, "sequence": 128, "vocabulary": 30522, "dropout": 0},
        6,
        ["1Gbit"],
    ),
}


class LeftOut(Exception):
    """A row that cannot be measured here; the text says why."""


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise LeftOut((text.strip().splitlines() or ["it printed nothing"])[-1])
    return json.loads(lines[-1])


def train(options, name, batch):
    network, settings, _, _ = CASES[name]
    return [options.overtake, "train", network, "--set", ",".join(f"{k}={v}" for k, v in settings.items()),
            "--batch", str(batch), "--data", f"synthetic:{batch * 4}", "--steps", str(options.steps + 2),
            "--seed", "1", "--time-out", "600", "--json"]  # fmt: skip


def on_hosts(cluster, command, time_out=900):
    results = cluster.run(command, environment={"OMP_NUM_THREADS": 1}, time_out=time_out)
    for rank, result in enumerate(results):
        if result.code != 0:
            raise LeftOut(f"rank {rank} ended with {result.code}: {(result.output.strip().splitlines() or [''])[-1]}")
    return last_json(results[0].output)


def overtake_row(options, cluster, name, order):
    """Milliseconds, and the hash of the weights, which must not depend on the order."""
    batch = CASES[name][2] * HOSTS
    command = [*train(options, name, batch), "--dp", str(HOSTS), "--reduce", order]
    if order == "first-k" and options.first_k:
        command += ["--first-k", str(options.first_k)]
    answer = on_hosts(cluster, command)
    return answer["step_ms"], answer["weights_hash"]


def alone_row(options, name):
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *train(options, name, CASES[name][2]), "--threads",
               "1", "--schedule", "in-order"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return last_json(done.stdout if done.returncode == 0 else done.stderr)["step_ms"], None


def torch_row(options, cluster, name):
    network, settings, batch, _ = CASES[name]
    command = [options.python, str(HERE / "torch_ddp.py"), "--model", network, "--settings",
               json.dumps(settings | {"batch": batch}), "--steps", str(options.steps)]  # fmt: skip
    return statistics.median(on_hosts(cluster, command)["ms"]), None


def measure(options, name, link):
    rows = {"alone": lambda _: alone_row(options, name)}
    for order in options.orders.split(","):
        rows[order] = lambda cluster, order=order: overtake_row(options, cluster, name, order)
    if options.python:
        rows["PyTorch DDP"] = lambda cluster: torch_row(options, cluster, name)
    rounds, hashes, left_out = {row: [] for row in rows}, set(), {}
    for turn in range(options.rounds):
        for row, run in rows.items():
            if row in left_out:
                continue
            try:
                with test_cluster.Cluster(hosts=HOSTS, bandwidth=link) as cluster:
                    ms, weights = run(cluster)
            except LeftOut as reason:
                left_out[row] = str(reason)
                continue
            print(f"{time.strftime('%H:%M:%S')} {name} {link} round {turn + 1}: {row} {ms:.0f} ms", file=sys.stderr)
            rounds[row].append(ms)
            hashes |= {weights} - {None}
    if len(hashes) > 1:
        sys.exit(f"{name}: the weights depend on the order: {sorted(hashes)}")
    return {"case": name, "link": link, "rounds_ms": rounds, "left_out": left_out,
            "ms": {row: statistics.median(ms) for row, ms in rounds.items() if ms}}  # fmt: skip


def show(result):
    ms = result["ms"]
    print(f"\n{result['case']}, {HOSTS} hosts, {result['link']}/s: ms per step")
    for row, value in ms.items():
        ratio = "" if row == "first-k" or "first-k" not in ms else f"first-k: {value / ms['first-k']:.2f}x"
        spread = f"{min(result['rounds_ms'][row]):.0f} to {max(result['rounds_ms'][row]):.0f}"
        print(f"  {row:<16}{value:>8.0f}   {spread:<16}{ratio if row != 'alone' else ''}")
    for row, reason in result["left_out"].items():
        print(f"  {row} left out: {reason}"[:100])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overtake", default="build/release/overtake")
    parser.add_argument("--python", help="one that has torch, and transformers for BERT")
    parser.add_argument("--cases", default=",".join(CASES), help="%(default)s")
    parser.add_argument("--orders", default=",".join(ORDERS), help="%(default)s")
    parser.add_argument("--links", help="instead of each case's own, for example 1Gbit,500Mbit")
    parser.add_argument("--first-k", help="instead of the one that Overtake chooses")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", metavar="FILE", help="write everything measured here")
    options = parser.parse_args()
    if unknown := [name for name in options.cases.split(",") if name not in CASES]:
        parser.error(f"--cases {','.join(unknown)}: no such case; choose from {', '.join(CASES)}")
    if unknown := [order for order in options.orders.split(",") if order not in ORDERS]:
        parser.error(f"--orders {','.join(unknown)}: no such order; choose from {', '.join(ORDERS)}")
    results = []
    try:
        for name in options.cases.split(","):
            for link in options.links.split(",") if options.links else CASES[name][3]:
                results.append(measure(options, name, link))
                show(results[-1])
    except (test_cluster.NotAllowed, ValueError) as error:
        print(f"bench/two_hosts: {error}", file=sys.stderr)
        return 2
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
