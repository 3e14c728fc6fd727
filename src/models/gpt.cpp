// Decoders as GPT-2 builds them (Radford et al. 2019): norm before, learned positions, output tied to the embedding.
// gpt2 and gpt3-medium have the names and initial values of Hugging Face's GPT2LMHeadModel, whose linear layers keep
// their weights as [in, out]; GPT-3's sparse attention layers are dense here. Dropout inside the attention is not
// modelled.

#include <cmath>

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

struct Decoder {
  Model& m;
  std::string prefix;  // of all names
  std::int64_t width, heads, layers, positions;
  double dropout;
  bool stored_transposed;
  bool is_tied = true;           // the output to the embedding
  bool plain_attention = false;  // whose probabilities lie in memory, with dropout, instead of in one kernel

  static constexpr double kDeviation = 0.02;

  Value dense(Value x, std::int64_t out, double deviation, const std::string& name) const {
    return m.linear(x,
                    {.out = out,
                     .weight_init = normal_init(deviation),
                     .bias_init = Init{},
                     .stored_transposed = stored_transposed},
                    name);
  }

  // x [N, S, D]; what is added to the residual starts smaller the deeper the network is
  // With a mask, attention is plain.
  Value block(Value x, std::optional<Value> mask, const std::string& name) const {
    const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(layers));
    Value y = dense(m.layer_norm(x, {}, name + ".ln_1"), 3 * width, kDeviation, name + ".attn.c_attn");
    if (mask) {
      const auto part = [&](std::int64_t i, const char* of) {
        return m.slice(y, 2, i * width, (i + 1) * width, name + ".attn" + of);
      };
      y = attention_by_ops(m, part(0, ".query"), part(1, ".key"), part(2, ".value"), heads, mask, dropout,
                           name + ".attn");
    } else {
      y = m.attention(y, {.heads = heads, .causal = true}, {}, name + ".attn");
    }
    y = dense(y, width, residual, name + ".attn.c_proj");
    x = m.add(x, dropped(m, y, dropout), name + ".add_1");
    y = dense(m.layer_norm(x, {}, name + ".ln_2"), 4 * width, kDeviation, name + ".mlp.c_fc");
    y = m.activation(y, "gelu_tanh", name + ".mlp.act");
    y = dense(y, width, residual, name + ".mlp.c_proj");
    return m.add(x, dropped(m, y, dropout), name + ".add_2");
  }

  // Tokens [N, S] -> logits [N, S, vocabulary]
  Value logits(Value tokens, std::int64_t vocabulary) const {
    const std::int64_t sequence = m.shape(tokens)[1];
    Value x = m.embedding(tokens, vocabulary, width, kDeviation, prefix + "wte");
    Value places = m.parameter({positions, width}, normal_init(kDeviation), prefix + "wpe.weight");
    if (sequence < positions) places = m.slice(places, 0, 0, sequence, prefix + "wpe");  // [S, D]
    x = dropped(m, m.add(x, places, "positions"), dropout);
    std::optional<Value> mask;
    if (plain_attention) mask = causal_mask(m, sequence, prefix + "mask");
    for (std::int64_t i = 0; i < layers; ++i) x = block(x, mask, fmt::format("{}h.{}", prefix, i));
    x = m.layer_norm(x, {}, prefix + "ln_f");
    if (is_tied) return m.linear(x, m.parameter(prefix + "wte.weight"), {}, "head");
    return m.linear(x, {.out = vocabulary, .bias = false, .weight_init = normal_init(kDeviation)}, "lm_head");
  }
};

Graph build_gpt(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const Decoder net{m,
                    "transformer.",
                    s.whole("width"),
                    s.divisor("heads", "width"),
                    s.whole("layers"),
                    s.whole("positions"),
                    s.fraction("dropout"),
                    true,
                    s.whole("tied", 0, 1) == 1,
                    s.whole("plain_attention", 0, 1) == 1};
  const Value tokens = m.tokens({s.whole("sequence", 1, net.positions)});
  m.cross_entropy(net.logits(tokens, s.whole("vocabulary")));
  return std::move(m).finish();
}

// A small one over bytes, with as many positions as the sequence is long and PyTorch's [out, in] weights.
Graph build_transformer(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const std::int64_t sequence = s.whole("sequence");
  const Decoder net{
      m, "", s.whole("width"), s.divisor("heads", "width"), s.whole("layers"), sequence, s.fraction("dropout"), false};
  m.cross_entropy(net.logits(m.tokens({sequence}), s.whole("vocabulary")));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> gpt_networks() {
  const std::map<std::string, double> small = {{"batch", 8}, {"sequence", 128}, {"vocabulary", 256}, {"width", 256},
                                               {"heads", 8}, {"layers", 6},     {"dropout", 0}};
  std::map<std::string, double> gpt2 = {
      {"batch", 4},  {"sequence", 1024}, {"positions", 1024}, {"vocabulary", 50257}, {"width", 768},
      {"heads", 12}, {"layers", 12},     {"dropout", 0.1},    {"tied", 1},           {"plain_attention", 0}};
  std::map<std::string, double> medium = gpt2;
  for (const auto& [name, value] : std::map<std::string, double>{
           {"sequence", 2048}, {"positions", 2048}, {"width", 1024}, {"heads", 16}, {"layers", 24}})
    medium[name] = value;
  return {{"transformer", "language", "small GPT over bytes", small, "text:FILE", build_transformer},
          {"gpt2", "language", "GPT-2", gpt2, "text:FILE", build_gpt},
          {"gpt3-medium", "language", "GPT-3 Medium", medium, "text:FILE", build_gpt}};
}

}  // namespace overtake
