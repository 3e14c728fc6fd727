#!/usr/bin/python3
"""Runs every example of the help texts, of README.md and of docs/: each must exit with 0.

Usage: examples_test.py OVERTAKE SOURCE_DIR [--only TEXT].

An example is a command in an indented or fenced block of a page, or below "Example:" in a help text, that begins with
`overtake` or `build/release/overtake`. Those of one page run one after the other in one folder, which has the files of
prepare() from the beginning, so that an example may use what one above it wrote. They are shortened:
- `train` takes two steps, `bench` one, with one thread; what else would take long is in SHORTER.
- Fashion-MNIST is a few images of noise.
- What writes files may replace those of an example above: `--overwrite`.
- a network too large to be trained while somebody waits runs on the null device, which computes nothing, with a batch
  of four.
What cannot be run is skipped and listed with its reason: what OTHER_PLACES says, and blocks below a comment
`<!-- not run: REASON -->` in the page.
"""
import argparse
import gzip
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time

LONGEST = 600  # seconds after which an example counts as hung
FENCE, SKIPPED = "```", re.compile(r"<!-- not run: (.*) -->")
# What an example needs that is not here.
OTHER_PLACES = [
    (r"\bcuda\b", "a GPU"),
    (r"--size |\bsrun\b|^host\d", "several hosts"),
    (r"\.\.\.|\[--|\bNAME\b", "a pattern, not a command"),
]
WRITERS = ("train", "bench", "plan", "simulate", "report", "export", "validate")
COMPUTED = ("train", "bench", "plan")
# Networks that are trained in full; all others are too large.
SMALL = ("cnn", "lenet", "ffnn", "net.onnx", "transformer")
NOT_COMPUTED = {"--device": "null", "--batch": "4"}
SHORTER = {
    "train": {"--steps": "2", "--plan-seconds": "0.1", "--threads": "1"},
    "bench": {"--steps": "1", "--warm": "0", "--plan-seconds": "0.1", "--threads": "1"},
    "simulate": {"--search-tries": "50"},
    "plan": {"--search-tries": "50"},
}


def npy(dtype, shape, data):
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def prepare(folder, overtake, source):
    """The files that examples take from elsewhere: a text, a model of PyTorch's with data, weights, a trace."""
    (folder / "README.md").write_bytes((source / "README.md").read_bytes())
    (folder / "torch.json").write_text('[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 10, "dur": 30}]')
    onnx = source / "tests/golden/onnx/groupnorm_cnn.onnx"  # of images [3, 32, 32] and 10 classes
    (folder / "net.onnx").write_bytes(onnx.read_bytes())
    weights = [((i * 37) % 101 - 50) / 500 for i in range(16_000)]
    (folder / "groupnorm_cnn.bin").write_bytes(struct.pack(f"<{len(weights)}f", *weights))
    count, size = 128, 128 * 3 * 32 * 32
    (folder / "x.npy").write_bytes(npy("<f4", (count, 3, 32, 32), struct.pack(f"<{size}f", *((i * 7) % 13 / 13 for i in range(size)))))
    (folder / "pixels.npy").write_bytes(npy("|u1", (count, 32, 32, 3), bytes(i % 251 for i in range(size))))
    (folder / "y.npy").write_bytes(npy("<i8", (count,), struct.pack(f"<{count}q", *(i % 10 for i in range(count)))))
    if folder.name == "models.md":
        run = ["train", "resnet-18", "--set", "image=64,classes=10", "--batch", "4", "--data", "synthetic:4", "--device",
               "null", "--steps", "1", "--save", "start"]
        for words in (run, ["export", "start", "-o", "start.safetensors"]):
            subprocess.run([overtake, *words], cwd=folder, check=True, capture_output=True)


def few_images(folder):
    """Fashion-MNIST of noise, and little of it: what is read takes long to evaluate."""
    folder.mkdir(parents=True)
    for split, count in (("train", 256), ("t10k", 64)):
        pixels, labels = bytes(i * i % 251 for i in range(count * 784)), bytes(i % 10 for i in range(count))
        for name, header, data in ((f"{split}-images-idx3", (0x803, count, 28, 28), pixels),
                                   (f"{split}-labels-idx1", (0x801, count), labels)):
            with gzip.open(folder / f"{name}-ubyte.gz", "wb") as file:
                file.write(struct.pack(f">{len(header)}I", *header) + data)


