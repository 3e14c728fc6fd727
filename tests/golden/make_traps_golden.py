#!/usr/bin/env python3
"""Makes traps/*: some of compare_exports.py's files, for the tests that run without PyTorch. By hand, not in CI:

tests/golden/make_traps_golden.py     # needs what compare_exports.py needs

MODEL.onnx  as PyTorch's exporter wrote it, less the texts about source lines
MODEL.json  "form" and "batch"; either "refused", texts that the error must have, or what PyTorch computes in
            float64: "optimizer", the "losses" of three steps on one batch, and "updates", a sketch of the end less
            the start of every weight that moves
"""

import json
import logging
import pathlib
import tempfile
import warnings

import onnx
import torch
from exports import FAMILIES
from exports.forms import File, export
from exports.reference import MOMENTUM, Reference, data_of
from golden_numbers import sketches
from make_onnx_golden import without_texts

CASES = {name: case for family in FAMILIES for name, case in family.items()}
FOLDER = pathlib.Path(__file__).resolve().parent / "traps"
# What importers read of a node: from which module and which operator it comes.
NOTES = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node", "pkg.torch.onnx.class_hierarchy")

# Model, form, and what an error must have if it is one. The models are vectors or tokens: no images.
TRAPS = [
    ("tied_transposed", "documented", None),
    ("untied_copy", "documented", None),
    ("padding_idx", "documented", None),
    ("buffer_sinusoids", "documented", None),
    ("buffer_like_parameter", "documented", None),
    ("frozen_layer", "documented", None),
    ("detach", "documented", None),
    ("relu6_at_the_bound", "documented", None),
    ("large_value", "documented", None),
    ("equal_raw_matrices", "dynamo-plain", None),
    ("learned_sinusoids", "dynamo", ["positions"]),
    ("batch_mean", "dynamo-plain", ["batch"]),
    ("buffer_moving_average", "dynamo-plain", ["centre"]),
]


def facts_of(case, form, what, refused):
    facts = {"form": form, "batch": case.batch, "loss": case.loss}
    if refused:
        return facts | {"refused": refused}
    reference = Reference(case, what.state, data_of(case))
    moved = {name: u for name, u in reference.truth.updates.items() if u.any()}
    optimizer = {"kind": "sgd", "learning_rate": reference.rate, "momentum": MOMENTUM, "nesterov": False,
                 "weight_decay": 0, "clip_norm": 0}  # fmt: skip
    return facts | {"optimizer": optimizer, "losses": reference.truth.losses, "updates": sketches(moved)}


def make(name, form, refused):
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        what = export(case, [form], pathlib.Path(folder))[form]
        if not isinstance(what, File):
            raise SystemExit(f"{name}: {what}")
        proto = onnx.load(what.path)
    metadata = [(m.key, m.value) for m in proto.metadata_props]
    graph_metadata = [(m.key, m.value) for m in proto.graph.metadata_props]
    without_texts(proto, NOTES)
    for part, kept in ((proto, metadata), (proto.graph, graph_metadata)):
        for key, value in kept:
            part.metadata_props.add(key=key, value=value)
    (FOLDER / f"{name}.onnx").write_bytes(proto.SerializeToString())
    text = json.dumps(facts_of(case, form, what, refused), separators=(",", ":")).replace('],"', '],\n"')
    (FOLDER / f"{name}.json").write_text(text + "\n")
    print(f"{name}, {form}: {(FOLDER / f'{name}.onnx').stat().st_size} bytes", flush=True)


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for trap in TRAPS:
        make(*trap)


if __name__ == "__main__":
    main()
