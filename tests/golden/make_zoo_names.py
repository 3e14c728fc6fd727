#!/usr/bin/env python3
"""Makes zoo_names.json: how the zoo's networks name and shape their tensors in PyTorch. Run by hand, not in CI:

    tests/golden/make_zoo_names.py    # needs torch, torchvision, timm, transformers; downloads nothing

Of every network the number of trained numbers, of tensors, and a hash of all lines "NAME [SHAPE]" in sorted order
(FNV-1a, 64 bits). The tensors are the parameters, shared ones once, and the running statistics.
tests/unit/zoo_test.cpp compares the zoo with it; where the two differ, `--print NETWORK` prints PyTorch's lines.
"""

import argparse
import json
import pathlib
import sys
from collections import OrderedDict

import timm
import torch
import torchvision
from torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "cpu"))
import torch_models  # noqa: E402


def ffnn():
    widths = [28 * 28, 256, 256]
    layers = [(f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1])) for i in range(2)]
    return nn.Sequential(OrderedDict(layers + [("head", nn.Linear(widths[-1], 10))]))


def lenet():
    layers = {"conv1": nn.Conv2d(1, 6, 5, padding=2), "conv2": nn.Conv2d(6, 16, 5), "fc1": nn.Linear(400, 120),
              "fc2": nn.Linear(120, 84), "fc3": nn.Linear(84, 10)}  # fmt: skip
    return nn.ModuleDict(layers)


def resnet_cifar(blocks):
    """He et al. 2015, section 4.2; its shortcuts have no weights."""

    def block(inputs, width):
        return nn.ModuleDict({"conv1": torch_models.conv(inputs, width, 3), "bn1": nn.BatchNorm2d(width),
                              "conv2": torch_models.conv(width, width, 3), "bn2": nn.BatchNorm2d(width)})  # fmt: skip

    net = nn.ModuleDict({"conv1": torch_models.conv(3, 16, 3), "bn1": nn.BatchNorm2d(16)})
    for stage, (inputs, width) in enumerate([(16, 16), (16, 32), (32, 64)]):
        net[f"layer{stage + 1}"] = nn.Sequential(*(block(width if i else inputs, width) for i in range(blocks)))
    net["fc"] = nn.Linear(64, 10)
    return net


def bert(layers, width, heads):
    return BertForMaskedLM(BertConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
                                      intermediate_size=4 * width))  # fmt: skip


def gpt(layers, width, heads, positions):
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=positions))


NETWORKS = {
    "ffnn": ffnn,
    "lenet": lenet,
    "resnet-32-cifar": lambda: resnet_cifar(5),
    "vgg-16": torchvision.models.vgg16,
    "resnet-18": torchvision.models.resnet18,
    "resnet-34": torchvision.models.resnet34,
    "resnet-50": torchvision.models.resnet50,
    "resnet-101": torchvision.models.resnet101,
    "resnet-152": torchvision.models.resnet152,
    "densenet-121": torchvision.models.densenet121,
    "densenet-169": torchvision.models.densenet169,
    "mobilenet-v3-large": torchvision.models.mobilenet_v3_large,
    "inception-v3": lambda: torchvision.models.inception_v3(aux_logits=False, init_weights=False),
    "inception-v4": lambda: timm.create_model("inception_v4"),
    "vit-b-16": torchvision.models.vit_b_16,
    "bert-12": lambda: bert(12, 768, 12),
    "bert-24": lambda: bert(24, 1024, 16),
    "bert-36": lambda: bert(36, 1024, 16),
    "bert-48": lambda: bert(48, 1024, 16),
    "gpt2": lambda: gpt(12, 768, 12, 1024),
    "gpt3-medium": lambda: gpt(24, 1024, 16, 2048),
} | {name: lambda name=name: torch_models.build(name, {}) for name in ("cnn", "transformer", "lstm", "gru")}


def lines_of(model):
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    persistent = model.state_dict()
    return sorted(
        f"{name} {list(tensor.shape)}"
        for name, tensor in tensors.items()
        if name in persistent and not name.endswith("num_batches_tracked")
    )


def fnv1a(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return f"{state:016x}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", metavar="NETWORK", choices=NETWORKS, help="only print the lines of this one")
    only = parser.parse_args().print
    with torch.device("meta"):  # shapes alone
        if only:
            print("\n".join(lines_of(NETWORKS[only]())))
            return
        facts = {}
        for name, make in NETWORKS.items():
            model = make()
            lines = lines_of(model)
            facts[name] = {"parameters": torch_models.parameter_count(model), "tensors": len(lines),
                           "hash": fnv1a("".join(f"{line}\n" for line in lines))}  # fmt: skip
    rows = ",\n".join(f' "{name}": {json.dumps(facts[name])}' for name in sorted(facts))
    (HERE / "zoo_names.json").write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main()
