#!/usr/bin/env python3
"""Writes the seeds of the fuzzers for what is neither ONNX nor safetensors, with the help of the program itself.

    python3 tests/fuzz/make_file_seeds.py build/release/overtake    # into tests/fuzz/corpus/

All are of the smallest networks there are. A seed called bad_* must be refused.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).parent / "corpus"
TINY = "ffnn --set width=2,image=2,channels=1,classes=2,layers=1".split()
TENSORS_HASH = "@HASH@"  # of the tensors that targets.h puts beside a checkpoint, and fills in here


class Program:
    """Runs the program in a folder that is removed at the end."""

    def __init__(self, path):
        self.path = pathlib.Path(path).resolve()
        self.folder = tempfile.TemporaryDirectory()
        self.at = pathlib.Path(self.folder.name)

    def run(self, *arguments):
        subprocess.run([self.path, *arguments], cwd=self.at, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def bytes(self, name):
        return (self.at / name).read_bytes()


def write(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def npy(descr, shape, data, order="False", version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".ljust(53).encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def npy_seeds():
    write("npy", "f4.npy", npy("<f4", "(2, 2)", struct.pack("<4f", 1, -2, 0.5, 1e30)))
    write("npy", "f8.npy", npy("<f8", "(3,)", struct.pack("<3d", 1, float("nan"), 1e300)))
    write("npy", "u1.npy", npy("|u1", "(1, 2, 3)", bytes(range(6))))
    write("npy", "i4.npy", npy("<i4", "(2,)", struct.pack("<2i", -5, 7), version=2))
    write("npy", "i8.npy", npy("<i8", "()", struct.pack("<q", 1 << 40)))
    write("npy", "empty.npy", npy("<i8", "(0, 3)", b""))
    write("npy", "bad_order.npy", npy("<f4", "(2, 2)", bytes(16), order="True"))
    write("npy", "bad_big_endian.npy", npy(">f4", "(2,)", bytes(8)))
    write("npy", "bad_short.npy", npy("<f4", "(1000000, 1000000)", bytes(8)))


def checkpoint_seeds(program):
    program.run("train", *TINY, "--batch", "2", "--data", "synthetic:16", "--steps", "2", "--schedule", "in-order",
                "--threads", "1", "--save", "run")
    saved = json.loads(program.bytes("run.json"))
    saved.pop("checksum", None)  # those of version 2 have none
    saved["version"] = 2
    saved["tensors"] = {"file": "tensors.safetensors", "bytes": 88, "hash": TENSORS_HASH}

    def seed(name, **changes):
        write("checkpoint", name + ".json", json.dumps({**saved, **changes}, separators=(",", ":")))

    seed("whole")
    seed("first_version", version=1)
    seed("no_loss", loss=None, step=0)
    seed("names", settings={"weight_names": {"remove": "fc", "add": "head"}, "parts": 2})
    seed("no_settings", settings={})
    seed("bad_settings", settings={"parts": "two"})
    seed("bad_names", settings={"weight_names": {"remove": 1, "add": ""}})
    seed("bad_step", step=-1)
    seed("bad_place", tensors={"file": "../tensors.safetensors", "hash": TENSORS_HASH})
    seed("bad_hash", tensors={"file": "tensors.safetensors", "hash": "0"})
    tensors = next(program.at.glob("run*.safetensors")).read_bytes()
    header = json.loads(tensors[8:8 + struct.unpack("<Q", tensors[:8])[0]])
    begin, end = header["overtake.network"]["data_offsets"]
    data = tensors[8 + struct.unpack("<Q", tensors[:8])[0]:]
    write("network", "ffnn.json", data[begin:end])


def network_seeds(program):
    small = {"lstm": "width=2,hidden=2,layers=1,vocabulary=4,sequence=2", "lenet": "image=12,classes=2",
             "transformer": "width=2,heads=1,layers=1,sequence=2,vocabulary=4", "cnn": "width=1,image=8"}
    for name, settings in small.items():
        program.run("plan", name, "--set", settings, "--batch", "1", "--machine", "p3.8xlarge", "--schedule", "in-order",
                    "-o", "network.plan")
        model = json.loads(program.bytes("network.plan"))["model"]
        write("network", name + ".json", json.dumps(model, separators=(",", ":")))
    model["tasks"][0][6] = [9999]
    write("network", "bad_reads.json", json.dumps(model, separators=(",", ":")))


def plan_seeds(program):
    machine = ["--machine", "p3.8xlarge"]
    for name, flags in {"one": ["--batch", "2", "--schedule", "in-order"], "lanes": ["--batch", "2"],
                        "replicas": ["--batch", "4", "--dp", "2"],
                        "pipeline": ["--batch", "4", "--pp", "2", "--micro-batches", "2"],
                        "both": ["--batch", "8", "--dp", "2", "--pp", "2", "--micro-batches", "2"]}.items():
        program.run("plan", *TINY, *machine, *flags, "-o", "a.plan", "--overwrite")
        plan = json.loads(program.bytes("a.plan"))
        plan["version"] = "@VERSION@"  # targets.h puts the program's own in its place
        write("plan", name + ".plan", json.dumps(plan, separators=(",", ":")))
    plan["devices"] = [77]
    write("plan", "bad_devices.plan", json.dumps(plan, separators=(",", ":")))


def trace_seeds(program):
    program.run("simulate", *TINY, "--batch", "4", "--machine", "p3.8xlarge", "--dp", "2", "--steps", "1", "--trace",
                "a.json")
    write("trace", "simulated.json", program.bytes("a.json"))
    program.run("train", *TINY, "--batch", "2", "--data", "synthetic:4", "--steps", "1", "--epochs", "1", "--schedule",
                "in-order", "--threads", "1", "--trace", "b.json")
    write("trace", "trained.json", program.bytes("b.json"))
    span = {"ph": "X", "pid": 1, "tid": "a", "name": "conv", "cat": "gpu", "ts": 1, "dur": 2.5}
    opened = [{"ph": "B", "pid": 1, "tid": 2, "name": "f", "ts": 1}, {"ph": "E", "pid": 1, "tid": 2, "ts": 4}]
    counter = {"ph": "C", "pid": 1, "tid": 2, "name": "live bytes", "ts": 1, "args": {"weights": 8, "rest": 9}}
    names = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "python"}}
    write("trace", "array.json", json.dumps([span]))
    write("trace", "open.json", json.dumps({"traceEvents": opened + opened[:1], "displayTimeUnit": "ms"}))
    write("trace", "counter.json", json.dumps({"traceEvents": [names, span, counter, {"ph": "i", "ts": 3}]}))
    write("trace", "bad_empty.json", "[]")
    write("trace", "bad_duration.json", json.dumps([{**span, "dur": -1}]))


def chakra_seeds(program):
    between = b"----"  # targets.h cuts there
    program.run("simulate", "--synthetic", "stages=2,micro=1,blocks=2", "--machine", "p3.8xlarge", "--chakra-out", "p")
    write("chakra", "pipeline.et", program.bytes("p.0.et") + between + program.bytes("p.1.et"))
    write("chakra", "bad_one_of_two.et", program.bytes("p.0.et"))
    program.run("simulate", *TINY, "--batch", "4", "--machine", "p3.8xlarge", "--dp", "2", "--steps", "1", "--chakra-out",
                "d")
    write("chakra", "replicas.et", program.bytes("d.0.et") + between + program.bytes("d.1.et"))
    program.run("simulate", "--synthetic", "stages=1,micro=1,blocks=1", "--machine", "p3.8xlarge", "--chakra-out", "s")
    write("chakra", "single.et", program.bytes("s.0.et"))
    program.run("simulate", "--synthetic", "stages=1,micro=2,blocks=2", "--machine", "p3.8xlarge", "--chakra-out", "m")
    write("chakra", "micro_batches.et", program.bytes("m.0.et"))


def profile_seeds(program):
    kept = {"format": 3, "key": "key", "in_order_ns": 60, "alone_ns": [10, 20, 30], "load": [1, 0.5, 0.25],
            "joint_ns": []}
    write("profile", "kept.json", json.dumps(kept))
    write("profile", "kept_joint.json", json.dumps({**kept, "joint_ns": [1, 0, 2]}))
    write("profile", "bad_kept.json", json.dumps({**kept, "load": [1]}))
    for name, network in {"step": TINY, "lenet": ["lenet", "--set", "image=12,classes=2"]}.items():
        program.run("simulate", *network, "--batch", "1", "--machine", "p3.8xlarge", "--measure", "cpu", "--save-profile",
                    "p.json")
        step = json.loads(program.bytes("p.json"))
        write("profile", name + ".json", json.dumps(step, separators=(",", ":")))
    write("profile", "bad_times.json", json.dumps({**step, "ns": [1]}, separators=(",", ":")))


def spec_seeds():
    write("spec", "train.toml", '# A run.\nmodel = "cnn"\nset = "width=4"\nbatch = 8\nlr = 0.05\nnesterov = true\n')
    write("spec", "lists.toml", 'model = "a.onnx"\nfreeze = ["features.", "stem"]\nskip_pass = ["fuse"]\nseed = 7\n')
    write("spec", "seed.toml", 'seed = "18446744073709551615"\nmemory_cap = "2G"\n')
    write("spec", "devices.toml", 'dp = 2\npp = 2\nmicro_batches = 4\npipeline = "search"\nmachine = "dgx-h100:4"\n')
    write("spec", "empty.toml", "")
    write("spec", "bad_field.toml", 'modle = "cnn"\n')
    write("spec", "bad_type.toml", "lr = 1979-05-27\n")
    write("spec", "bad_bounds.toml", "momentum = nan\n")


def machine_seeds():
    device = '[device.gpu]\nf32 = "15 TFLOP/s"\nmemory = [{ name = "HBM", capacity = "16 GB", bandwidth = "900 GB/s" }]\nsms = 80\n'
    link = '[[link]]\nbetween = {}\nkind = "{}"\nbandwidth = "{}"\nlatency = "{}"\n'
    pair = device + "[node.a]\ndevices = { gpu = 2 }\n" + link.format('["a/gpu", "a/gpu"]', "NVLink", "25 GB/s", "1 us")
    write("machine", "pair.toml", 'name = "pair"\n' + pair)
    write("machine", "switch.toml", device + "[node.a]\ncount = 2\ndevices = { gpu = 2 }\n[node.a.switch.host]\n[switch.top]\n"
          + link.format('["a/gpu", "a/host"]', "PCIe", "12 GB/s", "1 us")
          + link.format('["a/host", "top"]', "Ethernet", "10 Gb/s", "15 us"))
    write("machine", "single.toml", device + "[node.a]\ndevices = { gpu = 1 }\n")
    write("machine", "indices.toml", device + "[node.a]\ndevices = { gpu = 3 }\n"
          + link.format('[["a/gpu.0", "a/gpu.1"], ["a/gpu.1", "a/gpu.2"], ["a/gpu.0", "a/gpu.2"]]', "NVLink", "25 GB/s", "1 us"))
    write("machine", "rails.toml", device + "[node.a]\ncount = 2\ndevices = { gpu = 2 }\n[switch.rail]\ncount = 2\n"
          "[switch.spine]\n" + link.format('["a/gpu", "rail"]', "InfiniBand", "50 GB/s", "2 us").rstrip()
          + '\nwiring = "rail"\n' + link.format('["rail", "spine"]', "InfiniBand", "100 GB/s", "1 us"))
    write("machine", "bad_end.toml", pair.replace("a/gpu", "b/gpu"))
    write("machine", "bad_alone.toml", device + "[node.a]\ndevices = { gpu = 2 }\n")


def main():
    program = Program(sys.argv[1])
    npy_seeds()
    checkpoint_seeds(program)
    network_seeds(program)
    plan_seeds(program)
    trace_seeds(program)
    chakra_seeds(program)
    profile_seeds(program)
    spec_seeds()
    machine_seeds()


if __name__ == "__main__":
    main()
