#!/usr/bin/env python3
"""Training-step times on one GPU: Overtake beside PyTorch and JAX, bf16, SGD with momentum, random data.

    bench/gpu/run.py --overtake build/cuda/overtake --python python3

Builds nothing. Every peer runs in a process of its own, in two precisions: amp (float32 weights, bf16 compute, which is
Overtake's) and bf16 (weights and momentum too, so less memory traffic and less precision). The best peer is the fastest
of them all, by the least mean over rounds of steps; Overtake's figure is the median of its steps. Peers that are not
installed or do not work here are left out by name. Needs nothing but Python; --python is the one that has torch.
"""

import argparse
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import cases
import table

HERE = pathlib.Path(__file__).resolve().parent
TYPICAL_SECONDS = {  # what a process of a peer takes, until one has run
    "eager": 30, "graph": 30, "compile-ro": 90, "compile-ma": 120, "jax": 60, "compile-graph": 120,
}  # fmt: skip
PEERS = ["eager", "graph", "compile-ro", "compile-ma", "jax"]  # compile-graph is measured only when asked for


class LeftOut(Exception):
    """What could not be measured; the text says why."""


class Clock:
    """Keeps the run within its budget: a process starts only where one like it would end in time."""

    def __init__(self, limit, budget):
        self.limit, self.end = limit, time.monotonic() + budget
        self.seconds = dict(TYPICAL_SECONDS)

    def run(self, kind, command):
        """The last line of what it prints, as JSON."""
        left = self.end - time.monotonic()
        if left < min(self.limit, self.seconds.get(kind, 0)) or left <= 0:
            raise LeftOut("would not fit in what is left of --budget")
        begin = time.monotonic()
        answer = last_json(command, min(self.limit, left))
        self.seconds[kind] = time.monotonic() - begin
        return answer


def last_json(command, limit):
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
    except OSError as error:
        raise LeftOut(f"{command[0]}: {error.strerror}") from error
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired as late:
        raise LeftOut(f"ran past {limit:.0f} s") from late
    finally:
        if process.poll() is None:  # late, or the user stopped us: it goes with the compilers it started
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    try:
        answer = json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        answer = {"error": (err.strip().splitlines() or [f"status {process.returncode}"])[-1]}
    if "error" in answer:
        raise LeftOut(answer["error"])
    return answer


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def measure_overtake(case, args, clock):
    """The row of the fastest schedule."""
    settings = ",".join(f"{name}={value}" for name, value in case.settings.items())
    command = [args.overtake, "bench", case.model, "--set", settings, "--batch", str(case.batch),
               "--device", "cuda", "--precision", "bf16", "--optimizer", "sgd", "--lr", str(cases.LEARNING_RATE),
               "--momentum", str(cases.MOMENTUM), "--schedules", args.schedules, "--steps", "10", "--json"]  # fmt: skip
    return min(clock.run("overtake", command)["rows"], key=lambda row: row["step_ms"])


def measure_peer(name, peer, precision, args, clock):
    python, script = (args.jax_python, "jax_peer.py") if peer == "jax" else (args.python, "torch_peer.py")
    return clock.run(peer, [python, str(HERE / script), name, peer, precision, "--json"])


def measure_case(name, args, clock):
    """{"overtake": [rows], "peers": {"graph amp": {...}}, "left_out": {name: why}} of one case."""
    result = {"overtake": [], "peers": {}, "left_out": {}}

    def attempt(what, measure):
        say(f"{name}: {what}")
        try:
            return measure()
        except LeftOut as reason:
            result["left_out"][what] = str(reason)
            say(f"{name}: {what} left out: {reason}")
            return None

    def overtake():
        row = attempt("overtake", lambda: measure_overtake(cases.CASES[name], args, clock))
        result["overtake"] += [row] if row else []

    overtake()
    for peer in args.peers:
        for precision in args.precisions:
            what = f"{peer} {precision}"
            if answer := attempt(what, lambda: measure_peer(name, peer, precision, args, clock)):
                result["peers"][what] = answer
    if args.interleave and result["overtake"]:
        overtake()
    return result


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return (done.stdout.strip().splitlines() or ["unknown"])[0] if done.returncode == 0 else "unknown"


def machine_facts():
    gpu = first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    name, _, driver = gpu.partition(", ")
    commit = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    return {"gpu": name, "driver": driver or "unknown", "commit": first_line(*commit)}


def without_missing(args):
    """Drops the peers whose library is not installed, and says so."""
    missing = {}
    for python, library in ((args.python, "torch"), (args.jax_python, "jax")):
        found = f"import importlib.util as u; print(u.find_spec('{library}') is not None)"
        if first_line(python, "-c", found) != "True":
            missing |= {p: f"{python} has no {library}" for p in args.peers if (p == "jax") == (library == "jax")}
    args.peers = [peer for peer in args.peers if peer not in missing]
    return missing


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="", metavar="REGEX", help=f"of {', '.join(cases.CASES)}")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="LIST", help="%(default)s; also compile-graph")
    parser.add_argument("--precisions", default=",".join(cases.PRECISIONS), metavar="LIST", help="%(default)s")
    parser.add_argument("--limit", type=float, default=150, metavar="SECONDS", help="of a process (%(default)s)")
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS", help="skip what would not fit")
    parser.add_argument("--overtake", default="build/cuda/overtake", metavar="PATH", help="the program (%(default)s)")
    parser.add_argument("--schedules", default="in-order", metavar="LIST", help="Overtake's; the fastest counts")
    parser.add_argument("--interleave", action="store_true", help="measure Overtake after the peers of a case too")
    parser.add_argument("--python", default=sys.executable or "python3", help="a Python that has torch")
    parser.add_argument("--jax-python", help="a Python that has jax; default: that of --python")
    parser.add_argument("--json", metavar="FILE", help="write everything measured here, after every case")
    args = parser.parse_args()
    args.jax_python = args.jax_python or args.python
    args.peers = [word for word in args.peers.split(",") if word]
    args.precisions = args.precisions.split(",")
    choices = (("peers", args.peers, TYPICAL_SECONDS), ("precisions", args.precisions, cases.PRECISIONS))
    for flag, given, known in choices:
        if unknown := [word for word in given if word not in known]:
            parser.error(f"--{flag} {','.join(unknown)}: there is no such; choose from {', '.join(known)}")
    args.cases = [name for name in cases.CASES if re.search(args.cases, name)]
    if not args.cases:
        parser.error(f"--cases: matches none of {', '.join(cases.CASES)}")
    return args


def main():
    args = parse_arguments()
    clock = Clock(args.limit, args.budget)
    everything = {"machine": machine_facts(), "missing": without_missing(args), "cases": {}}
    for name in args.cases:
        everything["cases"][name] = measure_case(name, args, clock)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(everything, indent=1) + "\n")
    table.print_report(everything, args.peers, args.precisions)


if __name__ == "__main__":
    main()
