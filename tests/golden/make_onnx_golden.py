#!/usr/bin/env python3
"""Makes onnx/*: networks exported from PyTorch, and what PyTorch computes in ten training steps. By hand, not in CI:

    tests/golden/make_onnx_golden.py           # needs torch, torchvision, transformers, onnx, onnxscript
    tests/golden/make_onnx_golden.py swin      # only these of onnx_cases.py

    NAME.onnx  as PyTorch's exporter wrote it, less the texts about source lines. Weights of more than 64 numbers are
               external data in NAME.bin, which is not kept: a test writes it from what the JSON says
    NAME.json  "weights": of every initializer that is a weight or a running statistic [its name, the name in PyTorch,
               the shape in PyTorch, whether the file has it transposed, its offset in NAME.bin or -1];
               "batch" to train with, "initial" weights and "optimizer"; the "losses" of ten steps in training mode;
               "norm" and "gradients" of the first step: their norm and their sketches, by the names in PyTorch;
               "states" after the last step: sketches of the running statistics. PyTorch computes in float64; beside it
               is how far its float32 is off
"""

import argparse
import contextlib
import io
import json
import logging
import math
import pathlib
import warnings
from functools import partial

import numpy as np
import onnx
import torch
from golden_numbers import global_norm, ids, images, largest_deviation, rounded, sketches
from onnx_cases import CASES, CLASSES, SEQUENCE, VOCABULARY
from torch_setup import (deviation_under_noise, float32_variants, gradients_of, is_well_conditioned, loss_of, plain,
                         start, start_states)  # fmt: skip

FOLDER = pathlib.Path(__file__).resolve().parent / "onnx"
STEPS = 10
SMALLEST_EXTERNAL = 65  # elements
ALIGNMENT = 64
# From which module and which operator a node comes: tells what a weight is that lost its name.
ORIGIN = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node")


def batch_of(step, case, batch):
    if case.image:
        inputs = images(step, batch, case.image, 3)
    else:
        inputs = ids("tokens", step, (batch, SEQUENCE), VOCABULARY)
    if case.image or not case.per_position:
        return inputs, ids("labels", step, (batch,), CLASSES)
    return inputs, ids("labels", step, (batch, SEQUENCE), VOCABULARY)


def model_of(case, dtype=torch.float32):
    return start_states(start(plain(case.build()), case.initial, dtype))


def export(case, path):
    inputs, _ = batch_of(0, case, case.export_batch)
    args = (torch.from_numpy(inputs),)
    name = "input" if case.image else "input_ids"
    model = model_of(case).train(case.train_mode)
    options = {"opset_version": case.opset, "input_names": [name], "output_names": ["logits"]}
    if case.exporter == "torchscript":
        mode = torch.onnx.TrainingMode
        if case.symbolic_batch:
            options["dynamic_axes"] = {name: {0: "batch"}, "logits": {0: "batch"}}
        if case.keep_weights:
            options |= {"training": mode.TRAINING if case.train_mode else mode.PRESERVE, "do_constant_folding": False}
        torch.onnx.export(model, args, path, dynamo=False, **options)
    else:
        if case.symbolic_batch:
            options["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(model, args, path, dynamo=True, optimize=not case.keep_weights, external_data=False,
                          verbose=False, **options)  # fmt: skip


def without_texts(proto, kept_notes):
    """Drops stack traces and what else only people read: most of a file."""
    graph = proto.graph
    for part in [proto, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer]:
        kept = [(p.key, p.value) for p in part.metadata_props if p.key in kept_notes]
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
        for key, value in kept:
            part.metadata_props.add(key=key, value=value)
    del graph.value_info[:]


def reset_states(proto, model):
    """Tracing in training mode moves the running statistics; this puts them back."""
    states = {k: b for k, b in model.named_buffers() if k.endswith(("running_mean", "running_var"))}
    for t in proto.graph.initializer:
        if t.name in states:
            t.CopyFrom(onnx.numpy_helper.from_array(states[t.name].numpy(), t.name))


def weights_in(proto, model):
    """[initializer, name, shape, transposed] of every initializer that holds a tensor of the model, found by value."""
    by_value = {}
    shared = dict(model.named_parameters()) | dict(model.named_buffers())  # tied ones once
    for name, tensor in shared.items():
        if tensor.dtype == torch.float32 and name in model.state_dict():
            values = tensor.detach().numpy()
            by_value.setdefault(values.tobytes(), (name, values.shape, False))
            if values.ndim == 2:
                by_value.setdefault(np.ascontiguousarray(values.T).tobytes(), (name, values.shape, True))
    found = []
    for t in proto.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT:
            hit = by_value.get(onnx.numpy_helper.to_array(t).tobytes())
            if hit:
                found.append([t.name, hit[0], list(hit[1]), hit[2]])
    names = [name for _, name, _, _ in found]
    lost = {name for name, t in shared.items() if t.is_floating_point() and name in model.state_dict()} - set(names)
    if lost:
        raise SystemExit(f"the export folded {sorted(lost)}")
    return found


