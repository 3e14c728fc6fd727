"""What bench/gpu measures: networks, batches and settings that Overtake and all peers share.

Settings have the zoo's names; every peer checks that its network has as many parameters as the zoo's.
"""

import dataclasses

LEARNING_RATE, MOMENTUM = 1e-4, 0.9  # so small a rate that random labels do no harm
WARM, ROUNDS, STEPS = 8, 3, 20  # of a peer: steps before, then rounds of so many steps
PRECISIONS = ["amp", "bf16"]  # both compute in bf16; weights and momentum are float32 (as Overtake's) or bf16


@dataclasses.dataclass(frozen=True)
class Case:
    model: str  # the zoo's name
    batch: int
    settings: dict
    parameters: int

    @property
    def takes_tokens(self):
        return "vocabulary" in self.settings

    def check(self, parameters):
        if parameters != self.parameters:
            raise ValueError(f"{self.model} has {parameters} parameters here, {self.parameters} in the zoo")


IMAGENET = {"channels": 3, "image": 224, "classes": 1000}
BERT = {"sequence": 128, "positions": 512, "vocabulary": 30522, "width": 768, "heads": 12, "layers": 12, "dropout": 0}
GPT2 = {"sequence": 1024, "positions": 1024, "vocabulary": 50257, "width": 768, "heads": 12, "layers": 12, "dropout": 0}
LSTM = {"sequence": 64, "vocabulary": 256, "width": 256, "hidden": 512, "layers": 2, "dropout": 0}

CASES = {
    "resnet-50-b32": Case("resnet-50", 32, IMAGENET, 25_557_032),
    "resnet-50-b128": Case("resnet-50", 128, IMAGENET, 25_557_032),
    "densenet-121-b32": Case("densenet-121", 32, IMAGENET | {"dropout": 0}, 7_978_856),
    "mobilenet-v3-b32": Case("mobilenet-v3-large", 32, IMAGENET | {"dropout": 0}, 5_483_032),
    "bert-base-b16": Case("bert-12", 16, BERT, 109_514_298),
    "bert-base-b64": Case("bert-12", 64, BERT, 109_514_298),
    "gpt2-b16": Case("gpt2", 16, GPT2, 124_439_808),
    "lstm-b64": Case("lstm", 64, LSTM, 3_875_072),
}
