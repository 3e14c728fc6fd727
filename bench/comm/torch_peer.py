#!/usr/bin/env python3
"""What bench_comm measures, by PyTorch's gloo: rank and address come from the environment. Prints the same JSON lines."""
import argparse
import json
import time

import torch
import torch.distributed as dist


def measure(what, elements, rounds):
    rank, n = dist.get_rank(), dist.get_world_size()
    times = []
    for turn in range(rounds + 1):  # the first one is not counted
        x = torch.arange(elements, dtype=torch.float32).remainder_(1000).mul_(rank + 1)
        dist.barrier()
        begin = time.perf_counter()
        if what == "all_reduce":
            dist.all_reduce(x)
        elif rank == 0:
            dist.send(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
        took = torch.tensor([time.perf_counter() - begin])
        factor = n * (n + 1) // 2 if what == "all_reduce" else 1 if rank < 2 else rank + 1
        assert torch.equal(x, torch.arange(elements, dtype=torch.float32).remainder_(1000).mul_(factor)), "wrong sum"
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        if turn > 0:
            times.append(took.item())
    return sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    for what, share in (("all_reduce", 2 * (n - 1) / n), ("send", 1)):
        for mib in options.mib.split(","):
            elements = int(float(mib) * 2**20) // 4
            seconds = measure(what, elements, options.rounds)
            if dist.get_rank() == 0:
                print(json.dumps({"who": "PyTorch gloo", "what": what, "ranks": n, "bytes": 4 * elements,
                                  "ms": seconds * 1e3, "gbit": 4 * elements * share * 8e-9 / seconds}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
