#!/usr/bin/env python3
"""Trains many small PyTorch models with Overtake, each from several forms of export, and compares with PyTorch:

    tests/golden/compare_exports.py                                # all; needs torch, torchvision, timm, transformers,
    tests/golden/compare_exports.py --models resnet t5 --keep tmp  # onnx, onnxscript and safetensors

Each model is exported at batch 2 and trained for three steps at batch 4. The loss of every step, the update of every
weight and the running statistics are compared with PyTorch's float64. A file must be trained exactly (to 1e-4, or to
three times what rounding does in PyTorch's own float32 where that is more) and its weights must fit load_state_dict();
or it must be refused with exit code 2 and the names of what is wrong. Of a few models a file of PyTorch's exporters
cannot say what is not trained: then the program must say so ("told"). Anything else is an error of Overtake's, and the
exit code is 1. What PyTorch itself cannot export is shown but counts for nothing.

exports/ has the models (a file for each family), the forms of export, the reference and the comparison. The table is
written to the folder of --out as table.json and table.md.
"""

import argparse
import contextlib
import json
import logging
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter

try:
    import numpy as np
    import onnx  # noqa: F401
    import onnxscript  # noqa: F401
    import timm  # noqa: F401
    import torch
    import transformers  # noqa: F401
    from exports import FAMILIES
    from exports.forms import FORMS, MORE_FORMS, File, Refused, export, reopen
    from exports.reference import Reference, data_of
    from exports.verdict import BAD, CRASHED, EXACT, NOT_EXPORTED, REFUSED, judge
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"compare_exports.py: no module {missing.name}: pip install torch torchvision timm transformers onnx "
        "onnxscript safetensors, and give that interpreter: make golden-check PYTHON=..."
    ) from None

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENOUGH_MODELS = 60
CASES = {name: case for family in FAMILIES for name, case in family.items()}


def first_line(text):
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def state_key(state):
    return b"".join(t.detach().contiguous().numpy().tobytes() for t in state.values())


def row_of(what, case, data, references, overtake, folder):
    """The verdict on what an exporter gave. Forms of equal weights have one reference."""
    if isinstance(what, Refused):
        return {"verdict": REFUSED, "message": str(what)}
    if not isinstance(what, File):
        return {"verdict": NOT_EXPORTED, "message": first_line(str(what))}
    key = state_key(what.state)
    if key not in references:
        references[key] = Reference(case, what.state, data)
    return judge(overtake, case, what.path, references[key], folder)


def compare(name, forms, overtake, folder):
    """The rows of one model."""
    case = CASES[name]
    data, references, rows = data_of(case), {}, []
    np.save(folder / "x.npy", data[0])
    np.save(folder / "y.npy", data[1])
    for form, what in (reopen(forms, folder) or export(case, forms, folder)).items():
        start = time.monotonic()
        row = row_of(what, case, data, references, overtake, folder)
        rows.append({"model": name, "form": form, **row, "seconds": round(time.monotonic() - start, 2)})
    return rows


