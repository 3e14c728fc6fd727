#!/usr/bin/env python3
"""Faults in real training, at random moments of all its phases.

    tests/faults/campaign.py build/release/overtake --faults 200 [--seed 1] [--json]

Each fault hits a training of a small network by several processes: on one host, under `overtake launch`, or, as root,
on hosts made of network namespaces. After it:
  - all that ran ends by itself, and no process is left;
  - the exit status is not 0, unless training ended before; every survivor names the rank at fault;
  - the checkpoint is whole, or there is none yet: training is taken up on another layout with the same micro-batches,
    and ends with the weights of a run that nothing happened to;
  - no temporary files pile up.
Exit code 1 where one of these does not hold. Links are left alone where network namespaces are not allowed.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import glob
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import test_cluster  # noqa: E402

STEPS = 100
TIME_OUT = 3  # seconds, of the ranks
HANGS = 180  # seconds; what has not ended by then never will. No limit of speed: a busy machine may take its time.
TRAIN = ["train", "lenet", "--batch", "16", "--data", "synthetic:640", "--seed", "3", "--parts", "2", "--json",
         "--steps", str(STEPS), "--save-every", "7", "--time-out", str(TIME_OUT)]
# Layouts of one family add up gradients in the same order: processes and flags.
FAMILIES = {
    "one sum": [(1, "--micro-batches 4"), (2, "--pp 2 --micro-batches 4 --pipeline zb-h1"),
                (4, "--dp 4 --reduce by-layer"), (4, "--pp 4 --micro-batches 4"),
                (4, "--dp 4 --reduce first-k --first-k 2")],
    "two sums": [(1, "--micro-batches 4 --gradient-groups 2"), (2, "--dp 2 --micro-batches 2 --reduce scatter-gather"),
                 (4, "--dp 2 --pp 2 --micro-batches 2"), (2, "--dp 2 --micro-batches 2 --reduce by-layer"),
                 (4, "--dp 2 --pp 2 --micro-batches 2 --reduce by-layer")]}
PHASES = ["start", "meeting", "planning", "training", "saving", "evaluating", "end"]
ON_ONE_HOST = ["kill rank", "kill launcher", "stop rank", "terminate launcher", "terminate rank", "Ctrl-C"]
ON_HOSTS = ["cut link", "stall link", "kill rank"]
NAMES_RANK = {"kill rank", "stop rank", "cut link", "stall link"}
MARK = "OVERTAKE_FAULT_CAMPAIGN"  # in the environment of all that is started


def processes(mark):
    """All that carry this mark, and are not merely waiting to be buried."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if f"{MARK}={mark}\0".encode() in file.read():
                        found.append(int(entry))
            except OSError:
                pass
    return found


class Watch:
    """Counts the time in which this process ran: whoever stops all of us is not at fault."""

    def __init__(self):
        self.spent, self.last = 0.0, time.monotonic()

    def seconds(self):
        now = time.monotonic()
        self.spent += min(now - self.last, 1.0)
        self.last = now
        return self.spent


class Launched:
    """A job under `overtake launch`."""

    def __init__(self, folder, mark, workers, command):
        self.workers, self.temporary = workers, folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.out, self.err = folder / "out", folder / "err"
        environment = os.environ | {"TMPDIR": str(self.temporary), MARK: mark}
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [command[0], *(["launch", "-n", str(workers), "--"] if workers > 1 else []), *command[1:]],
                env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                preexec_fn=self.settle)

    @staticmethod
    def settle():
        """In the new process."""
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it does not outlive this script
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which shells have ignored by what they start in the background

    def said(self):
        return self.err.read_text(errors="replace") + self.out.read_text(errors="replace")

    def cards(self):
        return len(glob.glob(f"{self.temporary}/*/*/world/rank-*"))

    def rank(self, number):
        """Its process; None where it is not there yet, or not any more."""
        launcher = self.process.pid
        try:
            for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
                if f"\0OVERTAKE_RANK={number}\0".encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes():
                    return int(child)
        except OSError:
            pass
        return None

    def strike(self, fault, number):
        target = self.rank(number) if fault.endswith("rank") else self.process.pid
        if target is None:
            return False
        what = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}.get(fault.split()[0])
        try:
            os.killpg(target, signal.SIGINT) if fault == "Ctrl-C" else os.kill(target, what)
        except ProcessLookupError:
            return False
        return True

    def codes(self):
        """None while it runs."""
        code = self.process.poll()
        return None if code is None else [128 - code if code < 0 else code]

    def texts(self):
        return [self.said()]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def files_left(self):
        return len(os.listdir(self.temporary))


