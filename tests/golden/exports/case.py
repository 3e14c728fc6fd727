"""What a model of the table is: how it is built, what goes in, how it is trained."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from golden_numbers import ids, uniform
from torch import nn
from torch_setup import without_dropout

EXPORT_BATCH = 2


@dataclass
class Tokens:
    """An input of token ids [B, length]."""

    length: int = 12
    vocabulary: int = 64


@dataclass
class Case:
    """A model of one input and one output, trained by SGD with momentum on one batch."""

    build: object
    input: object = (3, 32, 32)  # the shape of a sample, or Tokens
    loss: str = "cross-entropy"  # over the last dimension of the output; or mse
    batch: int = 4  # trained with; files are exported at EXPORT_BATCH
    scale: float = 1.5  # inputs lie between -scale and scale
    # What PyTorch does not train, and no exporter but Overtake's own writes down: of other forms the program has to say
    # so.
    has_untold: bool = False
    on_bounds: bool = False  # values lie exactly on bounds, so noise says nothing about rounding


class Wrapped(nn.Module):
    """A model of another library as one of one input and one output, which `call` makes of it."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x):
        return self.call(self.model, x)


def built(case):
    """The model as a user has it before training: fresh weights, training mode."""
    torch.manual_seed(1)
    return without_dropout(case.build()).train()


def inputs_of(case, batch):
    if isinstance(case.input, Tokens):
        return ids("tokens", 0, (batch, case.input.length), case.input.vocabulary)
    shape = (batch, *case.input)
    return (case.scale * uniform("input.0", math.prod(shape))).astype(np.float32).reshape(shape)


def labels_of(case, output):
    """Classes or targets for an output [B, ...]."""
    if case.loss == "mse":
        return uniform("targets.0", output.numel()).astype(np.float32).reshape(tuple(output.shape))
    return ids("labels", 0, tuple(output.shape[:-1]), output.shape[-1])
