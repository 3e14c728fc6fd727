"""A made-up timeline of two ranks, in the form that --trace of several processes writes."""


def two_ranks():
    """A step of 100 us on two ranks: one computes and sends, the other receives and computes."""
    def rank(number, lane, spans):
        place = f"rank {number}: stage {number}"
        run = {"run": 0, "name": "pair", "model": "pair", "schedule": "1f1b", "device": place, "arena_bytes": 0,
               "step_us": [100], "step_start_us": [0], "rank": number, "clock_offset_us": 0,
               "clock_error_us": 7 * number}
        yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": place}}
        yield {"ph": "M", "name": "overtake_run", "pid": number, "tid": 0, "args": run}
        for thread, name in enumerate(("compute", lane)):
            yield {"ph": "M", "name": "thread_name", "pid": number, "tid": thread, "args": {"name": name}}
        for task, (kind, begin, end) in enumerate(spans):
            args = {"task": task, "step": 0, "layer": "fc", "kind": kind, "op": "transfer" if task else "linear",
                    "waits_for": [], "waits_for_last": []}
            if task:
                args["message"] = 7
            yield {"ph": "X", "name": f"fc.{kind}", "cat": kind, "pid": number, "tid": int(task > 0), "ts": begin,
                   "dur": end - begin, "args": args}

    return {"traceEvents": [*rank(0, "sends", [("forward", 10, 40), ("send", 40, 60)]),
                            *rank(1, "receives from 0", [("forward", 60, 90), ("recv", 0, 60)])]}
