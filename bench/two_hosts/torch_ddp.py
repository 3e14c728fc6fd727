#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel on gloo, float32, SGD with momentum, random data: a peer of run.py.

Rank and address come from the environment. The last line of rank 0 is JSON: {"ms": [...], "parameters": ...}.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cpu"))
import torch_models  # noqa: E402


def bert(settings):
    """As the zoo's: tied weights, no dropout here."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=settings["vocabulary"], hidden_size=settings["width"], num_hidden_layers=settings["layers"],
        num_attention_heads=settings["heads"], intermediate_size=4 * settings["width"], hidden_dropout_prob=0,
        attention_probs_dropout_prob=0)  # fmt: skip
    net = transformers.BertForMaskedLM(config)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, tokens):
            return self.net(tokens).logits

    return Logits()


def case(name, settings):
    """A model, its inputs and labels."""
    torch.manual_seed(1 + dist.get_rank())
    if name.startswith("bert"):
        shape = (settings["batch"], settings["sequence"])
        return bert(settings), torch.randint(settings["vocabulary"], shape), torch.randint(settings["vocabulary"], shape)
    shape = (settings["batch"], 3, settings["image"], settings["image"])
    inputs = torch.randn(shape).to(memory_format=torch.channels_last)
    model = torch_models.build(name, settings | {"channels": 3}).to(memory_format=torch.channels_last)
    return model, inputs, torch.randint(settings["classes"], (settings["batch"],))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--settings", type=json.loads, required=True, help="of one rank, as the zoo has them")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plain, inputs, labels = case(options.model, options.settings)
    model = torch.nn.parallel.DistributedDataParallel(plain.train(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    ms = []
    for step in range(options.warm + options.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        torch_models.loss_of(model, inputs, labels).backward()
        optimizer.step()
        if step >= options.warm:
            ms.append(1e3 * (time.perf_counter() - begin))
    if dist.get_rank() == 0:
        print(json.dumps({"ms": ms, "parameters": torch_models.parameter_count(plain)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
