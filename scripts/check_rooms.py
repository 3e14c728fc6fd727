#!/usr/bin/env python3
"""Checks that dependencies between the folders of src/ and the public headers point one way.

The public headers, include/overtake/, are the lowest room: they include one another and the standard library, nothing
else. Prints every #include that leads to a room its own room must not know, and every call of a parser around the one
reader that bounds what it takes, and exits 1 if there is one.
"""
import pathlib
import re
import sys

# Room: the rooms it may include besides itself and the public headers.
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
# Rooms that know no graph: the public headers they may include. Every other room may include all of them.
MAY_SEE_PUBLIC = {
    "base": ["error", "layout", "version"],
    "run": ["error", "run_spec", "optimizer_settings"],
    "kernels": ["error", "layout"],
    "launch": ["error"],
}
# Readers that bound what comes from outside: nobody else calls the libraries behind them.
ONE_READER = {re.compile(r"\b[jJ]son::parse\("): "src/base/json.cpp", re.compile(r"\btoml::parse\("): "src/base/toml.cpp"}
PUBLIC = "overtake"
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
STANDARD_HEADER = re.compile(r"[a-z_]+")  # those of C++: no folder, no ending


def fault_of_public(quote: str, name: str) -> str:
    """What is wrong with a public header that includes `name`; empty: nothing."""
    is_right = name.startswith(PUBLIC + "/") if quote == '"' else STANDARD_HEADER.fullmatch(name)
    return "" if is_right else f"a public header must not include {name}"


def fault_of(room: str, name: str) -> str:
    """What is wrong with a file of `room` that includes `name`; empty: nothing."""
    other, _, header = name.partition("/")
    if other == PUBLIC:
        allowed = MAY_SEE_PUBLIC.get(room)
        return "" if allowed is None or header.removesuffix(".h") in allowed else f"{room} must not know {name}"
    if other == room or other not in MAY_SEE or other in MAY_SEE[room]:
        return ""
    return f"{room} must not know {other}"


def sources_under(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    wrong = []
    public, private = sources_under(root / "include"), sources_under(root / "src")
    if not public or not private:
        print(f"check_rooms: no sources under {root}/include or {root}/src", file=sys.stderr)
        return 2
    for path in public + private:
        room = PUBLIC if path in public else path.relative_to(root / "src").parts[0]
        if room != PUBLIC and room not in MAY_SEE:
            wrong.append(f"{path}: room '{room}' is not in the table of {sys.argv[0]}")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := INCLUDE.match(line):
                fault = fault_of_public(found[1], found[2]) if room == PUBLIC else fault_of(room, found[2])
                if fault:
                    wrong.append(f"{path}:{number}: {fault}")
            for call, reader in ONE_READER.items():
                if call.search(line.partition("//")[0]) and path != root / reader:
                    wrong.append(f"{path}:{number}: only {reader} may call this; use its functions")
    print("\n".join(wrong) if wrong else f"rooms: {len(public) + len(private)} files, all dependencies point one way")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
