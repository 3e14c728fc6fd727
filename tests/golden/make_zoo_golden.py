#!/usr/bin/env python3
"""Makes zoo/*.json: one training step of the zoo's networks as PyTorch computes it. Run by hand, not in CI:

    tests/golden/make_zoo_golden.py             # needs torch, torchvision, timm, transformers; downloads nothing
    tests/golden/make_zoo_golden.py resnet-50   # only these

The networks are those of torchvision, timm and Hugging Face, without dropout and with small settings but the whole
structure. As in make_golden.py PyTorch computes in float64, and weights and batches come from golden_numbers.py.

    NETWORK.json  settings, initial weights, the loss, the norm of all gradients together, and of every gradient (of
                  some, where there are very many) its sketch, by the name of the weight; beside them how far PyTorch's
                  own float32 is off, with oneDNN and without
"""

import argparse
import json
import pathlib
import sys
from collections import OrderedDict
from functools import partial

import numpy as np
import timm
import torch
import torchvision.models as vision
from golden_numbers import (INITIAL, OFF_THE_EDGE, SMALL, global_norm, ids, images, largest_deviation, rounded,
                            selection, sketches)  # fmt: skip
from torch import nn
from torch.nn import functional as F
from torch_setup import (deviation_under_noise, float32_variants, gradients_of, is_well_conditioned, loss_of, plain,
                         start)  # fmt: skip
from torchvision.models.resnet import BasicBlock, Bottleneck
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "cpu"))
import torch_models  # noqa: E402

FOLDER = HERE / "zoo"
MOST_SKETCHES = 400


class CifarBlock(nn.Module):
    """He et al. 2015, section 4.2: where the shape changes, the shortcut takes every other pixel and adds channels of
    zeros, half of them on each side (option A)."""

    def __init__(self, inputs, width):
        super().__init__()
        self.stride, self.more = (1, 0) if inputs == width else (2, width - inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):  # [B, C, H, W]
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more // 2))
        return F.relu(y + shortcut)


