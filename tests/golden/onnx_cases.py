"""The networks of the ONNX tests: none is in the zoo. How each is built, exported and trained."""

from dataclasses import dataclass, field
from functools import partial

import torchvision.models as vision
import transformers as hf
from golden_numbers import INITIAL, OFF_THE_EDGE
from torch import nn
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.efficientnet import FusedMBConvConfig, MBConvConfig
from torchvision.models.regnet import BlockParams

CLASSES = 10
VOCABULARY = 64
SEQUENCE = 12


class GroupNormCnn(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(8, 32), nn.SiLU(),
            nn.Conv2d(32, 96, 3, padding=2, dilation=2, groups=4), nn.GroupNorm(1, 96), nn.LeakyReLU(0.2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, CLASSES))  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.rnn = kind(16, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, VOCABULARY)

    def forward(self, tokens):  # [B, S] -> [B, S, VOCABULARY]
        return self.head(self.rnn(self.embedding(tokens))[0])


class Encoder(nn.Module):
    """Norm first, as nn.TransformerEncoder can have it."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(32), enable_nested_tensor=False)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, tokens):  # [B, S] -> [B, S, VOCABULARY]
        return self.head(self.encoder(self.embedding(tokens)))


def mobilenet_v2():
    settings = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2], [6, 64, 1, 2]]
    return vision.MobileNetV2(num_classes=CLASSES, inverted_residual_setting=settings)


def shufflenet_v2():
    return vision.ShuffleNetV2([2, 3, 2], [24, 48, 96, 192, 256], num_classes=CLASSES)


def efficientnet():
    blocks = [FusedMBConvConfig(1, 3, 1, 16, 16, 1), FusedMBConvConfig(4, 3, 2, 16, 24, 2),
              MBConvConfig(4, 3, 2, 24, 40, 2), MBConvConfig(6, 5, 2, 40, 64, 2)]  # fmt: skip
    return vision.EfficientNet(blocks, dropout=0.2, num_classes=CLASSES, last_channel=256)


def regnet_y():
    params = BlockParams.from_init_params(depth=6, w_0=24, w_a=24, w_m=2.5, group_width=8, se_ratio=0.25)
    return vision.RegNet(params, num_classes=CLASSES)


def convnext():
    blocks = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 1), CNBlockConfig(48, 64, 2), CNBlockConfig(64, None, 1)]
    return vision.ConvNeXt(blocks, layer_scale=0.5, num_classes=CLASSES)


def swin():
    """Windows of 4 x 4, every other one shifted, and one merging of patches."""
    return vision.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=CLASSES)


def hugging_face(kind, config, attention, **settings):
    """A model that takes ids and gives logits alone."""

    class LogitsOnly(kind):
        def forward(self, input_ids):  # [B, S]
            return super().forward(input_ids=input_ids).logits

    c = config(vocab_size=VOCABULARY, attn_implementation=attention, **settings)
    c.use_cache = False
    return LogitsOnly(c)


BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "max_position_embeddings": 32}  # fmt: skip
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 32}
OPT = {"hidden_size": 32, "word_embed_proj_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
       "max_position_embeddings": 32, "dropout": 0.0, "bos_token_id": 2}  # fmt: skip
LLAMA = BERT | {"num_key_value_heads": 2}


@dataclass
class Case:
    build: object
    exporter: str  # "torchscript" or "dynamo"
    opset: int
    train_mode: bool = False  # exported so; PyTorch trains in training mode whatever this says
    symbolic_batch: bool = True
    # Weights stay as they are in the model: no batch norm folded into its convolution, no matrix stored transposed.
    keep_weights: bool = False
    export_batch: int = 4
    batch: int = 4  # trains with
    image: int = 0  # 0: tokens
    per_position: bool = True  # with tokens: a label for each; False: one of CLASSES for all
    initial: dict = field(default_factory=lambda: INITIAL)
    learning_rate: float = 2**-6


BATCH_NORM = {"keep_weights": True, "initial": OFF_THE_EDGE, "learning_rate": 2**-10}
CASES = {
    "squeezenet": Case(partial(vision.squeezenet1_1, num_classes=CLASSES), "torchscript", 13, image=64),
    "shufflenet_v2": Case(shufflenet_v2, "torchscript", 14, train_mode=True, symbolic_batch=False, image=64,
                          **BATCH_NORM),
    "mobilenet_v2": Case(mobilenet_v2, "dynamo", 18, image=64, **BATCH_NORM),
    "efficientnet_v2": Case(efficientnet, "torchscript", 16, train_mode=True, symbolic_batch=False, export_batch=2,
                            image=64, **BATCH_NORM),
    "regnet_y": Case(regnet_y, "torchscript", 15, image=64, **BATCH_NORM),
    "googlenet": Case(partial(vision.googlenet, num_classes=CLASSES, aux_logits=False, init_weights=False), "dynamo",
                      20, train_mode=True, image=32, batch=7, **BATCH_NORM | {"learning_rate": 2**-13}),
    "convnext": Case(convnext, "torchscript", 17, symbolic_batch=False, export_batch=2, batch=3, image=64),
    "swin": Case(swin, "dynamo", 19, keep_weights=True, image=32),
    "groupnorm_cnn": Case(GroupNormCnn, "torchscript", 17, image=32),
    "distilbert": Case(partial(hugging_face, hf.DistilBertForMaskedLM, hf.DistilBertConfig, "eager", **DISTILBERT),
                       "torchscript", 17, keep_weights=True),
    "bert_classifier": Case(partial(hugging_face, hf.BertForSequenceClassification, hf.BertConfig, "sdpa",
                                    num_labels=CLASSES, **BERT), "dynamo", 20, keep_weights=True, per_position=False),
    "opt": Case(partial(hugging_face, hf.OPTForCausalLM, hf.OPTConfig, "eager", **OPT), "torchscript", 16,
                train_mode=True, keep_weights=True, symbolic_batch=False),
    "opt_tied": Case(partial(hugging_face, hf.OPTForCausalLM, hf.OPTConfig, "sdpa", **OPT), "dynamo", 18),
    "llama": Case(partial(hugging_face, hf.LlamaForCausalLM, hf.LlamaConfig, "eager", **LLAMA), "dynamo", 18,
                  symbolic_batch=False),
    "gpt_neox": Case(partial(hugging_face, hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig, "sdpa", **BERT), "dynamo", 19),
    "encoder": Case(Encoder, "torchscript", 14, train_mode=True, keep_weights=True, symbolic_batch=False),
    "lstm_lm": Case(partial(Recurrent, nn.LSTM), "torchscript", 13, keep_weights=True),
    "gru_lm": Case(partial(Recurrent, nn.GRU), "dynamo", 18, keep_weights=True, symbolic_batch=False),
}  # fmt: skip
