"""PyTorch models made ready for golden files: no dropout, weights by name, the loss that Overtake has."""

import torch
from golden_numbers import initial_weight, largest_deviation, uniform
from torch import nn
from torch.nn import functional as F
from torchvision.ops import StochasticDepth


def without_dropout(model):
    """Also of Hugging Face's and timm's modules, which keep it as numbers of several names."""
    for module in model.modules():
        if isinstance(module, (nn.modules.dropout._DropoutNd, StochasticDepth)):
            module.p = 0.0
        for key, value in vars(module).items():
            if "drop" in key and isinstance(value, float):
                setattr(module, key, 0.0)
    return model


def plain(model):
    """Takes out what is random, and what gives one token a gradient unlike the others'."""
    for module in without_dropout(model).modules():
        if isinstance(module, nn.Embedding):
            module.padding_idx = None
    return model


def start(model, initial, dtype):
    """In training mode, with the weights of golden_numbers.py."""
    model.to(dtype).train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(initial_weight(name, tuple(p.shape), initial)))
    return model


def initial_state(name, count):
    """Running statistics that are not the usual zeros and ones."""
    if name.endswith("running_mean"):
        return torch.from_numpy(0.125 * uniform(name, count)).float()
    return torch.from_numpy(1.0 + 0.5 * uniform(name, count)).float()


def start_states(model):
    with torch.no_grad():
        for name, b in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                b.copy_(initial_state(name, b.numel()))
    return model


def logits_of(model, inputs):
    """Scores per class; numpy in."""
    inputs = torch.from_numpy(inputs)
    if inputs.is_floating_point():
        inputs = inputs.to(next(model.parameters()).dtype)
    logits = model(inputs)
    return logits if isinstance(logits, torch.Tensor) else logits[0]  # Hugging Face's outputs, or a tuple of them


def loss_of(model, inputs, labels):
    """Mean cross entropy over samples or positions; numpy in."""
    return F.cross_entropy(logits_of(model, inputs).flatten(0, -2), torch.from_numpy(labels).flatten())


def gradients_of(model):
    return {name: p.grad.double().numpy().copy() for name, p in model.named_parameters()}


def float32_variants():
    """Contexts in which float32 rounds differently: how far results lie apart says how well-conditioned a case is."""
    return [torch.backends.mkldnn.flags(enabled=enabled, allow_tf32=None) for enabled in (True, False)]


def noisy(model, seed):
    """What every module gives is off by about twice as much as in float32."""
    generator = torch.Generator().manual_seed(seed)

    def add_noise(_module, _inputs, output):
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            return output * (1 + 2**-22 * torch.randn(output.shape, generator=generator, dtype=output.dtype))
        return output

    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(add_noise)
    return model


def is_well_conditioned(float32_deviation, noise):
    """So that the tests' 1e-3 is beyond what rounding can do."""
    return max(noise, *float32_deviation.values()) < 2e-4


def deviation_under_noise(make_model, inputs, labels, gradients, tries=12):
    """How far gradients in float64 move in the worst of some tries. Two float32 runs may agree by chance; here a ReLU
    or a max pool at its edge changes sides in some try."""
    worst = 0.0
    for seed in range(tries):
        model = noisy(make_model(torch.float64), seed)
        loss_of(model, inputs, labels).backward()
        worst = max(worst, largest_deviation(gradients_of(model), gradients))
    return worst
