"""What bench/gpu/run.py prints, at most 100 columns wide."""

import math

FLOPS_PER_MS, BYTES_PER_MS = 790e9, 4.3e9  # an H200: dense bf16 products, HBM3e
NOTEWORTHY = 1.02  # two figures of Overtake that differ by more than this are both shown


def overtake_ms(result):
    """The mean of what was measured before and after the peers."""
    times = [row["step_ms"] for row in result["overtake"]]
    return sum(times) / len(times) if times else None


def best_peer(result):
    """(name, answer)"""
    return min(result["peers"].items(), key=lambda item: item[1]["ms"], default=(None, None))


def speed(result):
    """Above 1: Overtake takes less time than the best peer."""
    ours, (name, best) = overtake_ms(result), best_peer(result)
    return best["ms"] / ours if ours and name else None


def of_roofline(result):
    """What the step would take at the device's peaks, over what it takes."""
    row = (result["overtake"] or [{}])[0]
    if not row.get("flops") or not row.get("least_bytes"):
        return None
    return max(row["flops"] / FLOPS_PER_MS, row["least_bytes"] / BYTES_PER_MS) / overtake_ms(result)


def shown(value, form):
    return "-" if value is None else format(value, form)


def overtake_text(result):
    times = [row["step_ms"] for row in result["overtake"]]
    if len(times) > 1 and max(times) > NOTEWORTHY * min(times):
        return "/".join(f"{ms:.2f}" for ms in times)
    return shown(overtake_ms(result), ".2f")


def memory_text(result):
    def gib(row):
        return "-" if not row or row.get("peak_bytes") is None else f"{row['peak_bytes'] / 2**30:.2f}"

    return f"{gib((result['overtake'] or [None])[0])} / {gib(best_peer(result)[1])}"


def speed_text(result, missing):
    """With a star where the best peer is that of a smaller field."""
    star = "*" if missing or any(name != "overtake" for name in result["left_out"]) else ""
    return shown(speed(result), ".3f") + star


def print_summary(results, missing):
    print(f"{'case':<18}{'overtake':>14}{'best peer':>11}  {'which':<19}{'speed':>7}{'roofline':>10}{'GiB both':>16}")
    for case, result in results.items():
        name, best = best_peer(result)
        print(
            f"{case:<18}{overtake_text(result):>14}{shown(best and best['ms'], '.2f'):>11}  {name or '-':<19}"
            f"{speed_text(result, missing):>7}{shown(of_roofline(result), '.0%'):>10}{memory_text(result):>16}"
        )
    speeds = [s for s in map(speed, results.values()) if s]
    if speeds:
        mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
        print(f"geometric mean of the speeds of {len(speeds)} cases: {mean:.3f}")


def print_peers(results, peers, precisions):
    width = {peer: max(len(peer), 7) + 2 for peer in peers}
    print(f"{'case':<18}{'precision':<10}" + "".join(f"{peer:>{width[peer]}}" for peer in peers))
    for case, result in results.items():
        for precision in precisions:
            line = f"{case:<18}{precision:<10}"
            for peer in peers:
                answer = result["peers"].get(f"{peer} {precision}")
                line += f"{shown(answer and answer['ms'], '.2f'):>{width[peer]}}"
            print(line)


def print_left_out(missing, results):
    for peer, reason in missing.items():
        print(f"{peer} left out: {reason}"[:100])
    for case, result in results.items():
        for name, reason in result["left_out"].items():
            print(f"{case}: {name} left out: {reason}"[:100])


def print_report(everything, peers, precisions):
    machine, results = everything["machine"], everything["cases"]
    libraries = {}
    for result in results.values():
        for answer in result["peers"].values():
            libraries |= answer["libraries"]
    versions = ", ".join(f"{name} {version}" for name, version in libraries.items())
    print(f"{machine['gpu']}, driver {machine['driver']}; Overtake {machine['commit']}; {versions or 'no peer'}"[:100])
    print("ms per step; speed: best peer / Overtake, above 1 is faster (*: peers were left out, see below);")
    print("GiB: Overtake / best peer (eager: allocated; other PyTorch: reserved; JAX: peak of the process)")
    print_summary(results, everything["missing"])
    if peers:
        print_peers(results, peers, precisions)
    print_left_out(everything["missing"], results)
