"""Hugging Face's models of two sequences and of sound."""

from functools import partial

import torch
import transformers as hf
from exports.case import Case, Tokens, Wrapped
from onnx_cases import BERT, CLASSES, VOCABULARY

T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "max_position_embeddings": 32}  # fmt: skip
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}


def both_sides(kind, config, **settings):
    """The encoder and the decoder read the same ids."""
    configured = config(vocab_size=VOCABULARY, **SPECIAL | settings)
    configured.use_cache = False
    return Wrapped(kind(configured), lambda model, ids: model(input_ids=ids, decoder_input_ids=ids).logits)


class Whisper(torch.nn.Module):
    """Sound in, and a decoder whose ids are fixed."""

    def __init__(self):
        super().__init__()
        config = hf.WhisperConfig(vocab_size=VOCABULARY, num_mel_bins=8, max_source_positions=16,
                                  max_target_positions=16, attn_implementation="eager", **SPECIAL,
                                  **{k: v for k, v in BART.items() if k != "max_position_embeddings"})  # fmt: skip
        config.use_cache = False
        self.model = hf.WhisperForConditionalGeneration(config)
        self.register_buffer("ids", torch.arange(3, 11)[None], persistent=False)

    def forward(self, x):  # [B, mel, time]
        ids = self.ids.expand(x.shape[0], -1)
        return self.model(input_features=x, decoder_input_ids=ids, decoder_attention_mask=torch.ones_like(ids)).logits


def heard(kind, config, **settings):
    """A classifier of raw sound."""
    sizes = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2,
             "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "num_labels": CLASSES,
             "classifier_proj_size": 16, "apply_spec_augment": False, "layerdrop": 0.0}  # fmt: skip
    settings = {k: v for k, v in BERT.items() if k != "max_position_embeddings"} | sizes | settings
    return Wrapped(kind(config(**settings)), lambda model, x: model(x).logits)


CASES = {
    "t5": Case(partial(both_sides, hf.T5ForConditionalGeneration, hf.T5Config, **T5), Tokens()),
    "t5_gated": Case(partial(both_sides, hf.T5ForConditionalGeneration, hf.T5Config, feed_forward_proj="gated-gelu",
                             tie_word_embeddings=False, **T5), Tokens()),
    "bart": Case(partial(both_sides, hf.BartForConditionalGeneration, hf.BartConfig, **BART), Tokens()),
    "marian": Case(partial(both_sides, hf.MarianMTModel, hf.MarianConfig, **BART), Tokens(), has_untold=True),
    "pegasus": Case(partial(both_sides, hf.PegasusForConditionalGeneration, hf.PegasusConfig, **BART), Tokens(),
                    has_untold=True),
    "whisper": Case(Whisper, (8, 32)),
    "wav2vec2": Case(partial(heard, hf.Wav2Vec2ForSequenceClassification, hf.Wav2Vec2Config), (400,)),
    "hubert": Case(partial(heard, hf.HubertForSequenceClassification, hf.HubertConfig), (400,)),
}  # fmt: skip
