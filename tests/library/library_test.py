#!/usr/bin/env python3
"""What someone who uses Overtake as a library does, with Debian's own tools and nothing from the network.

    library_test.py outside_project|embedding --build BUILD --source SOURCE --cmake CMAKE --compiler CXX --generator GENERATOR

outside_project: installs BUILD into a temporary folder, moves it, and builds a small project against it, found by CMake's
find_package and, where pkg-config is installed, by pkg-config. The project trains a network with a schedule of its own; its
weights must be those of the same network trained by the installed program.
embedding: configures a project that takes SOURCE in by add_subdirectory, and looks at what is forced on it: nothing.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What outside/main.cpp trains on.
SAMPLES, BATCH, PIXELS, CLASSES, SEED = 48, 8, 28 * 28, 10, 7


def run(*command, **options) -> str:
    """What the command prints; where it fails, all it said ends the test."""
    words = [str(word) for word in command]
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit(f"library_test: `{' '.join(words)}` failed with {done.returncode}:\n{done.stdout}")
    return done.stdout


def expect(what: str, is_right: bool, text: str) -> None:
    if not is_right:
        sys.exit(f"library_test: {what}:\n{text}")
    print(f"{what}: yes")


def configure(arguments, source: pathlib.Path, build: pathlib.Path, *variables: str) -> str:
    return run(arguments.cmake, "-S", source, "-B", build, "-G", arguments.generator, "-DCMAKE_BUILD_TYPE=Release",
               f"-DCMAKE_CXX_COMPILER={arguments.compiler}", *variables)


def philox(key: int, low: int, high: int) -> list[int]:
    """Philox 4x32-10: four random words of 32 bits for a key and the two halves of a counter."""
    mask = (1 << 32) - 1
    counter = [low & mask, low >> 32, high & mask, high >> 32]
    keys = [key & mask, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(p1 >> 32) ^ counter[1] ^ keys[0], p1 & mask, (p0 >> 32) ^ counter[3] ^ keys[1], p0 & mask]
        keys = [(keys[0] + 0x9E3779B9) & mask, (keys[1] + 0xBB67AE85) & mask]
    return counter


def order_of_first_epoch(samples: int, seed: int) -> list[int]:
    """In which order `overtake train` takes the samples of its data."""
    order = list(range(samples))
    for left in range(samples, 1, -1):
        words = philox(seed, left, 0)
        other = (words[0] | words[1] << 32) % left
        order[left - 1], order[other] = order[other], order[left - 1]
    return order


def write_npy(path: pathlib.Path, form: str, shape: tuple[int, ...], numbers: bytes) -> None:
    header = str({"descr": form, "fortran_order": False, "shape": shape})
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + numbers)


def hash_by_command_line(program: pathlib.Path, work: pathlib.Path) -> str:
    """Of the weights of outside/main.cpp's network, trained on the same samples by `overtake train`."""
    pixels = [i * 37 % 128 / 128 for i in range(SAMPLES * PIXELS)]
    images, labels = [b""] * SAMPLES, [b""] * SAMPLES
    for i, place in enumerate(order_of_first_epoch(SAMPLES, SEED)):
        images[place] = struct.pack(f"<{PIXELS}f", *pixels[i * PIXELS:(i + 1) * PIXELS])
        labels[place] = struct.pack("<i", i % CLASSES)
    write_npy(work / "x.npy", "<f4", (SAMPLES, 1, 28, 28), b"".join(images))
    write_npy(work / "y.npy", "<i4", (SAMPLES,), b"".join(labels))
    data = ",".join([str(work / "x.npy"), str(work / "y.npy")] * 2)  # to train on, and to test with
    said = run(program, "train", "lenet", "--batch", BATCH, "--data", f"npy:{data}", "--epochs", 1, "--parts", 2, "--seed",
               SEED, "--schedule", "in-order", "--json")
    return json.loads(said.splitlines()[-1])["weights_hash"]


def expect_trained(what: str, said: str, weights_hash: str) -> None:
    facts = dict(line.split(maxsplit=1) for line in said.splitlines())
    expect(f"{what}: its own schedule is run", facts["order"] == "beside", said)
    expect(f"{what}: its own cost model predicts the step", int(facts["predicted_ns"]) > 0, said)
    expect(f"{what}: it has the weights of `overtake train`", facts["weights_hash"] == weights_hash, said + weights_hash)


def outside_project(arguments, work: pathlib.Path) -> None:
    # What is installed must not depend on where it was installed to.
    run(arguments.cmake, "--install", arguments.build, "--prefix", work / "first")
    prefix = work / "prefix"
    (work / "first").rename(prefix)

    said = run(prefix / "bin" / "overtake", "--version")
    expect("the installed program runs", said.startswith("overtake "), said)

    configure(arguments, HERE / "outside", work / "outside", f"-DCMAKE_PREFIX_PATH={prefix}")
    run(arguments.cmake, "--build", work / "outside")
    weights_hash = hash_by_command_line(prefix / "bin" / "overtake", work)
    expect_trained("a project that found Overtake by find_package", run(work / "outside" / "outside"), weights_hash)
    run(work / "outside" / "errors")

    if shutil.which("pkg-config") is None:
        print("pkg-config is not installed: not tried")
        return
    (folder,) = prefix.glob("**/pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "overtake", env=os.environ | {"PKG_CONFIG_PATH": str(folder)}).split()
    program = work / "by_pkg_config"
    run(arguments.compiler, "-std=c++20", HERE / "outside" / "main.cpp", *flags, "-o", program)
    said = run(program, env=os.environ | {"LD_LIBRARY_PATH": str(folder.parent)})
    expect_trained("a program that found Overtake by pkg-config", said, weights_hash)


def embedding(arguments, work: pathlib.Path) -> None:
    build = work / "embedding"
    configure(arguments, HERE / "embedding", build, f"-DSOURCE_DIR={arguments.source}")
    commands = json.loads((build / "compile_commands.json").read_text())
    own = [c for c in commands if c["file"].endswith("outside/main.cpp")]
    expect("the project compiles a file of its own", len(own) == 1, str(len(own)))
    for flag in ("-Werror", "-Wconversion", "-march="):
        expect(f"no {flag} is forced on it", flag not in own[0]["command"], own[0]["command"])
        if flag != "-Wconversion":
            forced = [c["command"] for c in commands if flag in c["command"]]
            expect(f"no {flag} in Overtake's own sources", not forced, "\n".join(forced[:1]))
    expect("its sources cannot see Overtake's", f"-I{arguments.source}/src" not in own[0]["command"], own[0]["command"])
    for folder in ("src/cli", "tests", "bench", "examples"):
        compiled = [c["file"] for c in commands if c["file"].startswith(f"{arguments.source}/{folder}/")]
        compiled = [file for file in compiled if file != own[0]["file"]]
        expect(f"nothing of {folder} is compiled", not compiled, "\n".join(compiled))
    run(arguments.cmake, "--install", build, "--prefix", work / "prefix")
    expect("Overtake is not installed along with it", not (work / "prefix").exists(), "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["outside_project", "embedding"])
    for name in ("build", "source", "cmake", "compiler", "generator"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="overtake-library-") as work:
        globals()[arguments.part](arguments, pathlib.Path(work).resolve())


if __name__ == "__main__":
    main()