class OnHosts:
    """A job on hosts of a test cluster, one rank each."""

    def __init__(self, mark, workers, command):
        self.workers = workers
        self.cluster = test_cluster.Cluster(hosts=workers)
        self.cluster.__enter__()
        self.job = self.cluster.start(command, {MARK: mark})

    def said(self):
        return "".join(self.job.ranks[0].lines)

    def cards(self):
        return len(glob.glob(f"{self.cluster._folder}/*/world/rank-*"))

    def strike(self, fault, number):
        if fault == "kill rank":
            self.job.ranks[number].kill()
        else:
            {"cut link": self.cluster.cut, "stall link": self.cluster.stall}[fault](number)
        return True

    def codes(self):
        results = [rank.poll() for rank in self.job.ranks]
        return None if None in results else [r.code for r in results]

    def texts(self):
        return [rank.result.output for rank in self.job.ranks]

    def close(self):
        self.cluster.close()

    def files_left(self):
        return 0


class Campaign:
    def __init__(self, options):
        self.binary = str(pathlib.Path(options.binary).resolve())
        self.seed = options.seed
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="overtake-faults-"))
        self.has_hosts = True
        try:
            test_cluster.check_rights()
        except test_cluster.NotAllowed as error:
            self.has_hosts = False
            print(f"links are left alone: {error}", file=sys.stderr)
        self.mark = f"{os.getpid()}"
        self.hashes, self.times = {}, {}

    def command(self, layout, folder, resumes=False):
        save = ["--save", str(folder / "run")] + (["--resume", str(folder / "run")] if resumes else [])
        return [self.binary, *TRAIN, *layout[1].split(), *save]

    def undisturbed(self):
        """What the weights must be, and how long each phase takes here."""
        for family, layouts in FAMILIES.items():
            for layout in layouts:
                folder = self.scratch / "undisturbed"
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                run = Launched(folder, self.mark, layout[0], self.command(layout, folder))
                began, seen = Watch(), {}
                while run.codes() is None:
                    seen.setdefault(self.phase_of(run, folder), began.seconds())
                    time.sleep(0.001)
                seen["over"] = began.seconds()
                if run.codes() != [0]:
                    raise SystemExit(f"undisturbed, {layout}: exit {run.codes()}\n{run.said()}")
                hash_ = self.hash_of(run)
                if self.hashes.setdefault(family, hash_) != hash_:
                    raise SystemExit(f"undisturbed, {layout}: weights {hash_}, not {self.hashes[family]}")
                planned, trained = seen.get("training", seen["over"]), seen.get("evaluating", seen["over"])
                self.times[layout] = {"planning": planned - seen.get("planning", 0), "training": trained - planned,
                                      "evaluating": seen["over"] - trained, "start": 0.1, "meeting": 0.05,
                                      "end": 0.003}

    @staticmethod
    def hash_of(run):
        found = re.findall(r'"weights_hash":"([0-9a-f]+)"', run.said())
        return found[-1] if found else None

    def phase_of(self, run, folder):
        said = run.said()
        if '"weights_hash"' in said:
            return "end"
        if f"step {STEPS}/{STEPS}" in said:
            return "evaluating"
        if " planned\n" in said:
            return "saving" if self.is_saving(folder) else "training"
        cards = run.cards()
        return "planning" if cards >= run.workers else "meeting" if cards > 0 else "start"

    def wait_for_phase(self, run, folder, phase):
        """Its beginning; False when the run is over before."""
        while run.codes() is None:
            if PHASES.index(self.phase_of(run, folder)) >= PHASES.index(phase):
                return True
            time.sleep(0.002)
        return False

    def wait_for_save(self, run, folder, dice):
        """The middle of one of the first saves."""
        number, was_saving = dice.randint(1, 8), False
        self.wait_for_phase(run, folder, "training")  # before that a file is tried out
        while run.codes() is None:
            is_saving = self.is_saving(folder)
            number -= is_saving and not was_saving
            if is_saving and number <= 0:
                return True
            was_saving = is_saving
        return False

    @staticmethod
    def is_saving(folder):
        return any(".partial-" in name for name in os.listdir(folder))

    def fault(self, index):
        dice = random.Random(f"{self.seed}/{index}")
        late = 0
        while True:
            row = self.attempt(index, dice)
            if row["hits"] or row["violations"] or late == 20:
                return row | {"late": late}
            late += 1  # training was over before; once more

    def attempt(self, index, dice):
        on_hosts = self.has_hosts and dice.random() < 0.35
        fault = dice.choice(ON_HOSTS if on_hosts else ON_ONE_HOST)
        phase = PHASES[index % len(PHASES)]
        family = dice.choice(list(FAMILIES))
        layout = dice.choice([layout for layout in FAMILIES[family] if layout[0] > 1])
        number = dice.randrange(layout[0])
        folder = self.scratch / f"{threading.get_ident()}"
        shutil.rmtree(folder, ignore_errors=True)
        saves = folder / "saves"
        saves.mkdir(parents=True)
        mark = f"{self.mark}-{index}"
        command = self.command(layout, saves)
        row = {"index": index, "layout": layout[1], "fault": fault, "rank": number, "phase": phase, "violations": []}
        wrong = row["violations"].append
        run = OnHosts(mark, layout[0], command) if on_hosts else Launched(folder, mark, layout[0], command)
        try:
            self.strike(run, saves, row, self.times[layout], dice)
            row["codes"], row["text"] = run.codes(), run.texts()
            self.judge(run, row)
        finally:
            run.close()
        if left := self.left(mark):
            wrong(f"processes are left: {left}")
        # A signal is the end of a launcher that has not begun to supervise yet, or has ended that.
        may_stay = fault == "kill launcher" or (row["phase"] in ("start", "end") and not fault.endswith("rank"))
        if run.files_left() > (1 if may_stay else 0):
            wrong(f"{run.files_left()} temporary folders are left")
        self.take_up(row, folder, saves, family, layout, mark, dice)
        if not row["violations"]:
            del row["text"]
        return row

    def strike(self, run, saves, row, times, dice):
        hits = False
        if row["phase"] == "saving":
            hits = self.wait_for_save(run, saves, dice) and run.strike(row["fault"], row["rank"])
        elif self.wait_for_phase(run, saves, row["phase"]):
            delay = Watch()
            until = dice.uniform(0, times[row["phase"]])
            while run.codes() is None and delay.seconds() < until:
                time.sleep(0.001)
            row["phase"] = self.phase_of(run, saves)
            while run.codes() is None and not (hits := run.strike(row["fault"], row["rank"])):
                time.sleep(0.001)  # that rank is not there yet
        row["hits"] = hits
        watch = Watch()
        while run.codes() is None:
            if watch.seconds() > HANGS:
                row["violations"].append(f"hangs: not over after {HANGS} s; its processes: {processes(self.mark)}")
                break
            time.sleep(0.002)
        row["seconds"] = round(watch.seconds(), 2)

    def judge(self, run, row):
        wrong = row["violations"].append
        codes, fault = row["codes"], row["fault"]
        if codes is None:
            return
        if all(code == 0 for code in codes):
            row["hits"] = False  # it came too late to do anything
            return
        if not row["hits"]:
            wrong(f"failed without a fault: {codes}")
        if fault in NAMES_RANK:
            # Before all are connected, the two ends of a broken link look alike.
            named = f"rank {row['rank']}" if row["phase"] not in ("start", "meeting") else r"rank \d+"
            for rank, text in enumerate(row["text"]):
                struck = len(codes) > 1 and rank == row["rank"]
                if struck and fault == "kill rank":
                    continue
                ended_well = codes[rank] == 0
                if not ended_well and not re.search((r"rank \d+" if struck else named) + r"\b", text):
                    wrong(f"rank {rank} or its launcher does not name {named}")
        if fault == "kill rank" and len(codes) == 1 and codes != [137]:
            wrong(f"exit {codes}, not 137")
        expected = {"kill launcher": 137, "terminate launcher": 143, "terminate rank": 130, "Ctrl-C": 130}.get(fault)
        if expected is not None and codes != [expected] and not (fault == "terminate rank" and codes == [143]):
            wrong(f"exit {codes}, not {expected}")

    @staticmethod
    def left(mark):
        watch = Watch()
        while (found := processes(mark)) and watch.seconds() < HANGS:
            time.sleep(0.02)
        return found

    def take_up(self, row, folder, saves, family, layout, mark, dice):
        """Goes on from the checkpoint, if there is one, to the end, on another layout."""
        wrong = row["violations"].append
        other = dice.choice([choice for choice in FAMILIES[family] if choice != layout])
        resumes = (saves / "run.json").exists()
        step = json.loads((saves / "run.json").read_text())["step"] if resumes else 0
        row["saved"] = step
        run = Launched(folder, mark, other[0], self.command(other, saves, resumes))
        watch = Watch()
        try:
            while run.codes() is None and watch.seconds() < HANGS:
                time.sleep(0.005)
            if run.codes() != [0]:
                wrong(f"taken up at step {step} with {other[1]}: exit {run.codes()}: {run.said()[-600:]}")
            elif self.hash_of(run) != self.hashes[family]:
                wrong(f"taken up at step {step} with {other[1]}: weights {self.hash_of(run)}")
        finally:
            run.close()
        names = sorted(os.listdir(saves))
        if step < STEPS and not (len(names) == 2 and names[1] == "run.json"):
            wrong(f"beside the checkpoint lies: {names}")
        if other[0] > 1 and run.files_left() > 0:  # what a killed launcher leaves is the next one's to remove
            wrong("temporary folders of a killed launcher stay")


