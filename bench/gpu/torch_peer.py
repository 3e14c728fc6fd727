#!/usr/bin/env python3
"""One PyTorch peer of the GPU benchmark, measured in a process of its own.

    bench/gpu/torch_peer.py resnet-50-b32 graph amp --json

A step is forward, backward and update on one random batch. Peak memory is what PyTorch's allocator handed out at most
during the measured steps; with CUDA graphs, whose memory is set aside for good, it is what the allocator held
("peak_is" says which).
"""

import argparse
import contextlib
import gc
import json
import pathlib
import statistics
import sys

import torch
from torch import nn
from torch.nn import functional as F

import cases

COMPILED = {
    "compile-ro": "reduce-overhead",
    "compile-ma": "max-autotune",
    "compile-graph": "max-autotune-no-cudagraphs",
}
CAPTURED = ["graph", "compile-graph"]  # the whole step in one CUDA graph
MODES = ["eager", "graph", *COMPILED]


def image_network(name, **settings):
    import torchvision

    return getattr(torchvision.models, name)(**settings)


class Logits(nn.Module):
    """A language model of Hugging Face without its loss, so that the loss is the same for all."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, tokens):  # [B, S]
        return self.network(input_ids=tokens).logits  # [B, S, vocabulary]


def bert(s):
    import transformers

    config = transformers.BertConfig(
        vocab_size=s["vocabulary"], max_position_embeddings=s["positions"], hidden_size=s["width"],
        intermediate_size=4 * s["width"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
        hidden_dropout_prob=s["dropout"], attention_probs_dropout_prob=s["dropout"], attn_implementation="sdpa",
    )  # fmt: skip
    return Logits(transformers.BertForMaskedLM(config))


def gpt2(s):
    import transformers

    config = transformers.GPT2Config(
        vocab_size=s["vocabulary"], n_positions=s["positions"], n_embd=s["width"], n_layer=s["layers"],
        n_head=s["heads"], resid_pdrop=s["dropout"], embd_pdrop=s["dropout"], attn_pdrop=s["dropout"],
        use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return Logits(transformers.GPT2LMHeadModel(config))


def lstm(s):
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cpu"))
    import torch_models

    return torch_models.build("lstm", s)


NETWORKS = {  # zoo's name -> network of these settings
    "resnet-50": lambda s: image_network("resnet50", num_classes=s["classes"]),
    "densenet-121": lambda s: image_network("densenet121", num_classes=s["classes"], drop_rate=s["dropout"]),
    "mobilenet-v3-large": lambda s: image_network(
        "mobilenet_v3_large", num_classes=s["classes"], dropout=s["dropout"]
    ),
    "bert-12": bert,
    "gpt2": gpt2,
    "lstm": lstm,
}


def random_batch(case, device):
    """Images are bf16 already: a cast of float32 ones would be the peers' alone."""
    s = case.settings
    if case.takes_tokens:
        tokens, labels = torch.randint(s["vocabulary"], (2, case.batch, s["sequence"]), device=device)
        return tokens, labels
    shape = (case.batch, s["channels"], s["image"], s["image"])
    images = torch.randn(shape, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    return images, torch.randint(s["classes"], (case.batch,), device=device)


def make_step(case, mode, precision, device):
    """A function that does one training step, not yet captured."""
    torch.manual_seed(0)
    with torch.device(device):
        model = NETWORKS[case.model](case.settings).train()
    case.check(sum(p.numel() for p in model.parameters()))
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    if not case.takes_tokens:
        model = model.to(memory_format=torch.channels_last)
    inputs, labels = random_batch(case, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=cases.LEARNING_RATE, momentum=cases.MOMENTUM, fused=True)

    def loss_of(x, y):
        mixed = torch.autocast(device, torch.bfloat16) if precision == "amp" else contextlib.nullcontext()
        with mixed:
            return F.cross_entropy(model(x).flatten(0, -2), y.flatten())

    loss = torch.compile(loss_of, mode=COMPILED[mode]) if mode in COMPILED else loss_of

    def step():
        if mode in COMPILED:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss(inputs, labels).backward()
        optimizer.step()

    return step


def captured(step):
    """Replays the step as one CUDA graph. The caller keeps the step, for it owns the weights that the graph writes."""
    side = torch.cuda.Stream()  # what is captured has run on a stream like this before
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(cases.WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def release_unused():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()


def round_ms(step):
    """Mean of a round's steps."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(cases.STEPS):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / cases.STEPS


def measure(case, mode, precision):
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    step = make_step(case, mode, precision, "cuda")
    timed_step = captured(step) if mode in CAPTURED else step
    for _ in range(cases.WARM):
        timed_step()
    release_unused()
    timed_step()
    torch.cuda.reset_peak_memory_stats()
    rounds = [round_ms(timed_step) for _ in range(cases.ROUNDS)]
    allocates = mode == "eager"
    return {
        "ms": min(rounds),
        "median_ms": statistics.median(rounds),
        "peak_bytes": torch.cuda.max_memory_allocated() if allocates else torch.cuda.max_memory_reserved(),
        "peak_is": "allocated" if allocates else "reserved",
        "libraries": {
            "torch": torch.__version__,
            "CUDA": torch.version.cuda,
            "cuDNN": str(torch.backends.cudnn.version()),
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=cases.CASES)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("precision", choices=cases.PRECISIONS)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    args = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is no answer
        try:
            answer = measure(cases.CASES[args.case], args.mode, args.precision)
        except Exception as error:  # whatever it is, run.py reports it and goes on without this peer
            if not args.json:
                raise
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    print(json.dumps(answer) if args.json else f"{answer['ms']:.3f} ms, {answer['peak_bytes'] / 2**30:.2f} GiB")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
