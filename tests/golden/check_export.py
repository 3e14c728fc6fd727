#!/usr/bin/env python3
"""Checks weights that Overtake trained and exported: PyTorch must take them, and must have come to the same. By hand:

    tests/golden/check_export.py NAME FILE.safetensors

NAME is a case of onnx_cases.py; FILE has its weights after the ten steps of the golden test. They are loaded into
the PyTorch model with load_state_dict(strict=True); every tensor, and the outputs in evaluation mode, are compared with
those of PyTorch's own float32 training. Exits with 1 if one differs by more than a thousandth of its largest element.
"""

import argparse
import json
import logging
import warnings

import torch
from make_onnx_golden import FOLDER, batch_of, model_of, train
from onnx_cases import CASES
from safetensors.torch import load_file
from torch_setup import logits_of

TOLERANCE = 1e-3


def state_dict_of(path, name, model):
    """The file's tensors under PyTorch's names and in its shapes, tied ones under each of their names. Tables of
    indices that the model's constructor fills are the model's own: nothing trains them, and ONNX has them as constants.
    """
    rows = {row[0]: row for row in json.loads((FOLDER / f"{name}.json").read_text())["weights"]}
    tensors = {}
    for key, tensor in load_file(path).items():
        _, torch_name, shape, transposed, _ = rows.get(key, (key, key, tensor.shape, False, -1))
        tensors[torch_name] = (tensor.T if transposed else tensor).reshape(shape)
    own = model.state_dict()
    for key, tensor in own.items():
        if not tensor.is_floating_point() and not key.endswith("num_batches_tracked"):
            tensors.setdefault(key, tensor)
        ties = [k for k, t in own.items() if t.data_ptr() == tensor.data_ptr() and tensor.numel() and k in tensors]
        if key not in tensors and ties:
            tensors[key] = tensors[ties[0]]
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=CASES)
    parser.add_argument("file")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    case = CASES[arguments.name]
    model = model_of(case)
    model.load_state_dict(state_dict_of(arguments.file, arguments.name, model), strict=True)
    reference = train(case, torch.float32)[0]
    expected = reference.state_dict()
    worst = ("", 0.0)
    for key, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        error = ((tensor - expected[key]).abs().max() / expected[key].abs().max()).item()
        if not error <= worst[1]:  # a NaN is worse than anything
            worst = (key, error)
    inputs = batch_of(0, case, case.batch)[0]
    with torch.no_grad():
        ours, theirs = logits_of(model.eval(), inputs), logits_of(reference.eval(), inputs)
    output = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(
        f"{arguments.name}: loaded strictly; the largest difference is {worst[1]:.1e}, in {worst[0]}; outputs {output:.1e}"
    )
    raise SystemExit(0 if worst[1] <= TOLERANCE and output <= TOLERANCE else 1)


if __name__ == "__main__":
    main()
