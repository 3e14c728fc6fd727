#!/usr/bin/env python3
"""One PyTorch peer of the CPU benchmark: a worker that run.py starts and talks to in JSON lines.

    stdin                                                                 stdout
    {"model": "resnet-18", "settings": {...}, "variant": "eager",         {"ready": {"parameters": ..., "torch": ...}}
     "threads": 2, "learning_rate": 0.01, "momentum": 0.9}
    {"warm": 1, "steps": 5}                                               {"ms": [...]}

Or {"error": "..."}, once, and the worker ends. A step is forward, backward and update on the same random batch. SGD is
the fused one, PyTorch's fastest.
"""

import json
import sys
import time

VARIANTS = {  # torch.compile?, channels last?
    "eager": (False, False),
    "eager channels_last": (False, True),
    "compile": (True, False),
    "compile channels_last": (True, True),
}
PARAMETERS = {"resnet-18": 11_689_512, "resnet-50": 25_557_032}  # as published, for 1000 classes


class Peer:
    def __init__(self, job):
        import torch

        import torch_models

        torch.set_num_threads(job["threads"])
        torch.manual_seed(0)
        compiles, channels_last = VARIANTS[job["variant"]]
        settings = job["settings"]
        model = torch_models.build(job["model"], settings).train()
        self.parameters = torch_models.parameter_count(model)
        expected = PARAMETERS.get(job["model"], self.parameters)
        assert self.parameters == expected, f"{self.parameters} parameters, not {expected}"
        if torch_models.takes_tokens(job["model"]):
            shape = (settings["batch"], settings["sequence"])
            self.inputs = torch.randint(settings["vocabulary"], shape)
            self.labels = torch.randint(settings["vocabulary"], shape)
        else:
            self.inputs = torch.randn(settings["batch"], settings["channels"], settings["image"], settings["image"])
            self.labels = torch.randint(settings["classes"], (settings["batch"],))
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
            self.inputs = self.inputs.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=job["learning_rate"], momentum=job["momentum"], fused=True
        )
        self.model = torch.compile(model) if compiles else model
        self.loss_of = torch_models.loss_of
        self.version = torch.__version__

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(self.model, self.inputs, self.labels).backward()
        self.optimizer.step()

    def timed_step(self):
        start = time.perf_counter()
        self.step()
        return 1e3 * (time.perf_counter() - start)


def main():
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer

    def answer(message):
        print(json.dumps(message), file=answers, flush=True)

    try:
        peer = Peer(json.loads(sys.stdin.readline()))
        peer.step()  # here torch.compile compiles
        answer({"ready": {"parameters": peer.parameters, "torch": peer.version}})
        for line in sys.stdin:
            request = json.loads(line)
            for _ in range(request["warm"]):
                peer.step()
            answer({"ms": [peer.timed_step() for _ in range(request["steps"])]})
    except Exception as error:  # whatever it is, run.py reports it and goes on without this peer
        answer({"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
