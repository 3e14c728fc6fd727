"""Models of torch.nn's own layers, as people write them."""

from functools import partial

import torch
from exports.case import Case, Tokens
from onnx_cases import CLASSES, VOCABULARY, Encoder, GroupNormCnn, Recurrent
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

WIDTH = 32


def sequential(*layers):
    """Layers made anew at every call, each given as its class and its arguments."""
    return lambda: nn.Sequential(*(kind(*arguments) for kind, *arguments in layers))


def head(channels):
    return (nn.AdaptiveAvgPool2d, 1), (nn.Flatten,), (nn.Linear, channels, CLASSES)


class Translator(nn.Module):
    """nn.Transformer; both sides read the same tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.transformer = nn.Transformer(WIDTH, 4, 2, 2, 64, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):  # [B, S]
        x = self.embedding(ids)
        mask = torch.triu(torch.full((ids.shape[1], ids.shape[1]), float("-inf"), dtype=x.dtype), 1)
        return self.head(self.transformer(x, x, tgt_mask=mask))


class PostNormEncoder(nn.Module):
    def __init__(self, padding=False):
        super().__init__()
        self.embedding, self.padding = nn.Embedding(VOCABULARY, WIDTH), padding
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):  # [B, S]
        mask = ids == 0 if self.padding else None
        return self.head(self.encoder(self.embedding(ids), src_key_padding_mask=mask))


class CrossAttention(nn.Module):
    """Keys and values of other widths than the queries, which are learned."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 24)
        self.queries = nn.Parameter(torch.randn(1, 6, WIDTH))
        self.values = nn.Linear(24, 16)
        self.attention = nn.MultiheadAttention(WIDTH, 4, kdim=24, vdim=16, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids):  # [B, S]
        x = self.embedding(ids)
        queries = self.queries.expand(ids.shape[0], -1, -1)
        return self.head(self.attention(queries, x, self.values(x), need_weights=False)[0].mean(1))


class RawAttention(nn.Module):
    """Self-attention written by hand with raw matrices."""

    def __init__(self, heads=1):
        super().__init__()
        self.embedding, self.heads = nn.Embedding(VOCABULARY, WIDTH), heads
        for name in ("wq", "wk", "wv", "wo"):
            setattr(self, name, nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def split(self, x):  # [B, S, D] -> [B, heads, S, D / heads]
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, ids):  # [B, S]
        x = self.embedding(ids)
        q, k, v = (self.split(x @ w) for w in (self.wq, self.wk, self.wv))
        scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        return self.head(x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ self.wo)


class EinsumAttention(RawAttention):
    def forward(self, ids):
        x = self.embedding(ids)
        q, k, v = (torch.einsum("bsd,de->bse", x, w) for w in (self.wq, self.wk, self.wv))
        weights = torch.einsum("bqd,bkd->bqk", q, k).softmax(-1)
        return self.head(x + torch.einsum("bqk,bkd->bqd", weights, v))


class BothWays(nn.Module):
    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.rnn = kind(16, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, VOCABULARY)

    def forward(self, ids):  # [B, S]
        return self.head(self.rnn(self.embedding(ids))[0])


class LastState(nn.Module):
    """A classifier on the last hidden state of an LSTM that starts from learned states."""

    def __init__(self, learned):
        super().__init__()
        self.rnn = nn.LSTM(8, 24, batch_first=True)
        self.start = nn.Parameter(torch.randn(2, 1, 1, 24)) if learned else None
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x):  # [B, S, 8]
        states = None if self.start is None else tuple(s.expand(-1, x.shape[0], -1).contiguous() for s in self.start)
        return self.head(self.rnn(x, states)[1][0][-1])


class Unrolled(nn.Module):
    """A GRUCell in a loop."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(8, 24), nn.Linear(24, CLASSES)

    def forward(self, x):  # [B, S, 8]
        h = torch.zeros(x.shape[0], 24, dtype=x.dtype)
        for i in range(x.shape[1]):
            h = self.cell(x[:, i], h)
        return self.head(h)


class UNet(nn.Module):
    """Down and up again: [B, 3, H, W] -> [B, H, W, classes]."""

    def __init__(self, up):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.up = (
            nn.ConvTranspose2d(16, 16, 2, stride=2) if up == "transposed" else nn.Upsample(scale_factor=2, mode=up)
        )
        self.last = nn.Conv2d(24, CLASSES, 3, padding=1)

    def forward(self, x):
        high = self.first(x)
        low = self.up(self.second(F.max_pool2d(high, 2)))
        return self.last(torch.cat([high, low], 1)).permute(0, 2, 3, 1)


class Siamese(nn.Module):
    """Two images, one on top of the other, through one tower: [B, 6, H, W]"""

    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 16))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head((self.tower(x[:, :3]) - self.tower(x[:, 3:])).abs())


class GraphConvolution(nn.Module):
    """Nodes with features [B, nodes, F], a fixed graph, Kipf and Welling's layers."""

    def __init__(self):
        super().__init__()
        links = (torch.rand(8, 8) < 0.4).float() + torch.eye(8)
        self.register_buffer("adjacency", links / links.sum(1, keepdim=True))
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.adjacency @ self.second((self.adjacency @ self.first(x)).relu())


