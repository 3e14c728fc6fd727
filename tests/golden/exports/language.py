"""Hugging Face's language models."""

from functools import partial

import torch
import transformers as hf
from exports.case import Case, Tokens, Wrapped
from onnx_cases import BERT, CLASSES, DISTILBERT, LLAMA, OPT, VOCABULARY

GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "n_inner": 64}
NEO = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 64, "max_position_embeddings": 32,
       "attention_types": [[["global", "local"], 1]], "window_size": 4}  # fmt: skip
ROBERTA = BERT | {"max_position_embeddings": 40, "pad_token_id": 1, "type_vocab_size": 1}
GEMMA = LLAMA | {"head_dim": 8}
MOE = LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2}
XLNET = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}


def logits(kind, config, attention=None, **settings):
    """A model that takes ids and gives logits alone."""
    if attention:
        settings["attn_implementation"] = attention
    settings = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | settings
    configured = config(**settings)
    configured.use_cache = False
    return Wrapped(kind(configured), lambda model, ids: model(input_ids=ids).logits)


def causal(*build, **settings):
    """With a mask of ones, as people call them: without one, they look for several sequences in a row."""
    model = logits(*build, **settings)
    model.call = lambda model, ids: model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return model


def causal_tokens(*build, **settings):
    return Case(partial(causal, *build, **settings), Tokens())


def tokens(*build, **settings):
    return Case(partial(logits, *build, **settings), Tokens())


def clip_text():
    config = hf.CLIPTextConfig(vocab_size=VOCABULARY, projection_dim=CLASSES, eos_token_id=2, bos_token_id=1,
                               pad_token_id=0, attn_implementation="eager", **BERT)  # fmt: skip
    return Wrapped(hf.CLIPTextModelWithProjection(config), lambda model, ids: model(input_ids=ids).text_embeds)


CASES = {
    "bert": tokens(hf.BertForMaskedLM, hf.BertConfig, "eager", **BERT),
    "bert_sdpa": tokens(hf.BertForMaskedLM, hf.BertConfig, "sdpa", **BERT),
    "bert_classifier": tokens(hf.BertForSequenceClassification, hf.BertConfig, "sdpa", num_labels=CLASSES, **BERT),
    "distilbert": tokens(hf.DistilBertForMaskedLM, hf.DistilBertConfig, "eager", **DISTILBERT),
    "roberta": tokens(hf.RobertaForMaskedLM, hf.RobertaConfig, "eager", **ROBERTA),
    "albert": tokens(hf.AlbertForMaskedLM, hf.AlbertConfig, "eager", embedding_size=16, **BERT),
    "electra": tokens(hf.ElectraForMaskedLM, hf.ElectraConfig, "eager", embedding_size=16, **BERT),
    "deberta": tokens(hf.DebertaV2ForMaskedLM, hf.DebertaV2Config, pos_att_type=["p2c", "c2p"], relative_attention=True,
                      **BERT),
    "mobilebert": tokens(hf.MobileBertForMaskedLM, hf.MobileBertConfig, embedding_size=16, true_hidden_size=16,
                         intra_bottleneck_size=16, **BERT),
    "squeezebert": tokens(hf.SqueezeBertForMaskedLM, hf.SqueezeBertConfig, embedding_size=32, **BERT),
    "mpnet": tokens(hf.MPNetForMaskedLM, hf.MPNetConfig, **BERT | {"max_position_embeddings": 40, "pad_token_id": 1}),
    "fnet": tokens(hf.FNetForMaskedLM, hf.FNetConfig, hidden_size=32, num_hidden_layers=2, intermediate_size=64,
                   max_position_embeddings=32, type_vocab_size=2),
    "gpt2": causal_tokens(hf.GPT2LMHeadModel, hf.GPT2Config, "eager", **GPT2),
    "gpt2_sdpa": causal_tokens(hf.GPT2LMHeadModel, hf.GPT2Config, "sdpa", **GPT2),
    "gpt_neo": causal_tokens(hf.GPTNeoForCausalLM, hf.GPTNeoConfig, "eager", **NEO),
    "gpt_neox": causal_tokens(hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig, "sdpa", **BERT),
    "gpt_j": causal_tokens(hf.GPTJForCausalLM, hf.GPTJConfig, "eager", rotary_dim=4, **GPT2),
    "opt": tokens(hf.OPTForCausalLM, hf.OPTConfig, "eager", **OPT),
    "bloom": tokens(hf.BloomForCausalLM, hf.BloomConfig, hidden_size=32, n_layer=2, n_head=4),
    "falcon": tokens(hf.FalconForCausalLM, hf.FalconConfig, "eager", hidden_size=32, num_hidden_layers=2,
                     num_attention_heads=4),
    "llama": causal_tokens(hf.LlamaForCausalLM, hf.LlamaConfig, "eager", **LLAMA),
    "llama_sdpa": causal_tokens(hf.LlamaForCausalLM, hf.LlamaConfig, "sdpa", **LLAMA),
    "mistral": causal_tokens(hf.MistralForCausalLM, hf.MistralConfig, "eager", **LLAMA),
    "qwen2": causal_tokens(hf.Qwen2ForCausalLM, hf.Qwen2Config, "eager", **LLAMA),
    "qwen3": causal_tokens(hf.Qwen3ForCausalLM, hf.Qwen3Config, "eager", **GEMMA),
    "gemma": causal_tokens(hf.GemmaForCausalLM, hf.GemmaConfig, "eager", **GEMMA),
    "gemma2": causal_tokens(hf.Gemma2ForCausalLM, hf.Gemma2Config, "eager", **GEMMA),
    "phi": causal_tokens(hf.PhiForCausalLM, hf.PhiConfig, "eager", **BERT),
    "phi3": causal_tokens(hf.Phi3ForCausalLM, hf.Phi3Config, "eager", **LLAMA),
    "stablelm": causal_tokens(hf.StableLmForCausalLM, hf.StableLmConfig, "eager", **LLAMA),
    "olmo2": causal_tokens(hf.Olmo2ForCausalLM, hf.Olmo2Config, "eager", **LLAMA),
    "mixtral": causal_tokens(hf.MixtralForCausalLM, hf.MixtralConfig, "eager", **MOE),
    "mamba": tokens(hf.MambaForCausalLM, hf.MambaConfig, hidden_size=32, num_hidden_layers=2, state_size=4),
    "xlnet": tokens(hf.XLNetLMHeadModel, hf.XLNetConfig, **XLNET),
    "clip_text": Case(clip_text, Tokens()),
}  # fmt: skip
