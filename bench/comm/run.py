#!/usr/bin/env python3
"""Transfers between hosts against what their link allows, and against PyTorch's gloo on the same hosts.

    bench/comm/run.py --bench build/release/bench_comm [--python VENV/bin/python] [--links 1Gbit,10Gbit,loopback]

Hosts are network namespaces (scripts/test_cluster.py; needs root) with a core each; `loopback` is two processes on one
host, free to use all cores. The bound is what a rank must send by the link's bandwidth; headers of Ethernet, IP and TCP,
about 5 %, are the link's, too. Runs take turns, so that a busy machine is unfair to none; the best of each is shown.
"""
import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
import test_cluster  # noqa: E402


def rows(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run_on(cluster, command):
    results = cluster.run(command, environment={"OMP_NUM_THREADS": 1}, time_out=300)
    for rank, result in enumerate(results):
        if result.code != 0:
            sys.exit(f"rank {rank} of {' '.join(map(str, command))} ended with {result.code}:\n{result.output}")
    return rows(results[0].output)


def run_loopback(options, command, is_peer):
    if not is_peer:
        return rows(subprocess.run([*command, "--ranks", str(options.hosts)], capture_output=True, text=True,
                                   check=True).stdout)
    launch = [options.python, "-m", "torch.distributed.run", "--nproc-per-node", str(options.hosts), "--master-port",
              "29611", *command[1:]]
    return rows(subprocess.run(launch, capture_output=True, text=True, check=True).stdout)


def measure(options, link):
    """The fastest row of each program, transfer and size."""
    sizes = ["--mib", options.mib, "--rounds", str(options.rounds)]
    commands = [[options.bench, "--json", *sizes]]
    if options.python:
        commands.append([options.python, str(HERE / "torch_peer.py"), *sizes])
    best = {}
    for _ in range(options.turns):
        for is_peer, command in enumerate(commands):
            if link == "loopback":
                got = run_loopback(options, command, is_peer)
            else:
                with test_cluster.Cluster(hosts=options.hosts, bandwidth=link) as cluster:
                    got = run_on(cluster, command)
            for row in got:
                key = (row["what"], row["bytes"], row["who"])
                if key not in best or row["ms"] < best[key]["ms"]:
                    best[key] = row
    return [best[key] for key in sorted(best)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/release/bench_comm")
    parser.add_argument("--python", help="of an environment with PyTorch; without it there is no peer")
    parser.add_argument("--links", default="1Gbit,10Gbit,loopback")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--mib", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    print("| link | transfer | MiB | | ms | Gbit/s | of the link |\n|---|---|---|---|---|---|---|")
    try:
        for link in options.links.split(","):
            for row in measure(options, link):
                part = "" if link == "loopback" else f"{100e9 * row['gbit'] / test_cluster.bits_per_second(link):.0f} %"
                print(f"| {link} | {row['what']} | {row['bytes'] / 2**20:g} | {row['who']} | {row['ms']:.1f} | "
                      f"{row['gbit']:.2f} | {part} |", flush=True)
    except test_cluster.NotAllowed as error:
        sys.exit(f"bench/comm: {error}; --links loopback needs no rights")


if __name__ == "__main__":
    main()