def tell(row, place):
    what = "hit" if row["hits"] else "too late"
    print(f"{place} #{row['index']} {row['fault']} {row['rank']} in {row['phase']}: {what}, over after "
          f"{row['seconds']} s with {row['codes']}, saved at {row['saved']}; {row['layout']}",
          file=sys.stderr, flush=True)
    for violation in row["violations"]:
        print(f"    VIOLATION: {violation}", file=sys.stderr)
    if row["violations"]:
        print("    " + "\n    ".join("\n".join(row["text"]).splitlines()[-15:]), file=sys.stderr, flush=True)


def table(rows):
    """Faults that hit, by kind and phase, and the seconds until all was over."""
    lines = [f"{'fault':20}" + "".join(f"{phase:>11}" for phase in PHASES) + "   median    worst"]
    for fault in dict.fromkeys(ON_ONE_HOST + ON_HOSTS):
        hits = [row for row in rows if row["fault"] == fault and row["hits"]]
        if hits:
            counts = collections.Counter(row["phase"] for row in hits)
            seconds = [row["seconds"] for row in hits]
            lines.append(f"{fault:20}" + "".join(f"{counts[phase]:11}" for phase in PHASES) +
                         f"  {statistics.median(seconds):5.1f} s  {max(seconds):5.1f} s")
    hits, late = sum(row["hits"] for row in rows), sum(row["late"] for row in rows)
    lines.append(f"{hits} faults, and {late} that came too late; {sum(bool(r['violations']) for r in rows)} violations")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first one, to repeat some")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    parser.add_argument("--json", action="store_true", help="all rows as JSON, as the last line")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, test_cluster.stop)
    campaign = Campaign(options)
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    rows = []
    try:
        campaign.undisturbed()
        for row in pool.map(campaign.fault, range(options.first, options.first + options.faults)):
            rows.append(row)
            tell(row, f"{len(rows):3}/{options.faults}")
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(campaign.scratch, ignore_errors=True)
    print(table(rows))
    if options.json:
        print(json.dumps({"rows": rows}))
    return 1 if any(row["violations"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