def child(name, forms, overtake, folder, pipe):
    """In a process of its own; what exporters print goes to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        pipe.send(compare(name, forms, overtake, folder))
    except BaseException:
        pipe.send(traceback.format_exc())


def failed_rows(name, forms, message):
    return [{"model": name, "form": f, "verdict": CRASHED, "message": message, "seconds": 0.0} for f in forms]


class Runner:
    """Some models at a time, each with a time limit."""

    def __init__(self, forms, overtake, folder, seconds):
        self.forms, self.overtake, self.folder, self.seconds = forms, overtake, folder, seconds
        self.context = multiprocessing.get_context("fork")
        self.running = {}  # by pipe

    def start(self, name):
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=child, args=(name, self.forms, self.overtake, self.folder / name, theirs))
        process.start()
        theirs.close()
        self.running[ours] = (name, process, time.monotonic() + self.seconds)

    def finished(self):
        """Waits for a model; gives its rows."""
        while True:
            for pipe in multiprocessing.connection.wait(self.running, timeout=0.5):
                name, process, _ = self.running.pop(pipe)
                try:
                    rows = pipe.recv()
                except EOFError:
                    rows = f"the process of the comparison ended early; see {self.folder / name / 'log.txt'}"
                process.join()
                return failed_rows(name, self.forms, rows) if isinstance(rows, str) else rows
            for pipe, (name, process, deadline) in list(self.running.items()):
                if time.monotonic() > deadline:
                    process.kill()
                    process.join()
                    del self.running[pipe]
                    return failed_rows(name, self.forms, f"no end after {self.seconds} s")


def cell(row):
    """With a ~ what is exact only within what rounding does."""
    if "error" not in row:
        return row["verdict"]
    return f"{row['verdict']} {row['error']:.0e}{' ~' if row['verdict'] == EXACT and row['message'] else ''}"


def line_of(rows):
    return f"{rows[0]['model']:<22.22}" + "".join(f" {cell(row):<16.16}" for row in rows)


def is_complete(rows):
    return all(row["verdict"] != NOT_EXPORTED for row in rows)


def summary_of(table):
    verdicts = Counter(row["verdict"] for rows in table for row in rows)
    complete = sum(is_complete(rows) for rows in table)
    return f"{len(table)} models, {complete} of them in all forms: " + ", ".join(
        f"{count} {verdict}" for verdict, count in sorted(verdicts.items(), key=lambda item: -item[1]))  # fmt: skip


def markdown_of(table, forms):
    lines = [f"# Exported models against PyTorch\n\n{summary_of(table)}\n", f"| model | {' | '.join(forms)} |",
             "|---" * (len(forms) + 1) + "|"]  # fmt: skip
    lines += [f"| {rows[0]['model']} | {' | '.join(cell(row) for row in rows)} |" for rows in table]
    lines.append("\n## What is not exact\n")
    for rows in table:
        for row in rows:
            if row["message"]:
                text = row["message"].replace("\n", "\n      ")
                lines.append(f"- {row['model']}, {row['form']}: {row['verdict']}\n\n      {text}\n")
    return "\n".join(lines) + "\n"


def write_table(table, chosen):
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "table.json").write_text(json.dumps(table, indent=1) + "\n")
    (chosen.out / "table.md").write_text(markdown_of(table, chosen.forms))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these, or those whose names contain these")
    parser.add_argument("--forms", nargs="+", choices=[*FORMS, *MORE_FORMS], default=list(FORMS))
    parser.add_argument("--overtake", default=ROOT / "build/release/overtake", type=pathlib.Path)
    parser.add_argument(
        "--out", default=ROOT / "runs/exports", type=pathlib.Path, help="folder of table.json, table.md"
    )
    parser.add_argument(
        "--keep",
        type=pathlib.Path,
        help="folder to leave the exported files, data and calls in; what "
        "it has of an earlier run is not exported anew",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="models at a time")
    parser.add_argument("--seconds", type=int, default=600, help="time limit of a model")
    parser.add_argument("--list", action="store_true", help="names of all models")
    chosen = parser.parse_args()
    if not chosen.overtake.is_file():
        parser.error(f"{chosen.overtake} is no file; build it with make build, or give --overtake")
    wanted = chosen.models or CASES
    chosen.models = [name for name in CASES if name in wanted]
    if unknown := set(wanted) - set(CASES):
        parser.error(f"no such model: {', '.join(sorted(unknown))}; --list lists them")
    return chosen


def run(chosen, folder):
    runner = Runner(chosen.forms, str(chosen.overtake.resolve()), folder, chosen.seconds)
    waiting, table = list(chosen.models), {}
    print(f"{'':8}{'model':<22}" + "".join(f" {form:<16}" for form in chosen.forms), flush=True)
    while waiting or runner.running:
        while waiting and len(runner.running) < chosen.jobs:
            runner.start(waiting.pop(0))
        rows = runner.finished()
        table[rows[0]["model"]] = rows
        print(f"{len(table):>3}/{len(chosen.models):<3} {line_of(rows)}".rstrip(), flush=True)
        write_table([table[name] for name in chosen.models if name in table], chosen)
        if not chosen.keep:
            shutil.rmtree(folder / rows[0]["model"], ignore_errors=True)
    return [table[name] for name in chosen.models]


def main():
    chosen = arguments()
    if chosen.list:
        print("\n".join(CASES))
        return
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        folder = chosen.keep or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        table = run(chosen, folder.resolve())
    print(f"{summary_of(table)}\nwritten to {chosen.out / 'table.md'}")
    bad = [row for rows in table for row in rows if row["verdict"] in BAD]
    for row in bad:
        print(f"{row['model']}, {row['form']}: {row['verdict']}: {first_line(row['message'])}"[:300])
    is_whole = len(table) == len(CASES) and len(chosen.forms) >= len(FORMS)
    too_few = is_whole and sum(is_complete(rows) for rows in table) < ENOUGH_MODELS
    if too_few:
        print(f"fewer than {ENOUGH_MODELS} models could be exported in all forms")
    sys.exit(1 if bad or too_few else 0)


if __name__ == "__main__":
    main()
