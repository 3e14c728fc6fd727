#!/usr/bin/env python3
"""What happens to files while real training saves: kills, savers of one name, readers, full and read-only disks, links.

    tests/faults/checkpoints.py build/release/overtake --kills 300 --savers 12 [--seed 1] [--json]

A run that nothing happens to, and that keeps all of its generations, says what every generation and the last weights
must be, to the bit. Then:
  - kills: a run with --keep 3 is killed (SIGKILL) at random moments, every other time in the middle of a save, and goes
    on from its checkpoint until it ends. After every kill, `overtake export` reads each generation on disk, with its
    checksums, and its tensors are those, to the bit; NAME.json never points to an older one than before; and a
    stranger's files stay. At the end the weights are the same, and three generations and nothing else are left.
  - savers: two runs with one name start together. One is refused, and names the other, which ends as if it were alone.
    Meanwhile `overtake export` reads, and always finds a whole generation.
  - disks: a full and a read-only one, at the start, in mid-run and at the end (as root, in a mount namespace of this
    script's own; left out elsewhere), and links to folders and files.
Exit code 1 where one of these does not hold.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from campaign import HANGS, Watch

STEPS, KEEP = 40, 3
TRAIN = ["train", "lenet", "--batch", "16", "--data", "synthetic:640", "--seed", "3", "--parts", "2", "--threads", "1",
         "--schedule", "in-order", "--json", "--steps", str(STEPS), "--save-every", "1"]
STRANGERS = ["run-notes.safetensors", "run-7-0123456789abcdef.safetensors", "run.json.partial-notes", "runs.json"]
GENERATION = re.compile(r"run-(\d+)-[0-9a-f]{16}\.safetensors")


class Run:
    """One `overtake`, with what it said."""

    def __init__(self, binary, arguments, folder):
        self.said_to = tempfile.TemporaryFile()  # not on the disk that is full
        environment = os.environ | {"TMPDIR": str(folder)}
        self.process = subprocess.Popen([binary, *arguments], stdin=subprocess.DEVNULL, stdout=self.said_to,
                                        stderr=subprocess.STDOUT, env=environment)

    def said(self):
        size = os.fstat(self.said_to.fileno()).st_size
        return os.pread(self.said_to.fileno(), size, 0).decode(errors="replace")

    def is_over(self):
        return self.process.poll() is not None

    def end(self):
        """The exit code; None of a run that hangs, and is killed."""
        watch = Watch()
        while not self.is_over():
            if watch.seconds() > HANGS:
                self.kill()
                return None
            time.sleep(0.002)
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()

    def hash(self):
        found = re.findall(r'"weights_hash":"([0-9a-f]+)"', self.said())
        return found[-1] if found else None


def tensors_of(path):
    """Of a safetensors file: what it says of them, and their bytes."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    header.pop("__metadata__")
    return header, raw[end:]


