#!/usr/bin/env python3
"""One JAX peer of the GPU benchmark, measured in a process of its own: the whole training step in one jit.

    bench/gpu/jax_peer.py resnet-50-b32 jax amp --json

The networks are written plainly on jax.numpy, as the zoo has them, images as [B, H, W, C]. Matrix products,
convolutions and activations are bf16; norms and the loss are computed in float32. Peak memory is that of JAX's
allocator over the whole process, the compiler's trials included.
"""

import argparse
import contextlib
import functools
import json
import math
import os
import statistics
import sys
import time

import cases

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # before jax is imported

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BF16, F32 = jnp.bfloat16, jnp.float32


class Weights:
    """Hands a network its weights in the order in which it asks for them.

    Without values it only notes what is asked for: (shape, value to start from, or None for random ones).
    """

    def __init__(self, values=None, running=None):
        self.values, self.running = (iter(values), iter(running)) if values is not None else (None, None)
        self.asked, self.new_running = [], []

    def __call__(self, *shape, start=None, dtype=BF16):
        if self.values is None:
            self.asked.append((shape, start))
            return jnp.zeros(shape, dtype)
        return next(self.values).astype(dtype)

    def track(self, mean, variance, momentum):
        """Running statistics of a batch norm: a row each of [2, C]."""
        now = lax.stop_gradient(jnp.stack([mean, variance]))
        old = next(self.running) if self.running is not None else jnp.zeros_like(now)
        self.new_running.append((1 - momentum) * old + momentum * now)

    def linear(self, x, outputs, bias=True):
        y = x @ self(x.shape[-1], outputs)
        return y + self(outputs, start=0) if bias else y

    def conv(self, x, outputs, kernel, stride=1, groups=1, bias=False):
        y = lax.conv_general_dilated(
            x, self(kernel, kernel, x.shape[-1] // groups, outputs), (stride, stride), [(kernel // 2, kernel // 2)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
        )  # fmt: skip
        return y + self(outputs, start=0) if bias else y

    def batch_norm(self, x, eps=1e-5, momentum=0.1):
        channels, wide = x.shape[-1], x.astype(F32)
        mean = wide.mean((0, 1, 2))
        variance = (wide * wide).mean((0, 1, 2)) - mean * mean
        self.track(mean, variance, momentum)
        scale = self(channels, start=1, dtype=F32) * lax.rsqrt(variance + eps)
        return (wide * scale + (self(channels, start=0, dtype=F32) - mean * scale)).astype(BF16)

    def layer_norm(self, x, eps=1e-5):
        width, wide = x.shape[-1], x.astype(F32)
        centred = wide - wide.mean(-1, keepdims=True)
        y = centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
        return (y * self(width, start=1, dtype=F32) + self(width, start=0, dtype=F32)).astype(BF16)


def pool(x, kernel, stride, padding, operation, start):
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return lax.reduce_window(x, start, operation, (1, kernel, kernel, 1), (1, stride, stride, 1), around)


def max_pool(x):
    return pool(x, 3, 2, 1, lax.max, -jnp.inf)


def spatial_mean(x):  # [B, H, W, C] -> [B, C]
    return x.astype(F32).mean((1, 2)).astype(BF16)


def resnet50(net, x, s):
    def conv_norm(x, *conv):
        return net.batch_norm(net.conv(x, *conv))

    x = max_pool(jax.nn.relu(conv_norm(x, 64, 7, 2)))
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for i in range(count):
            stride = 2 if i == 0 and stage > 0 else 1
            y = jax.nn.relu(conv_norm(x, width, 1))
            y = conv_norm(jax.nn.relu(conv_norm(y, width, 3, stride)), 4 * width, 1)
            x = jax.nn.relu(y + (conv_norm(x, 4 * width, 1, stride) if i == 0 else x))
    return net.linear(spatial_mean(x), s["classes"])


def densenet121(net, x, s, growth=32):
    def norm_conv(x, *conv):
        return net.conv(jax.nn.relu(net.batch_norm(x)), *conv)

    x = max_pool(jax.nn.relu(net.batch_norm(net.conv(x, 64, 7, 2))))
    for block, layers in enumerate((6, 12, 24, 16)):
        if block > 0:
            x = norm_conv(x, x.shape[-1] // 2, 1)
            x = (pool(x.astype(F32), 2, 2, 0, lax.add, 0.0) / 4).astype(BF16)
        for _ in range(layers):
            x = jnp.concatenate([x, norm_conv(norm_conv(x, 4 * growth, 1), growth, 3)], -1)
    return net.linear(spatial_mean(jax.nn.relu(net.batch_norm(x))), s["classes"])


MOBILENET_ROWS = (  # kernel, expanded, outputs, squeezes?, hard swish?, stride: table 1 of the paper
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
    (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
    (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1),
    (5, 960, 160, 1, 1, 1),
)  # fmt: skip


def mobilenet_v3_large(net, x, s):
    def conv_norm(x, *conv):
        return net.batch_norm(net.conv(x, *conv), eps=0.001, momentum=0.01)

    def squeeze_excite(x):
        channels = x.shape[-1]
        squeezed = max(8, (channels // 4 + 4) // 8 * 8)
        squeezed += 8 if squeezed < 0.9 * (channels // 4) else 0
        scale = jax.nn.relu(net.conv(spatial_mean(x)[:, None, None, :], squeezed, 1, 1, 1, True))
        return x * jax.nn.hard_sigmoid(net.conv(scale, channels, 1, 1, 1, True))

    x = jax.nn.hard_swish(conv_norm(x, 16, 3, 2))
    for kernel, expanded, outputs, squeezes, hard, stride in MOBILENET_ROWS:
        function = jax.nn.hard_swish if hard else jax.nn.relu
        y = function(conv_norm(x, expanded, 1)) if expanded != x.shape[-1] else x
        y = function(conv_norm(y, expanded, kernel, stride, expanded))
        y = conv_norm(squeeze_excite(y) if squeezes else y, outputs, 1)
        x = y + x if stride == 1 and outputs == x.shape[-1] else y
    x = spatial_mean(jax.nn.hard_swish(conv_norm(x, 960, 1)))
    return net.linear(jax.nn.hard_swish(net.linear(x, 1280)), s["classes"])


def attention(q, k, v, heads, is_causal):  # each [B, S, D]
    q, k, v = (x.reshape(*x.shape[:2], heads, -1) for x in (q, k, v))
    on_gpu = jax.default_backend() == "gpu"
    y = jax.nn.dot_product_attention(q, k, v, is_causal=is_causal, implementation="cudnn" if on_gpu else "xla")
    return y.reshape(*y.shape[:2], -1)


def bert(net, tokens, s):
    width = s["width"]
    norm = functools.partial(net.layer_norm, eps=1e-12)
    words = net(s["vocabulary"], width)
    x = norm(words[tokens] + net(2, width)[0] + net(s["positions"], width)[: tokens.shape[1]])
    for _ in range(s["layers"]):
        q, k, v = (net.linear(x, width) for _ in range(3))
        x = norm(x + net.linear(attention(q, k, v, s["heads"], False), width))
        x = norm(x + net.linear(jax.nn.gelu(net.linear(x, 4 * width), approximate=False), width))
    x = norm(jax.nn.gelu(net.linear(x, width), approximate=False))
    return x @ words.T + net(s["vocabulary"], start=0)


def gpt2(net, tokens, s):
    width = s["width"]
    words = net(s["vocabulary"], width)
    x = words[tokens] + net(s["positions"], width)[: tokens.shape[1]]
    for _ in range(s["layers"]):
        q, k, v = jnp.split(net.linear(net.layer_norm(x), 3 * width), 3, -1)
        x = x + net.linear(attention(q, k, v, s["heads"], True), width)
        x = x + net.linear(jax.nn.gelu(net.linear(net.layer_norm(x), 4 * width), approximate=True), width)
    return net.layer_norm(x) @ words.T


def lstm(net, tokens, s):
    hidden = s["hidden"]
    x = net(s["vocabulary"], s["width"])[tokens].swapaxes(0, 1)  # [S, B, D]
    for _ in range(s["layers"]):
        inputs = net.linear(x, 4 * hidden)  # of all times at once
        weight, bias = net(hidden, 4 * hidden), net(4 * hidden, start=0)

        def cell(state, of_input, weight=weight, bias=bias):
            h, c = state
            i, f, g, o = jnp.split(of_input + h @ weight + bias, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], hidden), BF16)
        _, x = lax.scan(cell, (zeros, zeros), inputs, unroll=8)
    return net.linear(x.swapaxes(0, 1), s["vocabulary"])


NETWORKS = {  # zoo's name -> function of (weights, batch, settings) that gives logits
    "resnet-50": resnet50,
    "densenet-121": densenet121,
    "mobilenet-v3-large": mobilenet_v3_large,
    "bert-12": bert,
    "gpt2": gpt2,
    "lstm": lstm,
}


def random_batch(case, random):
    s = case.settings
    if case.takes_tokens:
        tokens, labels = random.integers(s["vocabulary"], size=(2, case.batch, s["sequence"]))
        return jnp.asarray(tokens), jnp.asarray(labels)
    images = random.standard_normal((case.batch, s["image"], s["image"], s["channels"]), np.float32)
    return jnp.asarray(images, BF16), jnp.asarray(random.integers(s["classes"], size=case.batch))


def initial_state(case, inputs, precision, random):
    """Weights, momentum and running statistics."""
    net = Weights()
    jax.eval_shape(lambda x: NETWORKS[case.model](net, x, case.settings), inputs)
    case.check(sum(math.prod(shape) for shape, _ in net.asked))
    dtype = BF16 if precision == "bf16" else F32

    def value(shape, start):
        if start is not None:
            return jnp.full(shape, start, dtype)
        return jnp.asarray(random.standard_normal(shape, np.float32) * math.prod(shape[:-1]) ** -0.5, dtype)

    weights = [value(*asked) for asked in net.asked]
    running = [jnp.zeros(statistic.shape, F32) for statistic in net.new_running]
    return weights, [jnp.zeros_like(w) for w in weights], running


def cross_entropy(logits, labels):
    logits = logits.astype(F32)
    return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]).mean()


def make_step(case):
    """(weights, momentum, running statistics, inputs, labels) -> the first three after a step, and the loss."""

    def loss_of(weights, running, inputs, labels):
        net = Weights(weights, running)
        return cross_entropy(NETWORKS[case.model](net, inputs, case.settings), labels), net.new_running

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(weights, momentum, running, inputs, labels):
        (loss, running), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, running, inputs, labels)
        momentum = [cases.MOMENTUM * m + g for m, g in zip(momentum, gradients)]
        return [w - cases.LEARNING_RATE * m for w, m in zip(weights, momentum)], momentum, running, loss

    return step


def measure(case, precision):
    random = np.random.default_rng(0)
    inputs, labels = random_batch(case, random)
    state, step = initial_state(case, inputs, precision, random), make_step(case)

    def run(count):
        nonlocal state
        for _ in range(count):
            *state, loss = step(*state, inputs, labels)
        jax.block_until_ready((state, loss))

    run(cases.WARM)
    rounds = []
    for _ in range(cases.ROUNDS):
        begin = time.perf_counter()
        run(cases.STEPS)
        rounds.append(1e3 * (time.perf_counter() - begin) / cases.STEPS)
    return {
        "ms": min(rounds),
        "median_ms": statistics.median(rounds),
        "peak_bytes": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
        "peak_is": "in use",
        "libraries": {"jax": jax.__version__},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=cases.CASES)
    parser.add_argument("mode", choices=["jax"])
    parser.add_argument("precision", choices=cases.PRECISIONS)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    args = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is no answer
        try:
            if jax.default_backend() != "gpu":
                raise RuntimeError(f"JAX sees no GPU, only {jax.devices()[0]}")
            answer = measure(cases.CASES[args.case], args.precision)
        except Exception as error:  # whatever it is, run.py reports it and goes on without this peer
            if not args.json:
                raise
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    print(json.dumps(answer) if args.json else f"{answer['ms']:.3f} ms")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