class BagOfWords(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(VOCABULARY, WIDTH, mode=mode), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids):
        return self.head(self.bag(ids))


class MeanOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids):
        return self.head(self.words(ids).mean(1))


class Gated(nn.Module):
    """Feed-forward layers with GLU and PReLU."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (
            nn.Linear(12, 2 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, CLASSES),
        )
        self.act = nn.PReLU()

    def forward(self, x):
        return self.third(self.act(self.second(F.glu(self.first(x)))))


class RootMeanSquare(nn.Module):
    """The norm of LLaMA, by hand."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        x = self.first(x)
        return self.second(self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class CosineClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.weight = nn.Linear(12, WIDTH), nn.Parameter(torch.randn(CLASSES, WIDTH))

    def forward(self, x):
        return 10 * F.linear(F.normalize(self.body(x).tanh()), F.normalize(self.weight))


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(2, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.third(torch.sin(self.second(torch.sin(10 * self.first(x)))))


class Mixer(nn.Module):
    """MLP-mixer: tokens among themselves, then channels."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.tokens = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 4))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norms[1](x))
        return self.head(self.norms[2](x).mean(1))


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.down, self.up = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = F.hardswish(self.conv(x))
        x = x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return self.head(x.amax((2, 3)))


def normed(norm):
    """A convolution under weight or spectral norm, and one layer more."""
    conv = norm(nn.Conv2d(3, 8, 3))
    return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))


IMAGE = (3, 16, 16)
CASES = {
    "mlp": Case(sequential((nn.Flatten,), (nn.Linear, 48, 32), (nn.ReLU,), (nn.Linear, 32, 32), (nn.ReLU,),
                           (nn.Linear, 32, CLASSES)), (3, 4, 4)),
    "mlp_batch_norm": Case(sequential((nn.Linear, 12, 32), (nn.BatchNorm1d, 32), (nn.ELU,), (nn.Linear, 32, CLASSES)),
                           (12,)),
    "lenet": Case(sequential((nn.Conv2d, 1, 6, 5), (nn.Tanh,), (nn.AvgPool2d, 2), (nn.Conv2d, 6, 16, 5), (nn.Tanh,),
                             (nn.AvgPool2d, 2), (nn.Flatten,), (nn.Linear, 256, 32), (nn.Sigmoid,),
                             (nn.Linear, 32, CLASSES)), (1, 28, 28)),
    "transformer": Case(Translator, Tokens()),
    "encoder_post_norm": Case(PostNormEncoder, Tokens()),
    "encoder_pre_norm": Case(Encoder, Tokens()),
    "encoder_padding_mask": Case(partial(PostNormEncoder, True), Tokens()),
    "cross_attention": Case(CrossAttention, Tokens()),
    "raw_attention": Case(RawAttention, Tokens()),
    "raw_attention_heads": Case(partial(RawAttention, 4), Tokens()),
    "einsum_attention": Case(EinsumAttention, Tokens()),
    "lstm": Case(partial(Recurrent, nn.LSTM), Tokens()),
    "gru": Case(partial(Recurrent, nn.GRU), Tokens()),
    "rnn_tanh": Case(partial(Recurrent, nn.RNN), Tokens()),
    "bilstm": Case(BothWays, Tokens()),
    "bigru": Case(partial(BothWays, nn.GRU), Tokens()),
    "lstm_last_state": Case(partial(LastState, False), (6, 8)),
    "lstm_learned_state": Case(partial(LastState, True), (6, 8)),
    "gru_cell_unrolled": Case(Unrolled, (6, 8)),
    "conv1d_audio": Case(sequential((nn.Conv1d, 1, 8, 9, 4), (nn.BatchNorm1d, 8), (nn.ReLU,), (nn.Conv1d, 8, 16, 3, 2),
                                    (nn.ReLU,), (nn.AdaptiveAvgPool1d, 1), (nn.Flatten,), (nn.Linear, 16, CLASSES)),
                         (1, 128)),
    "conv1d_square": Case(sequential((nn.Conv1d, 16, 8, 3), (nn.ReLU,), (nn.Flatten,), (nn.Linear, 112, CLASSES)),
                          (16, 16)),
    "conv3d": Case(sequential((nn.Conv3d, 1, 4, 3), (nn.ReLU,), (nn.AdaptiveAvgPool3d, 1), (nn.Flatten,),
                              (nn.Linear, 4, CLASSES)), (1, 8, 8, 8)),
    "instance_norm_affine": Case(sequential((nn.Conv2d, 3, 8, 3), (nn.InstanceNorm2d, 8, 1e-5, 0.1, True), (nn.ReLU,),
                                            *head(8)), IMAGE),
    "instance_norm": Case(sequential((nn.Conv2d, 3, 8, 3), (nn.InstanceNorm2d, 8), (nn.ReLU,), *head(8)), IMAGE),
    "group_norm": Case(GroupNormCnn),
    "layer_norm_chw": Case(sequential((nn.Conv2d, 3, 8, 3), (nn.LayerNorm, [8, 14, 14]), (nn.ReLU,), *head(8)), IMAGE),
    "layer_norm_no_affine": Case(sequential((nn.Linear, 12, 32), (nn.LayerNorm, 32, 1e-5, False), (nn.SiLU,),
                                            (nn.Linear, 32, CLASSES)), (12,)),
    "weight_norm": Case(partial(normed, parametrizations.weight_norm), IMAGE),
    "spectral_norm": Case(partial(normed, parametrizations.spectral_norm), IMAGE),
    "unet_nearest": Case(partial(UNet, "nearest"), IMAGE),
    "unet_bilinear": Case(partial(UNet, "bilinear"), IMAGE),
    "unet_transposed": Case(partial(UNet, "transposed"), IMAGE),
    "dcgan_discriminator": Case(sequential(
        (nn.Conv2d, 3, 8, 4, 2, 1, 1, 1, False), (nn.LeakyReLU, 0.2), (nn.Conv2d, 8, 16, 4, 2, 1, 1, 1, False),
        (nn.BatchNorm2d, 16), (nn.LeakyReLU, 0.2), (nn.Conv2d, 16, 1, 8, 1, 0, 1, 1, False), (nn.Flatten,),
        (nn.Sigmoid,)), loss="mse"),
    "dcgan_generator": Case(sequential(
        (nn.Unflatten, 1, (16, 1, 1)), (nn.ConvTranspose2d, 16, 16, 4, 1, 0, 0, 1, False), (nn.BatchNorm2d, 16),
        (nn.ReLU,), (nn.ConvTranspose2d, 16, 3, 4, 2, 1, 0, 1, False), (nn.Tanh,)), (16,), loss="mse"),
    "autoencoder": Case(sequential((nn.Linear, 12, 8), (nn.Softplus,), (nn.Linear, 8, 12)), (12,), loss="mse"),
    "embedding_bag_mean": Case(partial(BagOfWords, "mean"), Tokens()),
    "mean_of_words": Case(MeanOfWords, Tokens()),
    "graph_convolution": Case(GraphConvolution, (8, 6)),
    "mlp_mixer": Case(Mixer, IMAGE),
    "siamese": Case(Siamese, (6, 16, 16)),
    "pixel_shuffle": Case(sequential((nn.Conv2d, 3, 12, 3, 1, 1), (nn.PixelShuffle, 2)), (3, 8, 8), loss="mse"),
    "reflect_padding": Case(sequential((nn.ReflectionPad2d, 2), (nn.Conv2d, 3, 8, 5), (nn.ReLU,), *head(8)), IMAGE),
    "replicate_padding": Case(sequential((nn.Conv2d, 3, 8, 5, 1, 2, 1, 1, True, "replicate"), (nn.ReLU,), *head(8)),
                              IMAGE),
    "gated": Case(Gated, (12,)),
    "rms_norm_by_hand": Case(RootMeanSquare, (12,)),
    "rms_norm": Case(sequential((nn.Linear, 12, 32), (nn.RMSNorm, 32), (nn.Linear, 32, CLASSES)), (12,)),
    "cosine_classifier": Case(CosineClassifier, (12,)),
    "siren": Case(Siren, (2,), loss="mse", scale=1.0),
    "squeeze_excite": Case(SqueezeExcite, IMAGE),
    "ceil_pooling": Case(sequential((nn.Conv2d, 3, 8, 3), (nn.ReLU,), (nn.MaxPool2d, 3, 2, 0, 1, False, True),
                                    (nn.Flatten,), (nn.Linear, 8 * 49, CLASSES)), IMAGE),
    "depthwise": Case(sequential((nn.Conv2d, 3, 12, 3, 1, 1, 1, 3), (nn.ReLU6,), (nn.Conv2d, 12, 24, 3, 2, 2, 2, 12),
                                 (nn.Mish,), *head(24)), IMAGE),
    "activations": Case(sequential((nn.Linear, 12, 32), (nn.CELU,), (nn.Linear, 32, 32), (nn.SELU,),
                                   (nn.Linear, 32, 32), (nn.Softsign,), (nn.Linear, 32, 32), (nn.LogSigmoid,),
                                   (nn.Linear, 32, CLASSES)), (12,)),
}  # fmt: skip
