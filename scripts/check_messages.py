#!/usr/bin/env python3
"""Checks that texts of the library speak of fields of a run, not of flags.

A library has no flags: outside src/cli a message names a field in backticks (`lr_schedule x`), and the command line's
front door shows it as a flag. Prints every string literal under src/ and include/ outside src/cli that has something
like --lr-schedule in it, and exits 1 if there is one. Comments are not looked at.
"""
import pathlib
import re
import sys

TOKEN = re.compile(
    r"""
      //[^\n]* | /\*.*?\*/                           # comments
    | R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"  # a raw string
    | "(?P<text>(?:\\.|[^"\\\n])*)"
    | '(?:\\.|[^'\\\n])*'
    | \d[\w'.]*                                      # a number, whose ' begins no character
    """,
    re.DOTALL | re.VERBOSE,
)
FLAG = re.compile(r"--[a-z]")


def flags_in(source: str) -> list[tuple[int, str]]:
    """The line and the text of every string literal with a flag in it."""
    found = []
    for token in TOKEN.finditer(source):
        text = token["raw"] or token["text"] or ""
        if FLAG.search(text):
            found.append((source.count("\n", 0, token.start()) + 1, text))
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    paths = sorted(
        path
        for folder in ("include", "src")
        for path in (root / folder).rglob("*")
        if path.suffix in (".h", ".cpp", ".cu", ".cuh") and (root / "src" / "cli") not in path.parents
    )
    if not paths:
        print(f"check_messages: no sources under {root}/include or {root}/src", file=sys.stderr)
        return 2
    wrong = [f"{path}:{line}: a flag in a text of the library; name the field, in backticks: \"{text}\""
             for path in paths for line, text in flags_in(path.read_text())]
    print("\n".join(wrong) if wrong else f"messages: {len(paths)} files, none speaks of flags")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