class CifarResNet(nn.Module):
    def __init__(self, blocks, channels, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        for stage, (inputs, width) in enumerate([(16, 16), (16, 32), (32, 64)]):
            layer = [CifarBlock(width if i else inputs, width) for i in range(blocks)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):  # [B, C, H, W]
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class ResNet(vision.ResNet):
    """torchvision's, with a width of choice."""

    def __init__(self, block, blocks, width, classes):
        super().__init__(block, [1, 1, 1, 1])
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for i, count in enumerate(blocks):
            setattr(self, f"layer{i + 1}", self._make_layer(block, width << i, count, stride=1 if i == 0 else 2))
        self.fc = nn.Linear(self.inplanes, classes)


def resnet(block, *blocks):
    return lambda s: ResNet(block, blocks, s["width"], s["classes"])


def vgg16(s):
    widths = [s["width"] * w if w else "M" for w in (1, 1, 0, 2, 2, 0, 4, 4, 4, 0, 8, 8, 8, 0, 8, 8, 8, 0)]
    model = vision.VGG(vision.vgg.make_layers(widths), num_classes=s["classes"], init_weights=False)
    for i, (inputs, outputs) in {0: (8 * s["width"] * 49, s["hidden"]), 3: (s["hidden"], s["hidden"]),
                                 6: (s["hidden"], s["classes"])}.items():  # fmt: skip
        model.classifier[i] = nn.Linear(inputs, outputs)
    return model


def ffnn(s):
    layers, inputs = [("flatten", nn.Flatten())], s["channels"] * s["image"] ** 2
    for i in range(s["layers"]):
        layers += [(f"fc{i + 1}", nn.Linear(inputs if i == 0 else s["width"], s["width"])), (f"relu{i + 1}", nn.ReLU())]
    return nn.Sequential(OrderedDict(layers + [("head", nn.Linear(s["width"], s["classes"]))]))


def vit(s):
    return vision.VisionTransformer(image_size=s["image"], patch_size=16, num_layers=s["layers"], num_heads=s["heads"],
                                    hidden_dim=s["width"], mlp_dim=4 * s["width"],
                                    num_classes=s["classes"])  # fmt: skip


def bert(s):
    return BertForMaskedLM(BertConfig(
        vocab_size=s["vocabulary"], hidden_size=s["width"], num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"], intermediate_size=4 * s["width"]))  # fmt: skip


def gpt(s):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=s["vocabulary"], n_embd=s["width"], n_layer=s["layers"], n_head=s["heads"],
        n_positions=s["sequence"], use_cache=False, bos_token_id=0, eos_token_id=0))  # fmt: skip


def by_classes(make, **options):
    return lambda s: make(num_classes=s["classes"], **options)


IMAGES = {"batch": 4, "channels": 3, "image": 64, "classes": 10}
TOKENS = {"batch": 2, "sequence": 12, "vocabulary": 96}
# These and the batches are chosen among their like: neither ReLUs nor the maxima of pools change sides under noise.
FURTHER_OFF = {"gain": [0.4, 0.1], "bias": [1.1, 0.25]}
FAR_OFF = {"gain": [0.3, 0.1], "bias": [1.2, 0.25]}
FARTHEST_OFF = {"gain": [0.35, 0.1], "bias": [1.3, 0.25]}
SMALL_GAIN = {"gain": [0.2, 0.1], "bias": [1.0, 0.25]}
CASES = {  # what makes it, settings, initial weights
    "ffnn": (ffnn, {"batch": 8, "channels": 1, "image": 14, "classes": 10, "layers": 3, "width": 48}, INITIAL),
    "resnet-32-cifar": (lambda s: CifarResNet(5, s["channels"], s["classes"]), IMAGES | {"image": 32}, OFF_THE_EDGE),
    "vgg-16": (vgg16, IMAGES | {"width": 16, "hidden": 64}, INITIAL),
    "resnet-18": (resnet(BasicBlock, 2, 2, 2, 2), IMAGES | {"batch": 3, "width": 32}, OFF_THE_EDGE),
    "resnet-34": (resnet(BasicBlock, 3, 4, 6, 3), IMAGES | {"batch": 3, "width": 32}, OFF_THE_EDGE),
    "resnet-50": (resnet(Bottleneck, 3, 4, 6, 3), IMAGES | {"batch": 3, "width": 32}, OFF_THE_EDGE),
    "resnet-101": (resnet(Bottleneck, 3, 4, 23, 3), IMAGES | {"width": 16}, FURTHER_OFF),
    "resnet-152": (resnet(Bottleneck, 3, 8, 36, 3), IMAGES | {"width": 16}, OFF_THE_EDGE),
    "densenet-121": (by_classes(vision.densenet121), IMAGES, FAR_OFF),
    "densenet-169": (by_classes(vision.densenet169), IMAGES, FAR_OFF),
    "mobilenet-v3-large": (by_classes(vision.mobilenet_v3_large), IMAGES, FURTHER_OFF),
    "inception-v3": (by_classes(vision.inception_v3, aux_logits=False, init_weights=False), IMAGES | {"image": 107},
                     FARTHEST_OFF),
    "inception-v4": (by_classes(partial(timm.create_model, "inception_v4")), IMAGES | {"batch": 2, "image": 107},
                     SMALL_GAIN),
    "vit-b-16": (vit, IMAGES | {"layers": 3, "width": 96, "heads": 4}, INITIAL),
    "bert-12": (bert, TOKENS | {"layers": 6, "width": 48, "heads": 4}, INITIAL),
    "bert-24": (bert, TOKENS | {"layers": 3, "width": 96, "heads": 2}, INITIAL),
    "bert-36": (bert, TOKENS | {"layers": 2, "width": 64, "heads": 8}, INITIAL),
    "bert-48": (bert, TOKENS | {"layers": 4, "width": 32, "heads": 4}, INITIAL),
    "gpt2": (gpt, TOKENS | {"layers": 12, "width": 48, "heads": 4}, INITIAL),
    "gpt3-medium": (gpt, TOKENS | {"layers": 24, "width": 32, "heads": 2}, INITIAL),
    "lstm": (lambda s: torch_models.build("lstm", s), TOKENS | {"batch": 4, "width": 24, "hidden": 40, "layers": 2},
             INITIAL),
}  # fmt: skip


def batch_of(s):
    if "vocabulary" in s:
        shape = (s["batch"], s["sequence"])
        return ids("tokens", 0, shape, s["vocabulary"]), ids("labels", 0, shape, s["vocabulary"])
    return images(0, s["batch"], s["image"], s["channels"]), ids("labels", 0, (s["batch"],), s["classes"])


def model_of(build, settings, initial, dtype):
    return start(plain(build(settings)), initial, dtype)


def step(build, settings, initial, dtype):
    """The loss and all gradients."""
    model = model_of(build, settings, initial, dtype)
    loss = loss_of(model, *batch_of(settings))
    loss.backward()
    return loss.item(), gradients_of(model)


def make(name):
    build, settings, initial = CASES[name]
    loss, gradients = step(build, settings, initial, torch.float64)
    deviation = {"loss": 0.0, "gradients": 0.0}
    for variant in float32_variants():
        with variant:
            loss32, gradients32 = step(build, settings, initial, torch.float32)
        deviation["loss"] = max(deviation["loss"], abs(loss32 / loss - 1))
        deviation["gradients"] = max(deviation["gradients"], largest_deviation(gradients32, gradients))
    noise = deviation_under_noise(partial(model_of, build, settings, initial), *batch_of(settings), gradients)
    norm = global_norm(gradients)
    chosen = {k: gradients[k] for k in selection(list(gradients), MOST_SKETCHES)}
    golden = {"model": name, "settings": settings, "initial": initial, "loss": loss, "norm": rounded(norm),
              "tensors": len(gradients), "float32_deviation": {k: float(f"{v:.2g}") for k, v in deviation.items()},
              "gradients": sketches(chosen)}  # fmt: skip
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(golden, separators=(",", ":")).replace('],"', '],\n"') + "\n")
    small = sum(bool(np.linalg.norm(g) < SMALL * norm) for g in gradients.values())
    print(f"{name}: loss {loss:.4f}, norm {norm:.3g}, {len(gradients)} gradients, {small} of them small, "
          f"{path.stat().st_size / 1024:.0f} KB; PyTorch's float32 is off by",
          ", ".join(f"{k} {v:.1e}" for k, v in deviation.items()), f"and under noise {noise:.1e}",
          flush=True)  # fmt: skip
    if not is_well_conditioned(deviation, noise):
        print(f"{name}: NOT WELL-CONDITIONED")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    networks = parser.parse_args().networks
    if unknown := set(networks) - set(CASES):
        parser.error(f"no such network: {', '.join(sorted(unknown))}")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in networks or CASES:
        make(name)


if __name__ == "__main__":
    main()
