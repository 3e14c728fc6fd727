"""Models that an import can easily train as something else than what they are: where files do not say what a tensor
is, where two tensors look like one, and where the gradient is not that of the formula."""

from functools import partial

import torch
from exports.case import Case, Tokens
from onnx_cases import CLASSES, VOCABULARY
from torch import nn
from torch.nn import functional as F

WIDTH = 16


class Tied(nn.Module):
    """Encodes with a matrix and decodes with its transpose, both raw."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 12) / 4)

    def forward(self, x):  # [B, 12]
        return torch.tanh(x @ self.weight.t()) @ self.weight


class LanguageModel(nn.Module):
    """How the output layer starts, beside the embedding: tied, as a copy, or on its own."""

    def __init__(self, output, padding_idx=None):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=padding_idx)
        self.body = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if output == "tied":
            self.head.weight = self.embedding.weight
        if output == "copy":
            self.head.weight = nn.Parameter(self.embedding.weight.detach().clone())

    def forward(self, ids):  # [B, S]
        return self.head(self.body(self.embedding(ids)).tanh())


class Normalised(nn.Module):
    """Buffers with the mean and the deviation of the data's channels."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.conv((x - self.mean) / self.std).relu().mean((2, 3)))


class Blurred(nn.Module):
    """A fixed kernel before a trained one."""

    def __init__(self):
        super().__init__()
        row = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("kernel", torch.outer(row, row).repeat(3, 1, 1, 1))
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.conv(F.conv2d(x, self.kernel, stride=2, groups=3)).relu().mean((2, 3)))


