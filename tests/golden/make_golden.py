#!/usr/bin/env python3
"""Makes the golden files of this folder: what PyTorch computes in up to ten training steps. Run by hand, not in CI:

    tests/golden/make_golden.py            # needs torch, numpy, safetensors; writes all cases beside this script
    tests/golden/make_golden.py cnn_sgd    # only these

PyTorch computes in float64: the reference is then the mathematics, and the whole tolerance of the test is left to the
float32 of what is tested. Weights, inputs and labels are not stored: both sides compute them (golden_numbers.py), in
integer arithmetic and hence exactly, by the name of the tensor. Every step has a batch of its own. Files of a case:

    CASE.json         the model, its settings and the optimizer's; of every step the loss and the global norm of the
                      gradients (before clipping); the deviation of PyTorch's own float32 run from the float64 run, as
                      a measure of how well-conditioned the case is
    CASE.safetensors  "first/NAME", "last/NAME": the gradients of the first and the last step; "state/NAME": running
                      statistics after the last step

Large networks have no safetensors file but "sketches" in the JSON: of every gradient its norm and its dot products with
three vectors of uniform().
"""

import argparse
import json
import math
import pathlib
import sys

import numpy as np
import torch
from golden_numbers import INITIAL, OFF_THE_EDGE, ids, images, initial_weight, sketches
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "cpu"))
import torch_models  # noqa: E402

IMAGES = {"batch": 8, "channels": 1, "image": 28, "classes": 10, "width": 4}
LARGE_IMAGES = {"batch": 4, "channels": 3, "image": 64, "classes": 10}
DECODER = {"batch": 4, "sequence": 16, "vocabulary": 64, "width": 32, "heads": 4, "layers": 2}
RECURRENT = {"batch": 4, "sequence": 12, "vocabulary": 32, "width": 16, "hidden": 24, "layers": 2}
SGD = {"kind": "sgd", "learning_rate": 0.0625, "momentum": 0.9, "nesterov": False, "weight_decay": 5e-4, "clip_norm": 0}
ADAMW = {"kind": "adamw", "learning_rate": 2**-8, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01,
         "clip_norm": 1.0}  # fmt: skip
CASES = {  # model, settings, optimizer, initial weights, steps
    "cnn_sgd": ("cnn", IMAGES, SGD, INITIAL, 10),
    "cnn_nesterov": ("cnn", IMAGES, SGD | {"nesterov": True}, INITIAL, 10),
    "transformer_adamw": ("transformer", DECODER, ADAMW, INITIAL, 10),
    "lstm_sgd": ("lstm", RECURRENT, SGD, INITIAL, 10),
    "gru_sgd": ("gru", RECURRENT, SGD | {"clip_norm": 0.3}, INITIAL, 10),
    "resnet18_sgd": ("resnet-18", LARGE_IMAGES, SGD | {"learning_rate": 2**-10}, OFF_THE_EDGE, 5),
}
SKETCHED = {"resnet-18"}


def batch_of(step, model, s):
    if torch_models.takes_tokens(model):
        shape = (s["batch"], s["sequence"])
        batch = ids("tokens", step, shape, s["vocabulary"]), ids("labels", step, shape, s["vocabulary"])
    else:
        batch = images(step, s["batch"], s["image"], s["channels"]), ids("labels", step, (s["batch"],), s["classes"])
    return tuple(torch.from_numpy(x) for x in batch)


def make_optimizer(parameters, o):
    if o["kind"] == "sgd":
        return torch.optim.SGD(parameters, lr=o["learning_rate"], momentum=o["momentum"], nesterov=o["nesterov"],
                               weight_decay=o["weight_decay"])  # fmt: skip
    return torch.optim.AdamW(parameters, lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                             weight_decay=o["weight_decay"])  # fmt: skip


def train(name, settings, optimizer_settings, initial, steps, dtype):
    """Losses and gradient norms of every step, gradients of the first and last, and the states at the end."""
    model = torch_models.build(name, settings).to(dtype).train()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(torch.from_numpy(initial_weight(key, tuple(p.shape), initial)))
    optimizer = make_optimizer(model.parameters(), optimizer_settings)
    losses, norms, gradients = [], [], {}
    for step in range(steps):
        inputs, labels = batch_of(step, name, settings)
        optimizer.zero_grad()
        loss = torch_models.loss_of(model, inputs if inputs.dtype == torch.int64 else inputs.to(dtype), labels)
        loss.backward()
        losses.append(loss.item())
        norms.append(math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters())))
        if step in (0, steps - 1):
            now = {key: p.grad.double().numpy().copy() for key, p in model.named_parameters()}
            gradients["first" if step == 0 else "last"] = now
        if optimizer_settings["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer_settings["clip_norm"])
        optimizer.step()
    states = {k: v.double().numpy() for k, v in model.named_buffers() if not k.endswith("num_batches_tracked")}
    return losses, norms, gradients, states


def largest_deviation(a, b):
    """Over all gradients of a step: the largest difference, relative to the largest element of the tensor."""
    return max(np.abs(a[k] - b[k]).max() / np.abs(b[k]).max() for k in b)


def make(case):
    name, settings, optimizer, initial, steps = CASES[case]
    losses, norms, gradients, states = train(name, settings, optimizer, initial, steps, torch.float64)
    losses32, _, gradients32, _ = train(name, settings, optimizer, initial, steps, torch.float32)
    deviation = {
        "losses": max(abs(a / b - 1) for a, b in zip(losses32, losses)),
        "first": largest_deviation(gradients32["first"], gradients["first"]),
        "last": largest_deviation(gradients32["last"], gradients["last"]),
    }
    print(f"{case}: losses {losses[0]:.4f} .. {losses[-1]:.4f}, norms {min(norms):.3g} .. {max(norms):.3g};", end=" ")
    print("PyTorch float32 deviates by", ", ".join(f"{k} {v:.1e}" for k, v in deviation.items()))
    if optimizer["clip_norm"] > 0:
        assert max(norms) > optimizer["clip_norm"], "the case does not clip"
    golden = {"model": name, "settings": settings, "optimizer": optimizer, "initial": initial, "steps": steps,
              "losses": losses, "norms": norms, "float32_deviation": deviation}  # fmt: skip
    if name in SKETCHED:
        golden["sketches"] = {w: sketches(gs) for w, gs in gradients.items()}
    else:
        tensors = {f"{w}/{k}": g for w, gs in gradients.items() for k, g in gs.items()}
        tensors |= {f"state/{k}": v for k, v in states.items()}
        path = HERE / f"{case}.safetensors"
        save_file({k: v.astype(np.float32) for k, v in tensors.items()}, path)
        path.chmod(0o644)
    (HERE / f"{case}.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    cases = parser.parse_args().cases
    if unknown := set(cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for case in cases or CASES:
        make(case)


if __name__ == "__main__":
    main()
