"""What the makers of golden files share: numbers that both sides compute by name, and how results are kept small."""

import math

import numpy as np

# Middle and half-width of the weights of norms ("gain") and of all biases at the start.
INITIAL = {"gain": [1.0, 0.25], "bias": [0.0, 0.25]}
# A residual network on a small batch is chaotic: now and then a ReLU sits so near its edge that float32 puts it on the
# other side, which changes a whole channel's gradient (PyTorch's own float32 is then off by tens of percent after a few
# steps). So here the norms keep most of what they give to the ReLUs away from zero.
OFF_THE_EDGE = {"gain": [0.4, 0.1], "bias": [1.0, 0.25]}
SKETCH_VECTORS = 3
# Gradients are compared relative to their norm, and those that are very small beside all the others relative to this
# part of the norm of all: float32 has no more to give. A key's bias under a softmax, for one, has a gradient of zero.
SMALL = 1e-3


def numbers(key, count):
    """`count` pseudo-random 32-bit words that depend on the text `key` alone; golden.h has the same lines."""
    state = np.uint32(2166136261)
    with np.errstate(over="ignore"):
        for byte in key.encode():  # FNV-1a
            state = (state ^ np.uint32(byte)) * np.uint32(16777619)
        x = state + np.arange(1, count + 1, dtype=np.uint32) * np.uint32(0x9E3779B9)
        x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)  # MurmurHash3's finalizer
        x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
        return x ^ (x >> 16)


def uniform(key, count):
    """In [-1, 1), multiples of 2^-23."""
    return (numbers(key, count) >> 8).astype(np.float64) / 2**23 - 1.0


def initial_weight(name, shape, initial):
    """Rounded to float32. Matrices by their fan-in, the rest as `initial` says."""
    values = uniform(name, math.prod(shape))
    if len(shape) > 1:
        values = values * math.sqrt(3.0 / math.prod(shape[1:]))
    else:
        middle, half_width = initial["gain" if name.endswith(".weight") else "bias"]
        values = half_width * values + middle
    return values.astype(np.float32).reshape(shape)


def ids(name, step, shape, bound):
    """Tokens or labels, below `bound`."""
    return (numbers(f"{name}.{step}", math.prod(shape)) % bound).astype(np.int64).reshape(shape)


def images(step, batch, size, channels):
    """[B, C, H, W], made channels last as the tests feed them."""
    shape = (batch, size, size, channels)
    values = (1.5 * uniform(f"input.{step}", math.prod(shape))).astype(np.float32)
    return np.ascontiguousarray(values.reshape(shape).transpose(0, 3, 1, 2))


def rounded(value):
    """Nine significant digits."""
    return float(f"{value:.9g}")


def global_norm(tensors):
    return math.sqrt(sum(float(np.square(t, dtype=np.float64).sum()) for t in tensors.values()))


def sketch(name, tensor):
    """The norm of a tensor and its dot products with vectors of uniform()."""
    flat = tensor.ravel()
    dots = [flat @ uniform(f"sketch.{j}.{name}", flat.size) for j in range(SKETCH_VECTORS)]
    return [rounded(v) for v in (np.linalg.norm(flat), *dots)]


def sketches(tensors):
    return {name: sketch(name, tensor) for name, tensor in tensors.items()}


def largest_deviation(ours, reference):
    """Over all gradients: the norm of the difference, relative as the tests have it."""
    floor = SMALL * global_norm(reference)
    return max(np.linalg.norm(ours[k] - g) / (np.linalg.norm(g) + floor) for k, g in reference.items())


def selection(names, most):
    """At most `most` of the names, spread evenly from the first to the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(i * (len(names) - 1) / (most - 1))] for i in range(most)]
