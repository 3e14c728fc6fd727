"""The zoo's networks in plain PyTorch, with the zoo's layer names.

The golden tests (tests/golden/make_golden.py) and the CPU benchmark (torch_peers.py) train these. Settings have the
zoo's names and defaults; every model maps a batch to the logits that cross entropy takes.
"""

import torch
from torch import nn
from torch.nn import functional as F


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class CnnStage(nn.Module):
    """Halves the image, then one residual block."""

    def __init__(self, inputs, width):
        super().__init__()
        self.down, self.norm0 = conv(inputs, width, 3, stride=2), nn.BatchNorm2d(width)
        self.conv1, self.norm1 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = conv(width, width, 3), nn.BatchNorm2d(width)

    def forward(self, x):
        x = F.relu(self.norm0(self.down(x)))
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + x)


class Cnn(nn.Module):
    def __init__(self, channels=1, classes=10, width=16, **_):
        super().__init__()
        self.stem = nn.ModuleDict({"conv": conv(channels, width, 3), "norm": nn.BatchNorm2d(width)})
        self.stage1 = CnnStage(width, 2 * width)
        self.stage2 = CnnStage(2 * width, 4 * width)
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):  # [B, C, H, W]
        x = F.relu(self.stem["norm"](self.stem["conv"](x)))
        x = self.stage2(self.stage1(x))
        return self.fc(x.mean((2, 3)))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """With the stride in the 3 x 3 convolution (v1.5)."""

    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.downsample = shortcut(inputs, 4 * width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def shortcut(inputs, outputs, stride):
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    def __init__(self, block, blocks, channels=3, classes=1000, **_):
        super().__init__()
        self.conv1, self.bn1 = conv(channels, 64, 7, stride=2), nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = 64
        for stage, count in enumerate(blocks):
            layer, width = [], 64 << stage
            for i in range(count):
                layer.append(block(inputs, width, 2 if i == 0 and stage > 0 else 1))
                inputs = width * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):  # [B, C, H, W]
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class DecoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):  # [B, S, D]
        batch, sequence, width = x.shape
        qkv = self.attn["c_attn"](self.ln_1(x)).view(batch, sequence, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, S, D / heads]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(batch, sequence, width))
        y = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](y)


class Transformer(nn.Module):
    """A decoder as GPT-2 builds it, its output tied to the embedding."""

    def __init__(self, vocabulary=256, width=256, heads=8, layers=6, sequence=128, **_):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.h = nn.ModuleList(DecoderBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens):  # [B, S]
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)  # [B, S, vocabulary]


class Recurrent(nn.Module):
    """An embedding, `kind` (nn.LSTM or nn.GRU) and a linear layer."""

    def __init__(self, kind, vocabulary=256, width=256, hidden=512, layers=2, dropout=0, **_):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = kind(width, hidden, num_layers=layers, dropout=dropout, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens):  # [B, S]
        return self.head(self.rnn(self.embedding(tokens))[0])  # [B, S, vocabulary]


def build(name, settings):
    """The zoo's network `name` with `settings` (a dict; what is missing has the zoo's default)."""
    return {
        "cnn": lambda: Cnn(**settings),
        "resnet-18": lambda: ResNet(BasicBlock, [2, 2, 2, 2], **settings),
        "resnet-50": lambda: ResNet(Bottleneck, [3, 4, 6, 3], **settings),
        "transformer": lambda: Transformer(**settings),
        "lstm": lambda: Recurrent(nn.LSTM, **settings),
        "gru": lambda: Recurrent(nn.GRU, **settings),
    }[name]()


def takes_tokens(name):
    return name in ("transformer", "lstm", "gru")


def loss_of(model, inputs, labels):
    logits = model(inputs)
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def parameter_count(model):
    return sum(p.numel() for p in model.parameters())