class Campaign:
    def __init__(self, options):
        self.binary, self.seed = str(pathlib.Path(options.binary).resolve()), options.seed
        self.scratch = pathlib.Path(options.scratch)
        self.violations, self.seconds = [], 0.0
        self.expected, self.hash = {}, None

    def wrong(self, where, what):
        self.violations.append(f"{where}: {what}")
        print(f"    VIOLATION: {where}: {what}", file=sys.stderr, flush=True)

    def check(self, holds, where, what):
        if not holds:
            self.wrong(where, what)
        return holds

    def new_folder(self, name):
        folder = self.scratch / f"{name}-{threading.get_ident()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def start(self, folder, more=(), resumes=False):
        save = ["--save", str(folder / "run")] + (["--resume", str(folder / "run")] if resumes else [])
        return Run(self.binary, [*TRAIN, *save, *more], self.scratch)

    def reads(self, checkpoint):
        """Empty, or what `overtake export` says against it."""
        done = subprocess.run([self.binary, "export", str(checkpoint), "-o", "/dev/null"], capture_output=True,
                              text=True, check=False)
        return "" if done.returncode == 0 else done.stderr

    def undisturbed(self):
        folder = self.scratch / "undisturbed"
        folder.mkdir()
        began = Watch()
        run = self.start(folder, ["--keep", "1000"])
        if run.end() != 0:
            raise SystemExit(f"undisturbed: {run.said()}")
        self.seconds, self.hash = began.seconds(), run.hash()
        for name in os.listdir(folder):
            if GENERATION.fullmatch(name):
                self.expected[self.step_of(name)] = tensors_of(folder / name)
        if set(self.expected) != set(range(1, STEPS + 1)):
            raise SystemExit(f"undisturbed: generations of steps {sorted(self.expected)} of {STEPS}")

    # ---- what must hold at any moment at which nobody saves

    @staticmethod
    def step_of(name):
        return int(GENERATION.fullmatch(name)[1])

    @staticmethod
    def generations(folder):
        return [name for name in os.listdir(folder) if GENERATION.fullmatch(name) and name not in STRANGERS]

    @staticmethod
    def newest(folder):
        try:
            return json.loads((folder / "run.json").read_text())["step"]
        except FileNotFoundError:
            return 0

    def check_disk(self, folder, where, before):
        """Returns the newest step."""
        names = self.generations(folder)
        for name in names:
            self.check(tensors_of(folder / name) == self.expected[self.step_of(name)], where, f"{name} is damaged")
        newest = self.newest(folder)
        self.check(newest >= before, where, f"at step {newest}, after step {before}")
        self.check(len(names) >= min(KEEP, newest), where, f"only {names} at step {newest}")
        for name in names + (["run"] if newest > 0 else []):
            if said := self.reads(folder / name):
                self.wrong(where, f"{name} cannot be read: {said}")
        self.check_strangers(folder, where)
        return newest

    def check_strangers(self, folder, where):
        for name in STRANGERS:
            path = folder / name
            self.check(path.exists() and path.read_text() == "precious", where, f"{name} of a stranger is gone")

    def check_end(self, run, folder, where):
        code = run.end()
        if not self.check(code == 0, where, f"exit {code}: {run.said()[-600:]}"):
            return
        self.check(run.hash() == self.hash, where, f"weights {run.hash()}, not {self.hash}")
        steps = sorted(self.step_of(name) for name in self.generations(folder))
        kept = list(range(STEPS - KEEP + 1, STEPS + 1))
        self.check(steps == kept, where, f"there are generations of steps {steps}")
        others = set(os.listdir(folder)) - set(self.generations(folder))
        self.check(others == set(STRANGERS) | {"run.json"}, where, f"there is {sorted(others)}")
        self.check_disk(folder, where, STEPS)

    @staticmethod
    def add_strangers(folder):
        for name in STRANGERS:
            (folder / name).write_text("precious")

    # ---- kills

    def kill_until_the_end(self, first, dice):
        """One run; returns how many kills hit it, and how many of them in the middle of a save."""
        folder = self.new_folder("kills")
        self.add_strangers(folder)
        kills = in_saves = newest = 0
        while True:
            where = f"kill {first + kills}"
            resumes = (folder / "run.json").exists()
            run = self.start(folder, ["--keep", str(KEEP)], resumes)
            if dice.random() < 0.5:
                is_saving = self.wait_for_save(run, folder, dice)
            else:
                is_saving, until, watch = False, dice.uniform(0, self.seconds * (STEPS - newest) / STEPS + 0.1), Watch()
                while not run.is_over() and watch.seconds() < until:
                    time.sleep(0.001)
            if run.is_over():
                self.check_end(run, folder, where)
                return kills, in_saves
            run.kill()
            kills += 1
            in_saves += is_saving
            newest = self.check_disk(folder, where, newest)
            print(f"{where}: {'in a save, ' if is_saving else ''}at step {newest}", file=sys.stderr, flush=True)

    @staticmethod
    def wait_for_save(run, folder, dice):
        """A random moment of one of the next saves."""
        number, was_saving, until = dice.randint(1, 8), False, dice.uniform(0, 0.004)
        while not run.is_over():
            is_saving = any(".partial-" in name for name in os.listdir(folder) if name not in STRANGERS)
            number -= is_saving and not was_saving
            was_saving = is_saving
            if is_saving and number <= 0:
                time.sleep(until)
                return True
        return False

    def kills(self, count, jobs):
        lock, all_kills, all_in_saves, runs = threading.Lock(), 0, 0, 0

        def work(number):
            nonlocal all_kills, all_in_saves, runs
            dice = random.Random(f"{self.seed}/{number}")
            while all_kills < count and not self.violations:
                kills, in_saves = self.kill_until_the_end(all_kills, dice)
                with lock:
                    all_kills, all_in_saves, runs = all_kills + kills, all_in_saves + in_saves, runs + 1

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, range(jobs)))
        return f"{all_kills} kills of {runs} runs, {all_in_saves} in the middle of a save"

    # ---- two savers, and readers

    def two_savers(self, number):
        dice = random.Random(f"{self.seed}/savers/{number}")
        where, folder = f"two savers {number}", self.new_folder("savers")
        self.add_strangers(folder)
        resumes = number % 2 == 1
        if resumes:  # both take up what a third one left
            run = self.start(folder, ["--keep", str(KEEP)])
            while self.newest(folder) < 3 and not run.is_over():
                time.sleep(0.001)
            run.kill()
        link = self.scratch / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        runs = [self.start(folder, ["--keep", str(KEEP)], resumes)]
        time.sleep(dice.choice([0, dice.uniform(0, self.seconds)]))
        runs.append(self.start(link if number % 4 > 1 else folder, ["--keep", str(KEEP)], resumes))
        reads = failures = 0
        while not all(run.is_over() for run in runs):
            if (folder / "run.json").exists():
                reads += 1
                if said := self.reads(folder / "run"):
                    failures += 1
                    self.wrong(where, f"a reader says: {said}")
        codes = [run.end() for run in runs]
        if resumes and codes == [0, 0] and f"finished at step {STEPS}" in runs[1].said():
            # It came when the other was through, and had nothing left to do.
            self.check_end(runs[0], folder, where)
            return reads, failures
        if not self.check(sorted(codes) == [0, 2], where, f"exit {codes}: {[run.said()[-300:] for run in runs]}"):
            return reads, failures
        winner, loser = sorted(runs, key=lambda run: run.end())
        said = loser.said()
        # Who comes when the other is through finds its checkpoint instead.
        is_named = f"process {winner.process.pid} on " in said or "there is a checkpoint of this name" in said
        self.check(is_named, where, f"the second is told: {said}")
        self.check_end(winner, folder, where)
        return reads, failures

    def savers(self, count):
        rows = [self.two_savers(number) for number in range(count)]
        return f"{count} times two savers, one refused each time, {sum(r for r, _ in rows)} reads beside them, " \
               f"{sum(f for _, f in rows)} of them in vain"

    # ---- links

    def links(self):
        where, folder = "links", self.new_folder("links")
        self.add_strangers(folder)
        link = self.scratch / "to-links"
        link.symlink_to(folder)
        run = self.start(link, ["--keep", str(KEEP)])
        while self.newest(folder) < 3 and not run.is_over():
            time.sleep(0.001)
        run.kill()
        self.check_disk(folder, where, 3)
        self.check_end(self.start(folder, ["--keep", str(KEEP)], resumes=True), folder, where)
        # A name that is a link to another run's checkpoint.
        other = self.new_folder("linked")
        (other / "run.json").symlink_to(folder / "run.json")
        before = (folder / "run.json").read_bytes()
        run = self.start(other)
        self.check(run.end() == 2 and "there is a checkpoint" in run.said(), where, run.said())
        run = self.start(other, ["--overwrite"])
        self.check(run.end() == 0, where, run.said())
        self.check((folder / "run.json").read_bytes() == before, where, "what a link points to was written")
        return "links: a folder behind one, and a checkpoint behind one, which stays"

    # ---- disks, in a mount namespace

    def disks(self):
        probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        if probe.returncode != 0:
            return "full and read-only disks are left out: no mount namespaces here; run as root"
        again = subprocess.run(["unshare", "-m", sys.executable, "-B", __file__, self.binary, "--disks-below",
                                str(self.scratch)], check=False)
        self.check(again.returncode == 0, "disks", "see above")
        return "a full and a read-only disk, at the start, in mid-run and at the end"

    def in_namespace(self):
        self.undisturbed()
        size = len(self.expected[STEPS][1])
        disk = self.scratch / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={7 * size}", "tmpfs", str(disk)], check=True)
        filler = disk / "filler"

        def fill():
            try:
                with open(filler, "ab", buffering=0) as file:
                    while file.write(bytes(4096)):
                        pass
            except OSError:
                pass  # it is full

        # The folder once more over itself: a file system on which a lock is held cannot be made read-only as a whole.
        runs, over = disk / "runs", []

        def cover():
            if not over:
                subprocess.run(["mount", "--bind", str(runs), str(runs)], check=True)
                subprocess.run(["mount", "-o", "remount,bind,ro", str(runs)], check=True)
                over.append(runs)

        def uncover():
            subprocess.run(["umount", str(over.pop())], check=True)

        self.disk(runs, "a full disk", fill, filler.unlink)
        self.disk(runs, "a read-only disk", cover, uncover)

    def spoil_until(self, run, spoil, holds):
        """Again and again: a save that is under way may free some of a full disk when it fails."""
        while not run.is_over() and not holds():
            run.process.send_signal(signal.SIGSTOP)
            spoil()
            run.process.send_signal(signal.SIGCONT)
            time.sleep(0.002)

    def disk(self, folder, where, spoil, mend):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.add_strangers(folder)
        keep = ["--keep", str(KEEP)]
        # In mid-run: it goes on, says so, and the saves afterwards are as if nothing had been.
        run = self.start(folder, keep)
        self.wait_for(run, lambda: self.newest(folder) >= 5)
        self.spoil_until(run, spoil, lambda: run.said().count("the next save tries again") >= 2)
        run.process.send_signal(signal.SIGSTOP)
        self.check_disk(folder, where, 5)
        mend()
        run.process.send_signal(signal.SIGCONT)
        self.check_end(run, folder, where)
        told = run.said().count("the next save tries again")
        self.check(told >= 2, where, f"told {told} times: {run.said()}")
        print(f"{where}: {told} saves failed and were told of, and the run ended well", file=sys.stderr, flush=True)
        # At the end: the last good checkpoint is named, and goes on.
        for path in folder.glob("run*"):
            if path.name not in STRANGERS:
                path.unlink()
        run = self.start(folder, keep)
        self.wait_for(run, lambda: self.newest(folder) >= 5)
        self.spoil_until(run, spoil, lambda: False)
        code, newest = run.end(), self.check_disk(folder, where, 5)
        self.check(code == 2 and f"step {STEPS} is not saved" in run.said() and
                   f"the last good one is of step {newest}" in run.said(), where, f"exit {code}: {run.said()}")
        self.check(run.hash() == self.hash, where, f"weights {run.hash()}")
        print(f"{where}: at the end it was told of, and step {newest} named", file=sys.stderr, flush=True)
        # At the start: nothing is trained that could not be saved. A full disk still takes an empty file.
        if where == "a read-only disk":
            run = self.start(folder, keep, resumes=True)
            self.check(run.end() == 2 and "Read-only" in run.said(), where, run.said())
        mend()
        self.check_end(self.start(folder, keep, resumes=True), folder, where)

    @staticmethod
    def wait_for(run, holds):
        while not holds() and not run.is_over():
            time.sleep(0.001)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--savers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs that are killed at a time")
    parser.add_argument("--json", action="store_true", help="what was done as JSON, as the last line")
    parser.add_argument("--disks-below", help=argparse.SUPPRESS)  # in a mount namespace, by this script itself
    options = parser.parse_args()
    options.scratch = tempfile.mkdtemp(prefix="overtake-checkpoints-", dir=options.disks_below)
    campaign = Campaign(options)
    try:
        if options.disks_below:
            campaign.in_namespace()
            return 1 if campaign.violations else 0
        campaign.undisturbed()
        parts = [campaign.disks(), campaign.links(), campaign.savers(options.savers),
                 campaign.kills(options.kills, options.jobs)]
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)
    print("\n".join(parts + [f"{len(campaign.violations)} violations"]))
    if options.json:
        print(json.dumps({"parts": parts, "violations": campaign.violations}))
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
