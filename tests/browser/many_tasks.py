"""A made-up timeline in the form that --trace writes: devices that compute on one lane and communicate on another.

Prints it as JSON. The tasks of a device are equally long, each waits for the one before, and every 10th communicates.
Usage: many_tasks.py TASKS [DEVICES] [RUNS]
"""
import json
import sys

KINDS = ["forward", "input_grad", "weight_grad", "update"]


def timeline(tasks: int, devices: int = 4, runs: int = 2) -> dict:
    events = []
    per_device = tasks // (devices * runs)
    for run in range(runs):
        length = 20.0 if run == 0 else 16.0  # us from one task to the next
        for device in range(devices):
            pid = run * devices + device
            events += described(pid, run, f"gpu {device}", per_device * length)
            for i in range(per_device):
                is_shared = i % 10 == 9
                task = device * per_device + i  # ids are those of the whole run
                kind = "all_reduce" if is_shared else KINDS[4 * i // per_device]
                name = f"layer{i // 10}.{kind}"
                args = {"task": task, "step": 0, "layer": f"layer{i // 10}", "kind": kind, "op": "linear",
                        "waits_for": [task - 1] if i else []}
                events.append({"ph": "X", "pid": pid, "tid": int(is_shared), "name": name, "cat": kind, "args": args,
                               "ts": i * length + device * 2, "dur": length * (1.5 if is_shared else 0.8)})
                if i % 4 == 0:
                    share = min(i, per_device - i) / per_device
                    events.append({"ph": "C", "pid": pid, "tid": 0, "name": "live bytes", "ts": i * length,
                                   "args": {"weights and states": 400 << 20, "activations": int(share * (900 << 20)),
                                            "gradients": int((i % 40) / 40 * (120 << 20)), "other": 8 << 20}})
    return {"traceEvents": events}


def described(pid: int, run: int, device: str, length: float) -> list:
    name = ["in-order", "ooo"][run % 2]
    about = {"run": run, "name": name, "model": "made-up", "schedule": name, "device": device, "arena_bytes": 2 << 30,
             "step_us": [length + 40]}
    meta = [("process_name", 0, {"name": device}), ("overtake_run", 0, about),
            ("thread_name", 0, {"name": "main lane"}), ("thread_name", 1, {"name": "communication lane 1"})]
    return [{"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args} for name, tid, args in meta]


if __name__ == "__main__":
    print(json.dumps(timeline(*map(int, sys.argv[1:]))))
