"""Networks for images of timm and of Hugging Face."""

from functools import partial

import transformers as hf
from exports.case import Case, Wrapped
from onnx_cases import CLASSES
from timm import models as tm

VIT = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
       "intermediate_size": 64, "num_labels": CLASSES}  # fmt: skip
TIMM_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": CLASSES}


def logits(kind, config, attention=None, **settings):
    if attention:
        settings["attn_implementation"] = attention
    return Wrapped(kind(config(**settings)), lambda model, x: model(pixel_values=x).logits)


def clip_vision():
    config = hf.CLIPVisionConfig(projection_dim=CLASSES, attn_implementation="eager", **VIT)
    return Wrapped(hf.CLIPVisionModelWithProjection(config), lambda model, x: model(pixel_values=x).image_embeds)


def segformer():
    return logits(hf.SegformerForImageClassification, hf.SegformerConfig, num_encoder_blocks=2, depths=[1, 1],
                  sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2],
                  num_attention_heads=[1, 2], mlp_ratios=[2, 2], num_labels=CLASSES)  # fmt: skip


def convnext_v2():
    return tm.convnext.ConvNeXt(depths=(1, 1, 1, 1), dims=(16, 24, 32, 40), num_classes=CLASSES, use_grn=True,
                                ls_init_value=None)  # fmt: skip


def norm_free():
    """Convolutions of standardised weights."""
    config = tm.nfnet._nfres_cfg(depths=(1, 1, 1, 1), channels=(16, 32, 48, 64))
    return tm.nfnet.NormFreeNet(config, num_classes=CLASSES)


CASES = {
    "hf_vit": Case(partial(logits, hf.ViTForImageClassification, hf.ViTConfig, "eager", **VIT)),
    "hf_vit_sdpa": Case(partial(logits, hf.ViTForImageClassification, hf.ViTConfig, "sdpa", **VIT)),
    "hf_deit": Case(partial(logits, hf.DeiTForImageClassification, hf.DeiTConfig, "eager", **VIT)),
    "hf_beit": Case(partial(logits, hf.BeitForImageClassification, hf.BeitConfig, "eager", **VIT)),
    "hf_dinov2": Case(partial(logits, hf.Dinov2ForImageClassification, hf.Dinov2Config, "eager", **VIT)),
    "hf_clip_vision": Case(clip_vision),
    "hf_segformer": Case(segformer),
    "timm_vit_layer_scale": Case(partial(tm.vision_transformer.VisionTransformer, init_values=1e-4, qk_norm=True,
                                         **TIMM_VIT)),
    "timm_deit3": Case(partial(tm.deit.VisionTransformerDistilled, **TIMM_VIT)),
    "timm_beit": Case(partial(tm.beit.Beit, init_values=0.1, use_rel_pos_bias=True, use_abs_pos_emb=False, **TIMM_VIT)),
    "timm_cait": Case(partial(tm.cait.Cait, init_values=1e-4, **TIMM_VIT)),
    "timm_mlp_mixer": Case(partial(tm.mlp_mixer.MlpMixer, img_size=32, patch_size=8, num_blocks=2, embed_dim=32,
                                   num_classes=CLASSES)),
    "timm_res_mlp": Case(partial(tm.mlp_mixer.MlpMixer, img_size=32, patch_size=8, num_blocks=2, embed_dim=32,
                                 block_layer=tm.mlp_mixer.ResBlock, mlp_ratio=2, norm_layer=tm.mlp_mixer.Affine,
                                 num_classes=CLASSES)),
    "timm_conv_mixer": Case(partial(tm.convmixer.ConvMixer, 24, 2, kernel_size=5, patch_size=4, num_classes=CLASSES)),
    "timm_convnext_v2": Case(convnext_v2),
    "timm_pool_former": Case(partial(tm.metaformer.MetaFormer, depths=(1, 1, 1, 1), dims=(16, 24, 32, 40),
                                     num_classes=CLASSES)),
    "timm_norm_free": Case(norm_free),
    "timm_dla": Case(partial(tm.dla.DLA, [1, 1, 1, 1, 1, 1], [8, 8, 16, 16, 24, 32], block=tm.dla.DlaBasic,
                             num_classes=CLASSES), (3, 64, 64)),
}  # fmt: skip