class Example:
    def __init__(self, page, line, text, reason=""):
        self.page, self.line, self.reason = page, line, reason
        self.text = text.split("  #")[0].strip()  # without what is said of it
        for pattern, what in OTHER_PLACES:
            if not self.reason and re.search(pattern, self.text):
                self.reason = "it needs " + what if not what.startswith("a pattern") else what

    def words(self):
        """As they are run."""
        words = shlex.split(self.text, comments=True)[1:]
        if words[0] == "launch":
            at = words.index("--") + 1
            return words[:at] + shortened(words[at:])
        return shortened(words)


def with_option(words, name, value):
    words = list(words)
    if name in words:
        words[words.index(name) + 1] = value
        return words
    return words + [name, value]


def shortened(words):
    operands = [w for w in words[1:2] if not w.startswith("-")]
    if any(w.endswith(".plan") for w in operands):
        return words  # it has been searched for
    if "--collective" in words:
        return words  # nothing is searched for
    if words[0] in WRITERS:
        words = [*words, "--overwrite"]
    for name, value in SHORTER.get(words[0], {}).items():
        words = with_option(words, name, value)
    if words[0] in COMPUTED and "--machine" not in words and operands and operands[0] not in SMALL:
        for name, value in NOT_COMPUTED.items():
            words = with_option(words, name, value)
    return words


def examples_of_page(path):
    found, reason, in_fence, text, first = [], "", False, "", 0
    was_block = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith(FENCE):
            in_fence = not in_fence
        is_block = in_fence or line.startswith("    ")
        if SKIPPED.search(line):
            reason = SKIPPED.search(line).group(1)
        elif was_block and not is_block and line.strip():
            reason = ""
        was_block = is_block or (was_block and not line.strip())
        if not is_block:
            continue
        first = first if text else number
        text += line.strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        if re.match(r"(host\d\$ |[A-Z_]+=\S+ )?(srun \S+ \S+ )?(build/\w+/)?overtake ", text):
            found.append(Example(path.name, first, text, reason))
        text = ""
    return found


def examples_of_help(overtake):
    commands = re.findall(r"^  (\w+) ", subprocess.run([overtake, "--help"], capture_output=True, text=True,
                                                        check=True).stdout.split("Subcommands:")[1], re.M)
    assert "train" in commands and len(commands) > 8, commands
    found = []
    for command in commands:
        text = subprocess.run([overtake, command, "--help"], capture_output=True, text=True, check=True).stdout
        lines = [line.strip() for line in text.split("Example:")[1].splitlines() if line.startswith("  overtake ")]
        found += [Example("help", command, line) for line in lines]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("overtake")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    overtake = str(pathlib.Path(arguments.overtake).resolve())
    pages = [arguments.source / "README.md", *sorted((arguments.source / "docs").glob("*.md"))]
    examples = examples_of_help(overtake) + [e for page in pages for e in examples_of_page(page)]
    faults, skipped, count = [], [], 0
    with tempfile.TemporaryDirectory(prefix="overtake-examples-") as root:
        few_images(pathlib.Path(root) / "data" / "fashion-mnist")
        environment = {**os.environ, "OVERTAKE_DATA": f"{root}/data", "XDG_CACHE_HOME": f"{root}/cache"}
        for page in dict.fromkeys(e.page for e in examples):
            folder = pathlib.Path(root) / page
            folder.mkdir()
            prepare(folder, overtake, arguments.source)
            for example in (e for e in examples if e.page == page):
                where = f"{example.page}:{example.line}"
                if example.reason:
                    skipped.append(f"{where}: {example.text}: {example.reason}")
                    continue
                if arguments.only not in f"{where} {example.text}":
                    continue
                words, begin = example.words(), time.monotonic()
                try:
                    run = subprocess.run([overtake, *words], cwd=folder, capture_output=True, text=True, timeout=LONGEST,
                                         env=environment)
                    code, said = run.returncode, run.stderr
                except subprocess.TimeoutExpired:
                    code, said = "none", f"it took more than {LONGEST} s"
                count += 1
                print(f"{time.monotonic() - begin:6.1f} s  {where}: overtake {shlex.join(words)}", flush=True)
                if code != 0:
                    faults.append(f"{where}: {example.text}\n  run as: overtake {shlex.join(words)}\n"
                                  f"  exit code {code}: {said.strip()}")
    print("\nnot run:\n  " + "\n  ".join(skipped))
    for fault in faults:
        print("\nFAILED " + fault)
    print(f"\n{count} examples, {len(faults)} failed, {len(skipped)} not run")
    return 1 if faults or (count < 40 and not arguments.only) else 0


if __name__ == "__main__":
    sys.exit(main())