def move_out(proto, weights, location):
    """Large weights become external data; appends to each of `weights` where."""
    tensors = {t.name: t for t in proto.graph.initializer}
    end = 0
    for row in weights:
        if math.prod(row[2]) < SMALLEST_EXTERNAL:
            row.append(-1)
            continue
        t, length = tensors[row[0]], 4 * math.prod(row[2])
        t.ClearField("raw_data")
        t.ClearField("float_data")
        t.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, "offset": end, "length": length}.items():
            t.external_data.add(key=key, value=str(value))
        row.append(end)
        end = -(-(end + length) // ALIGNMENT) * ALIGNMENT


def train(case, dtype):
    """The trained model, its losses, and the first step's gradients."""
    model = model_of(case, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=case.learning_rate, momentum=0.9)
    losses, first = [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, *batch_of(step, case, case.batch))
        loss.backward()
        first = first or gradients_of(model)
        losses.append(loss.item())
        optimizer.step()
    return model, losses, first


def states_of(model):
    return {k: b.double().numpy() for k, b in model.named_buffers() if k.endswith(("running_mean", "running_var"))}


def deviation_of(case, losses, gradients):
    worst = {"losses": 0.0, "gradients": 0.0}
    for variant in float32_variants():
        with variant:
            _, losses32, gradients32 = train(case, torch.float32)
        worst["losses"] = max(worst["losses"], *(abs(a / b - 1) for a, b in zip(losses32, losses)))
        worst["gradients"] = max(worst["gradients"], largest_deviation(gradients32, gradients))
    return worst


def make(name):
    case = CASES[name]
    path = FOLDER / f"{name}.onnx"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        export(case, path)
    proto = onnx.load(path)
    without_texts(proto, () if case.keep_weights else ORIGIN)
    reset_states(proto, model_of(case))
    weights = weights_in(proto, model_of(case))
    move_out(proto, weights, f"{name}.bin")
    path.write_bytes(proto.SerializeToString())
    model, losses, gradients = train(case, torch.float64)
    deviation = deviation_of(case, losses, gradients)
    noise = deviation_under_noise(partial(model_of, case), *batch_of(0, case, case.batch), gradients)
    optimizer = {"kind": "sgd", "learning_rate": case.learning_rate, "momentum": 0.9, "nesterov": False,
                 "weight_decay": 0, "clip_norm": 0}  # fmt: skip
    golden = {"exporter": case.exporter, "opset": case.opset, "train_mode": case.train_mode,
              "exported_batch": None if case.symbolic_batch else case.export_batch, "batch": case.batch,
              "initial": case.initial, "optimizer": optimizer, "losses": losses,
              "norm": rounded(global_norm(gradients)),
              "float32_deviation": {k: float(f"{v:.2g}") for k, v in deviation.items()}, "weights": weights,
              "gradients": sketches(gradients), "states": sketches(states_of(model))}  # fmt: skip
    text = json.dumps(golden, separators=(",", ":"))
    for end in ('],"', '],['):
        text = text.replace(end, end[:2] + "\n" + end[2:])
    path.with_suffix(".json").write_text(text + "\n")
    print(f"{name}: {case.exporter} {case.opset}, {len(proto.graph.node)} nodes, {len(weights)} weights "
          f"({sum(row[3] for row in weights)} transposed, {sum(row[4] >= 0 for row in weights)} external), "
          f"{path.stat().st_size / 1024:.0f} + {path.with_suffix('.json').stat().st_size / 1024:.0f} KB, losses "
          f"{losses[0]:.4f} .. {losses[-1]:.4f}; PyTorch's float32 is off by",
          ", ".join(f"{k} {v:.1e}" for k, v in deviation.items()), f"and under noise {noise:.1e}",
          flush=True)  # fmt: skip
    if not is_well_conditioned(deviation, noise):
        print(f"{name}: NOT WELL-CONDITIONED")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    cases = parser.parse_args().cases
    if unknown := set(cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in cases or CASES:
        make(name)


if __name__ == "__main__":
    main()
