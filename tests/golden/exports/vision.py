"""torchvision's networks, with their whole structure and few channels."""

from functools import partial

import torchvision.models as vision
from exports.case import Case, Wrapped
from make_zoo_golden import ResNet
from onnx_cases import CLASSES, convnext, efficientnet, mobilenet_v2, regnet_y, shufflenet_v2, swin
from torch import nn
from torchvision.models.efficientnet import MBConvConfig
from torchvision.models.inception import BasicConv2d, InceptionA, InceptionB, InceptionC, InceptionD, InceptionE
from torchvision.models.mobilenetv3 import _mobilenet_v3_conf
from torchvision.models.regnet import BlockParams
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.models.segmentation.deeplabv3 import DeepLabHead
from torchvision.models.segmentation.fcn import FCNHead
from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2


def resnext():
    return vision.ResNet(Bottleneck, [1, 1, 1, 1], groups=4, width_per_group=4, num_classes=CLASSES)


def efficientnet_b():
    blocks = [MBConvConfig(1, 3, 1, 16, 16, 1), MBConvConfig(4, 3, 2, 16, 24, 2), MBConvConfig(4, 5, 2, 24, 40, 1)]
    return vision.EfficientNet(blocks, dropout=0.2, num_classes=CLASSES, last_channel=128)


def mobilenet_v3():
    settings, _ = _mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.5)
    return vision.MobileNetV3(settings[:6], 64, num_classes=CLASSES)


def regnet_x():
    params = BlockParams.from_init_params(depth=6, w_0=24, w_a=24, w_m=2.5, group_width=8)
    return vision.RegNet(params, num_classes=CLASSES)


def inception():
    blocks = [BasicConv2d(3, 32, kernel_size=3, stride=2), InceptionA(32, 8), InceptionB(232), InceptionC(712, 16),
              InceptionD(768), InceptionE(1280)]  # fmt: skip
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, CLASSES))


def classifier(channels):
    """As in AlexNet and VGG, with few weights instead of four thousand by four thousand."""
    return (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 64), nn.ReLU(True), nn.Dropout(),
            nn.Linear(64, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, CLASSES))  # fmt: skip


def vgg(batch_norm):
    widths = [8, "M", 16, "M", 32, 32, "M", 48, 48, "M"]
    return nn.Sequential(vision.vgg.make_layers(widths, batch_norm), *classifier(48))


def alexnet():
    pool = partial(nn.MaxPool2d, 3, 2)
    return nn.Sequential(nn.Conv2d(3, 16, 11, 4, 2), nn.ReLU(True), pool(), nn.Conv2d(16, 24, 5, padding=2),
                         nn.ReLU(True), pool(), nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(True),
                         nn.Conv2d(32, 24, 3, padding=1), nn.ReLU(True), pool(), *classifier(24))  # fmt: skip


def vit():
    return vision.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64,
                                    num_classes=CLASSES)  # fmt: skip


def swin_v2():
    return vision.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=CLASSES, block=SwinTransformerBlockV2,
                                  downsample_layer=PatchMergingV2)  # fmt: skip


def maxvit():
    return vision.MaxVit(input_size=(32, 32), stem_channels=16, partition_size=4, block_channels=[16, 24],
                         block_layers=[1, 1], head_dim=8, stochastic_depth_prob=0.0, num_classes=CLASSES)  # fmt: skip


def segmented(make_head):
    """A small backbone, a head of scores for each of its pixels, and these enlarged to the image: [B, H, W, classes]"""
    backbone = [nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]  # fmt: skip

    def call(model, x):
        scores = nn.functional.interpolate(model(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        return scores.permute(0, 2, 3, 1)

    return Wrapped(nn.Sequential(*backbone, make_head()), call)


def off_the_edge(build):
    """A deep network whose ReLUs have few values near zero, so that rounding switches none of them: with fresh batch
    norms these are chaotic on small batches."""
    model = build()
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.3, 0.5)
        nn.init.uniform_(norm.bias, 0.75, 1.25)
    return model


CASES = {
    "resnet_basic": Case(partial(ResNet, BasicBlock, [1, 1, 1, 1], 8, CLASSES)),
    "resnet_bottleneck": Case(partial(ResNet, Bottleneck, [1, 1, 1, 1], 8, CLASSES)),
    "resnext": Case(partial(off_the_edge, resnext)),
    "densenet": Case(partial(vision.DenseNet, 8, (2, 2, 2), 16, num_classes=CLASSES)),
    "efficientnet": Case(efficientnet_b),
    "efficientnet_v2": Case(efficientnet),
    "mnasnet": Case(partial(off_the_edge, partial(vision.MNASNet, 0.35, num_classes=CLASSES)), (3, 64, 64)),
    "squeezenet": Case(partial(vision.squeezenet1_1, num_classes=CLASSES), (3, 64, 64)),
    "squeezenet_1_0": Case(partial(vision.squeezenet1_0, num_classes=CLASSES), (3, 64, 64)),
    "mobilenet_v2": Case(mobilenet_v2),
    "mobilenet_v3": Case(mobilenet_v3),
    "shufflenet_v2": Case(shufflenet_v2, (3, 64, 64)),
    "googlenet": Case(partial(off_the_edge, partial(vision.googlenet, num_classes=CLASSES, aux_logits=False,
                                                    init_weights=False))),
    "inception": Case(partial(off_the_edge, inception)),
    "regnet_x": Case(regnet_x),
    "regnet_y": Case(regnet_y),
    "vgg": Case(partial(vgg, False)),
    "vgg_bn": Case(partial(vgg, True)),
    "alexnet": Case(alexnet, (3, 96, 96)),
    "convnext": Case(convnext),
    "vit": Case(vit),
    "swin": Case(swin),
    "swin_v2": Case(swin_v2),
    "maxvit": Case(maxvit),
    "fcn": Case(partial(segmented, partial(FCNHead, 32, CLASSES))),
    "deeplab_v3": Case(partial(segmented, partial(DeepLabHead, 32, CLASSES, [2, 4]))),
}  # fmt: skip
