#!/usr/bin/env python3
"""Checks that dependencies between the folders of src/ point one way.

Prints every #include that leads to a room its own room must not know, and exits 1 if there is one.
"""
import pathlib
import re
import sys

# Room: the rooms it may include besides itself.
MAY_SEE = {
    "base": [],
    "run": ["base"],
    "kernels": ["base"],
    "graph": ["base"],
    "ops": ["base", "graph"],
    "machine": ["base", "graph", "ops"],
    "models": ["base", "graph", "ops"],
    "rewrite": ["base", "graph", "ops"],
    "passes": ["base", "run", "graph", "ops", "machine", "rewrite"],
    "sim": ["base", "graph", "machine"],
    "plan": ["base", "run", "graph", "ops", "machine", "rewrite", "passes", "sim"],
    "comm": ["base", "graph"],
    "launch": ["base", "comm"],
    "exec": ["base", "graph", "ops", "machine", "plan", "kernels", "comm"],
    "report": ["base", "graph"],
    "train": ["base", "run", "graph", "ops", "models", "machine", "passes", "plan", "sim", "exec", "comm"],
    "cli": ["base", "run", "graph", "ops", "models", "machine", "passes", "plan", "sim", "exec", "comm", "launch", "report",
            "train"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/')


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "src"
    wrong = []
    files = sorted(p for p in root.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))
    if not files:
        print(f"check_rooms: no sources under {root}", file=sys.stderr)
        return 2
    for path in files:
        room = path.relative_to(root).parts[0]
        if room not in MAY_SEE:
            wrong.append(f"{path}: room '{room}' is not in the table of {sys.argv[0]}")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found and found[1] != room and found[1] in MAY_SEE and found[1] not in MAY_SEE[room]:
                wrong.append(f"{path}:{number}: {room} must not know {found[1]}")
    print("\n".join(wrong) if wrong else f"rooms: {len(files)} files, all dependencies point one way")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
