#!/usr/bin/env python3
"""Compares two `overtake` programs by a fixed set of runs: do they still come to the same weights?

    scripts/compare_runs.py OLD NEW                                  # the paths of two programs
    scripts/compare_runs.py OLD NEW --only '^launch/' --figures
    scripts/compare_runs.py OLD NEW --only '^(simulate|validate)' --exact-simulations

For whoever redesigns how steps are planned, and must prove that nothing else changed. Both programs do every run, each
with a cache and temporary files of its own:
  - Trainings of all networks, a few steps each, on one device and on several: `weights_hash` must be equal.
  - Simulations, and the figures of `overtake validate`: what differs is printed, and fails with --exact-simulations.
    What a search found is only printed: another budget finds something else.
  - The exit status must be the one that the run is to have, in both.
A run that needs a flag which was renamed has both names, as in `(--machine|--cluster)`: a program gets the first one
that its help shows. Where NEW lacks a flag that OLD has, the run fails; where only OLD lacks it, nothing is compared.
The runs are in runs_to_compare.py.

Exit status: 0, or 1 where anything failed, or 2 where the arguments make no sense. Only the loopback is used.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

from runs_to_compare import NETWORKS, Run, all_runs

OVER_TIME = 124  # The status of a command that was ended because it took too long.
INTERRUPTED = 130  # The status of this script after Ctrl-C.
ALTERNATIVES = re.compile(r"\(([^()]*\|[^()]*)\)")

# ---------------------------------------------------------------------------------------------------------------------
# Doing them.


class BadUsage(Exception):
    """What was asked for cannot be done; the text says why."""


class Unknown(Exception):
    """The program does not know the flag or the command that the text names."""


class Interrupted(Exception):
    """This script ends, so nothing new is started."""


@dataclasses.dataclass
class Ended:
    """How a command ended."""
    status: int = 0
    output: str = ""
    message: str = ""  # The last line of its errors.
    planning_seconds: float | None = None  # From its start until it said what it had planned.


class Commands:
    """Starts commands, and sees to it that none is left when this script ends."""

    def __init__(self, time_limit):
        self.time_limit = time_limit
        self._lock = threading.Lock()
        self._running = set()
        self._is_closed = False

    def run(self, arguments, environment):
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            begin = time.monotonic()
            process = self._start(arguments, environment, output)
            timer = threading.Timer(self.time_limit, self._kill, [process])
            timer.start()
            ended = self._listen(process, begin)
            timer.cancel()
            output.seek(0)
            ended.output = output.read()
        if self._is_closed:
            raise Interrupted
        if time.monotonic() - begin >= self.time_limit:
            ended.status, ended.message = OVER_TIME, f"it was ended after {self.time_limit} s"
        return ended

    def close(self):
        with self._lock:
            self._is_closed = True
            running = list(self._running)
        for process in running:
            self._kill(process)

    def _start(self, arguments, environment, output):
        with self._lock:
            if self._is_closed:
                raise Interrupted
            process = subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
            self._running.add(process)
        return process

    def _listen(self, process, begin):
        ended = Ended()
        with process.stderr:
            for line in process.stderr:
                ended.message = line.strip() or ended.message
                if ended.planning_seconds is None and line.endswith(" planned\n"):
                    ended.planning_seconds = time.monotonic() - begin
        code = process.wait()
        ended.status = 128 - code if code < 0 else code
        with self._lock:
            self._running.discard(process)
        return ended

    @staticmethod
    def _kill(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@dataclasses.dataclass
class Outcome:
    """What came of a run in one program."""
    status: int | None = None  # None where the program does not know a flag of the run.
    commands: list = dataclasses.field(default_factory=list)
    message: str = ""
    seconds: float = 0
    planning_seconds: float | None = None
    printed: dict = dataclasses.field(default_factory=dict)

    def weights(self):
        return self.printed.get("weights_hash")

    def lack(self, run):
        """Why a run that succeeded proves nothing; empty where it does."""
        if self.status != 0 or run.status != 0:
            return ""
        if not run.is_training():
            return "" if self.rows() else "it printed no simulated steps, or in a form that is not known here"
        if self.weights() is None:
            return "it printed no weights_hash"
        return "its loss is not finite" if self.printed.get("loss") is None else ""

    def rows(self):
        """Of simulations and published figures: names, each with a number and, where there is one, a peak in bytes."""
        try:
            return dict(rows_of(self.printed))
        except (KeyError, TypeError, ValueError):
            return {}


def rows_of(printed):
    for run in printed.get("runs", []):
        # The number of late layers that was found is no part of the name.
        name = re.sub(r"first-k \S+", "first-k", run["schedule"])
        yield name, (run["step_ms"], max(device["peak_bytes"] for device in run["devices"]))
    for index, job in enumerate(printed.get("jobs", [])):
        yield f"job {index}, {job['model']}, {job['schedule']}", (job["step_ms"], None)
    for row in printed.get("rows", []):
        yield f"{row['source']}: {row['what']}", (row["ours"], None)


class Program:
    """One of the two programs, with a folder for what it keeps."""

    def __init__(self, path, folder, old_folder, commands):
        self.path, self.folder, self.old_folder, self._commands = path, folder, old_folder, commands
        temporary = folder / "temporary"
        temporary.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OVERTAKE_")}
        self._environment = kept | {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(temporary)}
        self._flags = {command: self._read_flags(command) for command in ("train", "simulate", "validate")}

    def _read_flags(self, command):
        """What the help of a command shows; None where there is no such command."""
        try:
            ended = self._commands.run([self.path, command, "--help"], self._environment)
        except OSError as error:
            raise BadUsage(f"{self.path}: it cannot be started: {error.strerror}") from None
        if f"overtake {command}" not in ended.output:
            return None
        shown = re.findall(r"^ {2}(?:-\w,)?(--[\w,-]+)", ended.output, re.MULTILINE)
        return {flag for flags in shown for flag in flags.split(",")}

    def knows_training(self):
        return self._flags["train"] is not None

    def networks(self):
        printed = last_json(self._commands.run([self.path, "models", "--json"], self._environment).output)
        return [model["name"] for model in printed.get("models", [])]

    def words(self, run, command):
        """A command of a run as this program spells it."""
        name = re.search(r"\b(train|simulate|validate)\b", command)[0]
        flags = self._flags[name]
        if flags is None:
            raise Unknown(name)

        def is_known(words):
            return not words.startswith("--") or words.split()[0] in flags

        def spelling(match):
            choices = match[1].split("|")
            return next((choice for choice in choices if is_known(choice)), choices[0])

        words = shlex.split(ALTERNATIVES.sub(spelling, command))
        for word in words:
            if word != "--" and not is_known(word):
                raise Unknown(word)
        return [self._in_folder(run, word) for word in words]

    def _in_folder(self, run, word):
        place, _, name = word.partition("/")
        folder = {"OWN": self.folder, "OLD": self.old_folder}.get(place)
        return str(folder / folder_name(run) / name) if folder and name else word

    def do(self, run):
        outcome = Outcome()
        try:
            outcome.commands = [[self.path, *self.words(run, command)] for command in run.commands]
        except Unknown as unknown:
            outcome.message = f"it does not know {unknown}"
            return outcome
        (self.folder / folder_name(run)).mkdir()
        begin = time.monotonic()
        for arguments in outcome.commands:
            ended = self._commands.run(arguments, self._environment)
            if ended.status != 0:
                break
        outcome.seconds = time.monotonic() - begin
        outcome.status, outcome.message = ended.status, ended.message
        outcome.planning_seconds = ended.planning_seconds
        outcome.printed = last_json(ended.output)
        return outcome


def folder_name(run):
    return run.name.replace("/", "_")


def last_json(output):
    """The last line as an object; nothing where it is none."""
    lines = output.strip().splitlines()
    try:
        printed = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        return {}
    return printed if isinstance(printed, dict) else {}


# ---------------------------------------------------------------------------------------------------------------------
# Comparing what came of them.

SAME, SEARCHED, NEW_ONLY = "same", "searched", "new only"
SIMULATED = "differs"  # A simulation: it fails only with --exact-simulations.
WEIGHTS, STATUS, FAILED, LOST = "WEIGHTS", "STATUS", "FAILED", "OLD ONLY"
MEANINGS = {SAME: "are the same", SEARCHED: "differ only in what a search found", NEW_ONLY: "only NEW can do",
            SIMULATED: "are simulated differently", WEIGHTS: "end with other WEIGHTS",
            STATUS: "end with another STATUS", FAILED: "FAILED", LOST: "OLD ONLY can do"}


def row_verdict(name, old, new):
    if old == new:
        return SAME
    return SEARCHED if "search" in name else SIMULATED


@dataclasses.dataclass
class Comparison:
    """A run in both programs."""
    run: Run
    old: Outcome
    new: Outcome

    def verdict(self):
        if self.old.status is None:
            return FAILED if self.new.status is None else NEW_ONLY
        if self.new.status is None:
            return LOST
        if self.old.status != self.new.status:
            return STATUS
        if self.old.weights() != self.new.weights():
            return WEIGHTS
        if self.old.status != self.run.status or self.old.lack(self.run) or self.new.lack(self.run):
            return FAILED
        verdicts = {row_verdict(*row) for row in self.rows()}
        return next((verdict for verdict in (SIMULATED, SEARCHED) if verdict in verdicts), SAME)

    def rows(self):
        """Name, old and new of all that was simulated; None where one program has no such row."""
        old, new = self.old.rows(), self.new.rows()
        return [(name, old.get(name), new.get(name)) for name in old | new]

    def cell(self, outcome):
        """An outcome in a few characters."""
        if outcome.status is None:
            return outcome.message.removeprefix("it does not know ")
        if outcome.status != 0:
            return f"exit status {outcome.status}"
        if self.run.is_training():
            return outcome.weights() or "no hash"
        rows = list(outcome.rows().values())
        return f"{rows[0][0]:.6g} ms" if len(rows) == 1 else f"{len(rows)} rows"


def fails(comparison, exact_simulations):
    verdict = comparison.verdict()
    return verdict in (WEIGHTS, STATUS, FAILED, LOST) or (exact_simulations and verdict == SIMULATED)


# ---------------------------------------------------------------------------------------------------------------------
# Saying what came of it.


def table(header, rows):
    """Columns, as wide as the terminal allows: the first one gives way, over several lines."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    width = shutil.get_terminal_size((120, 24)).columns
    widths[0] = max(16, min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    return "\n".join(line for row in [header, *rows] for line in table_lines(row, widths))


def table_lines(row, widths):
    first, *more = textwrap.wrap(row[0], widths[0], subsequent_indent="  ")
    cells = [cell.ljust(size) for cell, size in zip([first, *row[1:]], widths)]
    return ["  ".join(cells).rstrip(), *more]


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def mebibytes(count):
    return "" if count is None else f"{count / 2**20:.2f}"


def table_of_runs(comparisons):
    return table(("run", "old", "new", "same?"),
                 [(c.run.name, c.cell(c.old), c.cell(c.new), c.verdict()) for c in comparisons])


def table_of_simulations(comparisons):
    """Only what differs; empty where nothing does."""
    rows = []
    for comparison in comparisons:
        if comparison.verdict() not in (SIMULATED, SEARCHED):
            continue
        for name, old, new in comparison.rows():
            if old != new:
                rows.append((f"{comparison.run.name}: {name}", *simulated_cells(old, new), row_verdict(name, old, new)))
    header = ("simulated", "old", "new", "change", "old MiB", "new MiB", "same?")
    return table(header, rows) if rows else ""


def simulated_cells(old, new):
    (old_value, old_peak), (new_value, new_peak) = old or (None, None), new or (None, None)
    change = f"{100 * (new_value / old_value - 1):+.3f} %" if old_value and new_value is not None else ""
    return number(old_value, 4), number(new_value, 4), change, mebibytes(old_peak), mebibytes(new_peak)


def table_of_figures(comparisons):
    header = ("trained", "old MiB", "new MiB", "old ms/step", "new ms/step", "old planned", "new planned")
    rows = []
    for comparison in comparisons:
        both = (comparison.old, comparison.new)
        if comparison.run.is_training() and all(outcome.status == 0 for outcome in both):
            rows.append((comparison.run.name, *(mebibytes(o.printed.get("peak_bytes")) for o in both),
                         *(number(o.printed.get("step_ms"), 2) for o in both),
                         *(number(o.planning_seconds, 2) + " s" for o in both)))
    return table(header, rows)


def explanation(comparison):
    """How to do a run that failed by hand, and what the programs said."""
    lines = [f"{comparison.run.name}: {comparison.verdict()}"]
    for role, outcome in (("OLD", comparison.old), ("NEW", comparison.new)):
        lines += [f"  {role}  {shlex.join(arguments)}" for arguments in outcome.commands]
        status = "was not started" if outcome.status is None else f"exit status {outcome.status}"
        lines.append(f"       {status}: {outcome.lack(comparison.run) or outcome.message}")
    return "\n".join(lines)


def summary(comparisons, seconds):
    counts = collections.Counter(comparison.verdict() for comparison in comparisons)
    parts = ", ".join(f"{counts[verdict]} {meaning}" for verdict, meaning in MEANINGS.items() if counts[verdict])
    return f"{len(comparisons)} runs in {seconds:.0f} s: {parts}"


def print_tables(comparisons, options, seconds):
    print(table_of_runs(comparisons))
    simulations = table_of_simulations(comparisons)
    if simulations:
        print(f"\n{simulations}")
    if options.figures:
        print(f"\n{table_of_figures(comparisons)}")
    for comparison in comparisons:
        if fails(comparison, options.exact_simulations) and comparison.verdict() != SIMULATED:
            print(f"\n{explanation(comparison)}")
    print(f"\n{summary(comparisons, seconds)}")


def json_of_outcome(outcome):
    return {"status": outcome.status, "commands": outcome.commands, "message": outcome.message,
            "seconds": outcome.seconds, "planning_seconds": outcome.planning_seconds,
            "weights_hash": outcome.weights(), "peak_bytes": outcome.printed.get("peak_bytes"),
            "step_ms": outcome.printed.get("step_ms"), "rows": outcome.rows()}


def json_of(comparisons, options, seconds):
    runs = [{"name": c.run.name, "verdict": c.verdict(), "fails": fails(c, options.exact_simulations),
             "old": json_of_outcome(c.old), "new": json_of_outcome(c.new)} for c in comparisons]
    return json.dumps({"old": options.old, "new": options.new, "seconds": seconds, "runs": runs})


class Progress:
    """One line that is written over on a terminal, a line for each run elsewhere."""

    def __init__(self, count):
        self._count, self._done = count, 0
        self._is_terminal = sys.stderr.isatty()
        self._lock = threading.Lock()

    def show(self, comparison):
        with self._lock:
            self._done += 1
            seconds = comparison.old.seconds + comparison.new.seconds
            line = f"{self._done}/{self._count}  {comparison.run.name}: {comparison.verdict()} ({seconds:.1f} s)"
            print(f"\r\033[K{line}" if self._is_terminal else line, file=sys.stderr, flush=True,
                  end="" if self._is_terminal else "\n")

    def end(self):
        if self._is_terminal:
            print("\r\033[K", file=sys.stderr, end="", flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# The command.


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be at least 1")
    return value


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", nargs="?", help="path of the program that is right")
    parser.add_argument("new", metavar="NEW", nargs="?", help="path of the program that must do the same")
    parser.add_argument("--only", metavar="REGEX", default="", help="runs with a name that has this")
    parser.add_argument("--list", action="store_true", help="print the names and commands of the runs, and do none")
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="runs at a time; default: 1")
    parser.add_argument("--figures", action="store_true", help="print peak memory, step time and planning time as well")
    parser.add_argument("--exact-simulations", action="store_true", help="fail where a simulation differs")
    parser.add_argument("--time-limit", type=positive, default=600, metavar="SECONDS",
                        help="end a command that takes longer, which then failed; default: 600")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    if options.new is None and not options.list:
        parser.error("OLD and NEW are required: the paths of two programs")
    return options


def chosen_runs(pattern):
    try:
        runs = [run for run in all_runs() if re.search(pattern, run.name)]
    except re.error as error:
        raise BadUsage(f"--only {pattern}: it is no regular expression: {error}") from None
    if not runs:
        raise BadUsage(f"--only {pattern}: no run has such a name; --list prints all of them")
    return runs


def checked_path(text):
    """The path of a program, as one that does not depend on the folder or on PATH."""
    path = pathlib.Path(text).resolve()
    if not path.is_file():
        raise BadUsage(f"{text}: there is no such file; give the path of an overtake program")
    if not os.access(path, os.X_OK):
        raise BadUsage(f"{text}: it is not executable; give the path of an overtake program")
    return str(path)


def open_programs(options, folder, commands):
    programs = []
    for role, text in (("old", options.old), ("new", options.new)):
        program = Program(checked_path(text), folder / role, folder / "old", commands)
        if not program.knows_training():
            raise BadUsage(f"{text}: it is no overtake program: `{text} train --help` shows no help")
        programs.append(program)
    return programs


def say_what_is_left_out(program):
    left_out = [name for name in program.networks() if name not in NETWORKS]
    if left_out:
        print(f"compare_runs: no run has these networks of NEW: {', '.join(left_out)}", file=sys.stderr)


def compare(runs, programs, jobs, commands):
    """Does all runs, the old program before the new one, and returns what came of them in their order."""
    progress = Progress(len(runs))

    def compare_run(run):
        comparison = Comparison(run, *(program.do(run) for program in programs))
        progress.show(comparison)
        return comparison

    executor = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        return list(executor.map(compare_run, runs))
    finally:
        commands.close()
        executor.shutdown(cancel_futures=True)
        progress.end()


def run_comparison(options):
    runs = chosen_runs(options.only)
    if options.list:
        for run in runs:
            print(run.name, *run.commands, sep="\n    ")
        return 0
    begin = time.monotonic()
    commands = Commands(options.time_limit)
    with tempfile.TemporaryDirectory(prefix="overtake-compare-", ignore_cleanup_errors=True) as folder:
        programs = open_programs(options, pathlib.Path(folder), commands)
        say_what_is_left_out(programs[1])
        comparisons = compare(runs, programs, options.jobs, commands)
    seconds = time.monotonic() - begin
    if options.json:
        print(json_of(comparisons, options, seconds))
    else:
        print_tables(comparisons, options, seconds)
    return 1 if any(fails(comparison, options.exact_simulations) for comparison in comparisons) else 0


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    # Set for both: shells have SIGINT ignored by what they start in the background.
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_of_signal, interrupt)
    try:
        return run_comparison(read_options())
    except BadUsage as wrong:
        print(f"compare_runs: {wrong}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
