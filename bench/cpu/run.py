#!/usr/bin/env python3
"""Training-step times on the CPU: Overtake beside PyTorch, float32, SGD with momentum, random data.

    bench/cpu/run.py --overtake build/release/overtake --python python3

All peers take turns, round by round, so that what else the machine does hits all alike. A peer's figure is the median
over rounds of the median over a round's steps; its speed is relative to the best PyTorch variant. PyTorch runs in
worker processes that live as long as a case; Overtake is started anew each round and plans again each time, outside the
measured steps. Peers that do not work here are left out by name. Needs nothing but Python; --python is the one that has
torch.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SCHEDULES = ["in-order", "ooo", "auto"]
IMAGE_PEERS = ["eager", "eager channels_last", "compile", "compile channels_last"]
TOKEN_PEERS = ["eager", "compile"]
IMAGENET = {"batch": 16, "channels": 3, "image": 224, "classes": 1000}
CASES = {  # PyTorch variants, settings of the zoo's network of that name
    "resnet-18": (IMAGE_PEERS, IMAGENET),
    "resnet-50": (IMAGE_PEERS, IMAGENET),
    "transformer": (
        TOKEN_PEERS,
        {"batch": 8, "sequence": 128, "vocabulary": 256, "width": 512, "heads": 8, "layers": 6},
    ),
    "lstm": (
        TOKEN_PEERS,
        {"batch": 16, "sequence": 64, "vocabulary": 256, "width": 256, "hidden": 512, "layers": 2},
    ),
}
LEARNING_RATE, MOMENTUM = 0.01, 0.9


class LeftOut(Exception):
    """A peer that does not work here; the text says why."""


class TorchPeer:
    def __init__(self, case, variant, args):
        job = {"model": case, "settings": CASES[case][1], "variant": variant, "threads": args.threads,
               "learning_rate": LEARNING_RATE, "momentum": MOMENTUM}  # fmt: skip
        command = [args.python, str(HERE / "torch_peers.py")]
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError as error:
            raise LeftOut(f"{args.python}: {error.strerror}") from error
        try:
            self.facts = self.ask(job)["ready"]
        except LeftOut:
            self.close()
            raise

    def ask(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended; its last line or its exit status says why
        line = self.process.stdout.readline()
        if not line:
            raise LeftOut(f"its process ended, status {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise LeftOut(reply["error"])
        return reply

    def measure(self, warm, steps):
        return statistics.median(self.ask({"warm": warm, "steps": steps})["ms"])

    def close(self):
        with contextlib.suppress(BrokenPipeError):  # it ended before
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def measure_overtake(case, args):
    """One round: {schedule: its row}."""
    settings = ",".join(f"{k}={v}" for k, v in CASES[case][1].items())
    command = [args.overtake, "bench", case, "--schedules", ",".join(SCHEDULES), "--set", settings,
               "--steps", str(args.steps), "--warm", str(args.warm), "--threads", str(args.threads),
               "--optimizer", "sgd", "--lr", str(LEARNING_RATE), "--momentum", str(MOMENTUM), "--json"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise LeftOut(f"{args.overtake}: {error.strerror}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise LeftOut(reason)
    return {row["schedule"]: row for row in json.loads(done.stdout.strip().splitlines()[-1])["rows"]}


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def open_torch_peers(case, args):
    """Those that work here, and why the others do not, by name."""
    peers, left_out = {}, {}
    for variant in CASES[case][0]:
        name = f"PyTorch {variant}"
        if any(variant.startswith(skipped) for skipped in args.without):
            left_out[name] = "--without"
            continue
        say(f"{case}: starting {name}")
        try:
            peers[name] = TorchPeer(case, variant, args)
        except LeftOut as reason:
            left_out[name] = str(reason)
    return peers, left_out


def measure_case(case, args):
    """{"rows": [...], "left_out": {name: why}} of one case."""
    peers, left_out = open_torch_peers(case, args)
    facts = {name: peer.facts for name, peer in peers.items()}
    times, last_rows = {}, {}
    try:
        for turn in range(args.rounds):
            say(f"{case}: round {turn + 1} of {args.rounds}")
            for name, peer in list(peers.items()):
                try:
                    times.setdefault(name, []).append(peer.measure(args.warm, args.steps))
                except LeftOut as reason:
                    left_out[name] = str(reason)
                    peers.pop(name).close()
                    times.pop(name, None)
            if "Overtake" in left_out:
                continue
            try:
                for schedule, row in measure_overtake(case, args).items():
                    times.setdefault(f"Overtake {schedule}", []).append(row["step_ms"])
                    last_rows[f"Overtake {schedule}"] = row
            except LeftOut as reason:
                left_out["Overtake"] = str(reason)
    finally:
        for peer in peers.values():
            peer.close()
    medians = {name: statistics.median(ms) for name, ms in times.items()}
    best = min((ms for name, ms in medians.items() if name.startswith("PyTorch")), default=None)
    rows = []
    for name, ms in medians.items():
        row = {"peer": name, "step_ms": ms, "rounds_ms": times[name], "speed_of_best_pytorch": best and best / ms}
        rows.append(row | facts.get(name, {}) | {k: v for k, v in last_rows.get(name, {}).items() if k != "step_ms"})
    return {"settings": CASES[case][1], "rows": rows, "left_out": left_out}


def print_case(case, result):
    """At most 100 columns."""
    print(f"{'case':<13}{'peer':<32}{'ms/step':>10}{'rounds from':>13}{'to':>10}{'speed vs PyTorch':>18}")
    for row in result["rows"]:
        ratio = row["speed_of_best_pytorch"]
        runs_as = row.get("runs_as", "")
        name = f"{row['peer']} ({runs_as})" if row["peer"] == "Overtake auto" and runs_as else row["peer"]
        print(
            f"{case:<13}{name[:31]:<32}{row['step_ms']:>10.2f}{min(row['rounds_ms']):>13.2f}"
            f"{max(row['rounds_ms']):>10.2f}{f'{ratio:.2f}x' if ratio else '-':>18}"
        )
    for name, reason in result["left_out"].items():
        print(f"{case:<13}{name} left out: {reason}"[:100])
    sys.stdout.flush()


def cpu_name():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--overtake", default="build/release/overtake", help="the program (%(default)s)")
    parser.add_argument("--python", default=sys.executable or "python3", help="a Python that has torch")
    parser.add_argument("--cases", default=",".join(CASES), help="of %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every peer (%(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps of a turn (%(default)s)")
    parser.add_argument("--warm", type=int, default=1, help="steps of a turn before them (%(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--without", default="", help="PyTorch variants to leave out: compile, for example")
    parser.add_argument("--json", metavar="FILE", help="write everything measured here, after every case")
    args = parser.parse_args()
    args.cases = args.cases.split(",")
    args.without = [word for word in args.without.split(",") if word]
    if unknown := [case for case in args.cases if case not in CASES]:
        parser.error(f"--cases {','.join(unknown)}: no such case; choose from {', '.join(CASES)}")
    if min(args.rounds, args.steps, args.threads) < 1 or args.warm < 0:
        parser.error("--rounds, --steps and --threads must be at least 1, --warm at least 0")
    return args


def main():
    args = parse_arguments()
    machine = {"cpu": cpu_name(), "cores": args.threads, "load_before": os.getloadavg()[0]}
    print(f"{machine['cpu']}, {args.threads} threads, load before {machine['load_before']:.1f}; float32, SGD momentum")
    if machine["load_before"] > 0.25 * args.threads:
        print("The machine was busy before the run: the figures are indications only.")
    results = {}
    for case in args.cases:
        results[case] = measure_case(case, args)
        print_case(case, results[case])
        if args.json:
            everything = {"machine": machine, "rounds": args.rounds, "steps": args.steps, "cases": results}
            pathlib.Path(args.json).write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