class Sinusoids(nn.Module):
    """Positions in a buffer, added to what is embedded."""

    def __init__(self, trained=False):
        super().__init__()
        angles = torch.arange(12)[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        if trained:
            self.positions = nn.Parameter(table)
        else:
            self.register_buffer("positions", table)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        return self.head((self.embedding(ids) + self.positions[: ids.shape[1]]).tanh())


class Frozen(nn.Module):
    """The first layer is not trained."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.first.requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x).tanh())


class FrozenBatchNorm(nn.Module):
    """A batch norm that stays in evaluation mode while the rest is trained."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, CLASSES)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-0.2, 0.2)
            self.norm.running_var.uniform_(0.5, 1.5)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


class Detached(nn.Module):
    """The skip gets no gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(12, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.first(x)
        return self.third(self.second(x).tanh() + x.detach())


class AtTheBound(nn.Module):
    """Many values lie exactly on the bounds, where PyTorch's gradient is its own choice."""

    def __init__(self, act):
        super().__init__()
        self.first, self.second, self.act = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES), act
        with torch.no_grad():
            self.first.weight[: WIDTH // 2] = 0  # so that these outputs are their biases
            self.first.bias[: WIDTH // 2] = torch.tensor([0.0, 6.0, 1.0, -1.0, 3.0, -3.0, 0.5, -0.5])

    def forward(self, x):
        return self.second(self.act(self.first(x)))


class CountsTheBatch(nn.Module):
    """The size of the batch is a number of the computation."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.second(self.first(x).tanh() * x.shape[0] ** 0.5)


class CentredBatch(nn.Module):
    """The mean over the batch is taken away."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.first(x)
        return self.second((x - x.mean(0, keepdim=True)).tanh())


class BatchInTheMiddle(nn.Module):
    """Reshapes with the batch as a plain number."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(24, CLASSES)

    def forward(self, x):  # [B, 12]
        return self.second(self.first(x.view(x.shape[0] * 3, 4)).tanh().view(x.shape[0], 24))


class LargeValue(nn.Module):
    """One weight is as large as the numbers that stand for minus infinity in masks."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(12, WIDTH) / 4), nn.Linear(WIDTH, CLASSES)
        with torch.no_grad():
            self.first[0, 0] = 2e4

    def forward(self, x):
        return self.second((x @ self.first).tanh())


class Scaled(nn.Module):
    """Small learned factors: of a residual branch, and of the logits."""

    def __init__(self):
        super().__init__()
        self.body, self.branch = nn.Linear(12, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.layer_scale = nn.Parameter(torch.full((WIDTH,), 1e-4))
        self.logit_scale = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.body(x)
        return self.head(x + self.layer_scale * self.branch(x).tanh()) * self.logit_scale.exp()


class FreshFactors(nn.Module):
    """Learned factors of one and shifts of zero, which optimisers of graphs take out."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.gain, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        x = self.body(x)
        return self.head((x * self.gain + self.shift).tanh() + self.gate * x)


class RelativeBias(nn.Module):
    """Attention with a learned bias for each distance, found by a table of indices."""

    def __init__(self):
        super().__init__()
        self.embedding, self.qkv = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.bias = nn.Parameter(torch.zeros(2 * 12 - 1, 2))
        places = torch.arange(12)
        self.register_buffer("distances", places[:, None] - places[None] + 11)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        q, k, v = self.qkv(self.embedding(ids)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.distances].permute(2, 0, 1)
        weights = (q @ k.transpose(-1, -2) / 8**0.5 + bias).softmax(-1)
        return self.head((weights @ v).transpose(1, 2).flatten(2))


class LearnedQueries(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.queries, self.key = nn.Parameter(torch.randn(4, WIDTH)), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(4 * WIDTH, CLASSES)

    def forward(self, ids):
        x = self.embedding(ids)
        weights = (self.queries @ self.key(x).transpose(-1, -2)).softmax(-1)
        return self.head((weights @ x).flatten(1))


class SameTwice(nn.Module):
    """Two layers that start equal, or one layer used twice."""

    def __init__(self, shared):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.second = self.first if shared else nn.Linear(WIDTH, WIDTH)
        self.second.load_state_dict(self.first.state_dict())

    def forward(self, x):
        return self.last(self.second(self.first(x).tanh()).tanh())


class RawTwins(nn.Module):
    """Two raw matrices of one shape that start equal."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)
        self.b = nn.Parameter(self.a.detach().clone())
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.last(((x @ self.a).tanh() @ self.b).tanh())


class BufferLikeParameter(nn.Module):
    """A buffer and a parameter of the same shape and values, both added."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.shift = nn.Parameter(torch.linspace(-1, 1, WIDTH))
        self.register_buffer("offset", torch.linspace(-1, 1, WIDTH))

    def forward(self, x):
        return self.head((self.body(x) + self.shift).tanh() + self.offset)


class PlainTensor(nn.Module):
    """A tensor that is neither a parameter nor a buffer, and a module-level number."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.weight_of_features = torch.linspace(0.5, 1.5, 12)

    def forward(self, x):
        return self.head(self.body(x * self.weight_of_features.to(x.dtype)).tanh() + 0.25)


class Unused(nn.Module):
    """A layer that takes no part."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.spare = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES), nn.Linear(3, 3)

    def forward(self, x):
        return self.second(self.first(x).tanh())


class MovingAverage(nn.Module):
    """A buffer that the forward pass changes, as a codebook or a centre is."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("centre", torch.zeros(WIDTH))

    def forward(self, x):
        x = self.first(x)
        if self.training:
            self.centre.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.second((x - self.centre).tanh())


class StraightThrough(nn.Module):
    """Rounds on the way forward, and not on the way back."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.first(x)
        return self.second(x + (x.round() - x).detach())


def batch_norm_net(**settings):
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8, **settings), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))  # fmt: skip


def at_the_bound(act):
    return Case(partial(AtTheBound, act), (12,), on_bounds=True)


IMAGE = (3, 12, 12)
CASES = {
    "tied_transposed": Case(Tied, (12,), loss="mse"),
    "tied_embedding": Case(partial(LanguageModel, "tied"), Tokens()),
    "untied_copy": Case(partial(LanguageModel, "copy"), Tokens()),
    "padding_idx": Case(partial(LanguageModel, "own", padding_idx=3), Tokens()),
    "padding_idx_tied": Case(partial(LanguageModel, "tied", padding_idx=3), Tokens()),
    "buffers_mean_std": Case(Normalised, IMAGE),
    "buffer_blur_kernel": Case(Blurred, IMAGE),
    "buffer_sinusoids": Case(Sinusoids, Tokens()),
    "learned_sinusoids": Case(partial(Sinusoids, True), Tokens()),
    "buffer_like_parameter": Case(BufferLikeParameter, (12,)),
    "buffer_moving_average": Case(MovingAverage, (12,)),
    "plain_tensor": Case(PlainTensor, (12,)),
    "frozen_layer": Case(Frozen, (12,), has_untold=True),
    "frozen_batch_norm": Case(FrozenBatchNorm, IMAGE, has_untold=True),
    "batch_norm_momentum": Case(partial(batch_norm_net, momentum=0.3, eps=1e-3), IMAGE),
    "batch_norm_cumulative": Case(partial(batch_norm_net, momentum=None), IMAGE),
    "batch_norm_no_statistics": Case(partial(batch_norm_net, track_running_stats=False), IMAGE),
    "batch_norm_no_affine": Case(partial(batch_norm_net, affine=False), IMAGE),
    "detach": Case(Detached, (12,), has_untold=True),
    "straight_through": Case(StraightThrough, (12,)),
    "relu6_at_the_bound": at_the_bound(nn.ReLU6()),
    "clamp_at_the_bound": at_the_bound(lambda x: x.clamp(-1, 1)),
    "clamp_min_at_the_bound": at_the_bound(lambda x: x.clamp(min=0.5)),
    "hardtanh_at_the_bound": at_the_bound(nn.Hardtanh()),
    "hardswish_at_the_bound": at_the_bound(nn.Hardswish()),
    "hardsigmoid_at_the_bound": at_the_bound(nn.Hardsigmoid()),
    "abs_at_zero": at_the_bound(torch.abs),
    "leaky_relu_at_zero": at_the_bound(nn.LeakyReLU(0.1)),
    "maximum_of_equals": at_the_bound(lambda x: torch.maximum(x, -x)),
    "batch_as_a_number": Case(CountsTheBatch, (12,), has_untold=True),
    "batch_mean": Case(CentredBatch, (12,)),
    "batch_in_reshapes": Case(BatchInTheMiddle, (12,)),
    "large_value": Case(LargeValue, (12,)),
    "layer_and_logit_scale": Case(Scaled, (12,)),
    "fresh_factors": Case(FreshFactors, (12,)),
    "relative_bias": Case(RelativeBias, Tokens()),
    "learned_queries": Case(LearnedQueries, Tokens()),
    "equal_layers": Case(partial(SameTwice, False), (WIDTH,)),
    "layer_used_twice": Case(partial(SameTwice, True), (WIDTH,)),
    "equal_raw_matrices": Case(RawTwins, (WIDTH,)),
    "unused_layer": Case(Unused, (12,)),
}  # fmt: skip
