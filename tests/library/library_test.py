#!/usr/bin/env python3
"""What someone who uses Overtake as a library does, with Debian's own tools and nothing from the network.

    library_test.py outside_project|embedding --build BUILD --source SOURCE --cmake CMAKE --compiler CXX --generator GENERATOR

outside_project: installs BUILD into a temporary folder, moves it, and builds and runs a small project against it, found
by CMake's find_package and, where pkg-config is installed, by pkg-config.
embedding: configures a project that takes SOURCE in by add_subdirectory, and looks at what is forced on it: nothing.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = "6 tasks"


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


def outside_project(arguments, work: pathlib.Path) -> None:
    # What is installed must not depend on where it was installed to.
    run(arguments.cmake, "--install", arguments.build, "--prefix", work / "first")
    prefix = work / "prefix"
    (work / "first").rename(prefix)

    said = run(prefix / "bin" / "overtake", "--version")
    expect("the installed program runs", said.startswith("overtake "), said)

    configure(arguments, HERE / "outside", work / "outside", f"-DCMAKE_PREFIX_PATH={prefix}")
    run(arguments.cmake, "--build", work / "outside")
    said = run(work / "outside" / "outside")
    expect("a project finds Overtake by find_package", EXPECTED in said, said)

    if shutil.which("pkg-config") is None:
        print("pkg-config is not installed: not tried")
        return
    (folder,) = prefix.glob("**/pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "overtake", env=os.environ | {"PKG_CONFIG_PATH": str(folder)}).split()
    program = work / "by_pkg_config"
    run(arguments.compiler, "-std=c++20", HERE / "outside" / "main.cpp", *flags, "-o", program)
    said = run(program, env=os.environ | {"LD_LIBRARY_PATH": str(folder.parent)})
    expect("a program finds Overtake by pkg-config", EXPECTED in said, said)


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
