"""Three training steps in PyTorch: in float64 for the truth, and where that is needed in float32 for what rounding
alone does to it."""

import contextlib
import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from exports.case import built, inputs_of, labels_of
from torch.nn import functional as F
from torch_setup import noisy

STEPS = 3
MOMENTUM = 0.9
# The learning rate is such that few weights move by more than about this part of themselves in the first
# step: well above what a float32 keeps, and little enough for steps that do not magnify rounding. Weights of zero count
# as of this size.
FIRST_MOVE = 2**-11
LEAST_SIZE = 2**-4
HIGHEST_RATE = 1.0
TOLERANCE = 1e-4
# PyTorch's float32 is a few samples of what rounding may do; ours may be a little further off, but never this far.
ROUNDING_MARGIN = 3
MOST_ROUNDING = 1e-2
NOISY_RUNS = 3
# Updates below this part of all updates together are mostly rounding (the bias of an attention's key has no gradient):
# their errors count as parts of this. So do those of updates of a weight's last bits, and of means that are about zero.
SMALL_UPDATE = 1e-3
SMALL_MOVE = 2**-23 / TOLERANCE
SMALL_MEAN = 2**-20 / TOLERANCE
NEGLIGIBLE = 1e-7


@dataclass
class Run:
    losses: list
    updates: dict  # of every parameter: the end less the start, float64
    states: dict  # of every tensor of the state_dict: what it is at the end, float64


def data_of(case):
    model = built(case)
    inputs = inputs_of(case, case.batch)
    with torch.no_grad():
        return inputs, labels_of(case, model(torch.from_numpy(inputs)))


def _loss(case, output, labels):
    if case.loss == "mse":
        return F.mse_loss(output, labels.to(output.dtype))
    return F.cross_entropy(output.flatten(0, -2), labels.flatten())


def _numbers(tensors):
    return {name: t.detach().double().numpy().copy() for name, t in tensors}


@contextlib.contextmanager
def _precision(dtype):
    """Of the tensors that a model makes while it runs."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _model_and_data(case, start, data, dtype):
    model = built(case)
    model.load_state_dict(start)
    inputs, labels = (torch.from_numpy(array) for array in data)
    return model.to(dtype), inputs.to(dtype) if inputs.is_floating_point() else inputs, labels


def learning_rate_of(case, start, data):
    """A power of two, so that no precision rounds it."""
    model, inputs, labels = _model_and_data(case, start, data, torch.float64)
    with _precision(torch.float64):
        _loss(case, model(inputs), labels).backward()
    sizes = [(max(p.detach().norm().item(), LEAST_SIZE * math.sqrt(p.numel())), p.grad.norm().item())
             for p in model.parameters() if p.grad is not None]  # fmt: skip
    rates = [FIRST_MOVE * w / g for w, g in sizes if g > NEGLIGIBLE * max(g for _, g in sizes)]
    return 2.0 ** round(math.log2(min(np.quantile(rates, 0.1), HIGHEST_RATE)))


def train(case, start, data, rate, dtype, noise_seed=None):
    model, inputs, labels = _model_and_data(case, start, data, dtype)
    if noise_seed is not None:
        noisy(model, noise_seed)
    before = _numbers(model.named_parameters(remove_duplicate=False))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate, momentum=MOMENTUM)
    losses = []
    with _precision(dtype):
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = _loss(case, model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    after = _numbers(model.named_parameters(remove_duplicate=False))
    return Run(losses, {name: after[name] - before[name] for name in before}, _numbers(model.state_dict().items()))


def _in_float32(case, start, data, rate):
    """Runs that round as float32 does, each in its own way."""
    for with_onednn in (True, False):
        with torch.backends.mkldnn.flags(enabled=with_onednn, allow_tf32=None):
            yield train(case, start, data, rate, torch.float32)
    for seed in range(0 if case.on_bounds else NOISY_RUNS):
        with contextlib.suppress(RuntimeError):  # noise does not fit a model that changes a layer's output in place
            yield train(case, start, data, rate, torch.float64, seed)


class Reference:
    """What training gives from a start, and how far a result may lie from it. Errors are relative to `scales`."""

    def __init__(self, case, start, data):
        self.start, self.rate = start, learning_rate_of(case, start, data)
        self.truth = train(case, start, data, self.rate, torch.float64)
        self.scales = {"losses": self._scales_of_losses(), "updates": self._scales_of_updates(),
                       "states": self._scales_of_states()}  # fmt: skip
        self._rounded_runs = lambda: list(_in_float32(case, start, data, self.rate))

    def _scales_of_losses(self):
        return {step: abs(loss) for step, loss in self.of("losses").items()}

    def _scales_of_updates(self):
        norms = {name: np.linalg.norm(u) for name, u in self.truth.updates.items()}
        least = SMALL_UPDATE * math.sqrt(sum(norm**2 for norm in norms.values()))
        start = {name: SMALL_MOVE * np.linalg.norm(self.start[name].double().numpy()) for name in norms}
        return {name: max(norms[name], least, start[name]) for name in norms}

    def _scales_of_states(self):
        scales = {name: np.linalg.norm(t) for name, t in self.truth.states.items()}
        for name in scales:
            variance = self.truth.states.get(name.removesuffix("mean") + "var")
            if name.endswith("running_mean") and variance is not None:
                scales[name] = max(scales[name], SMALL_MEAN * np.linalg.norm(np.sqrt(variance)))
        return scales

    def of(self, kind, run=None):
        """The losses by step, the updates or the states by name; of the truth if not of another run."""
        found = getattr(run or self.truth, kind)
        return dict(enumerate(found)) if kind == "losses" else found

    def error(self, kind, name, value):
        difference = np.linalg.norm(value - self.of(kind)[name])
        return 0.0 if difference == 0 else difference / max(self.scales[kind][name], np.finfo(float).tiny)

    @functools.cached_property
    def _roundings(self):
        return self._rounded_runs()

    def rounding(self, kind, name):
        """The error that rounding alone may make."""
        return ROUNDING_MARGIN * max(self.error(kind, name, self.of(kind, run)[name]) for run in self._roundings)
