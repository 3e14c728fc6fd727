// Language models over token ids.

#include <cmath>

#include "base/error.h"
#include "models/families.h"

namespace overtake {
namespace {

// A decoder as GPT-2 builds it: norm before, learned positions, output tied to the embedding.
Graph build_transformer(const Settings& s) {
  Model m("transformer", whole(s, "batch"));
  const std::int64_t width = whole(s, "width"), layers = whole(s, "layers"), sequence = whole(s, "sequence");
  const double std_dev = 0.02, p = s.at("dropout");
  const double residual_std = std_dev / std::sqrt(2.0 * static_cast<double>(layers));
  const auto dropped = [&](Value x) { return p > 0 ? m.dropout(x, p) : x; };
  Value x = m.embedding(m.tokens({sequence}), whole(s, "vocabulary"), width, std_dev, "wte");
  x = dropped(m.add(x, m.parameter({sequence, width}, {Init::Kind::normal, std_dev}, "wpe.weight"), "positions"));
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string h = fmt::format("h.{}", i);
    Value y = m.layer_norm(x, {}, h + ".ln_1");
    y = m.linear(y, {.out = 3 * width, .init_std = std_dev}, h + ".attn.c_attn");
    y = m.attention(y, {.heads = whole(s, "heads"), .causal = true}, {}, h + ".attn");
    y = m.linear(y, {.out = width, .init_std = residual_std}, h + ".attn.c_proj");
    x = m.add(x, dropped(y), h + ".add_1");
    y = m.layer_norm(x, {}, h + ".ln_2");
    y = m.linear(y, {.out = 4 * width, .init_std = std_dev}, h + ".mlp.c_fc");
    y = m.activation(y, "gelu_tanh", h + ".mlp.act");
    y = m.linear(y, {.out = width, .init_std = residual_std}, h + ".mlp.c_proj");
    x = m.add(x, dropped(y), h + ".add_2");
  }
  m.cross_entropy(m.linear_tied(m.layer_norm(x, {}, "ln_f"), "wte.weight", "head"));
  return std::move(m).finish();
}

template <bool is_lstm>
Graph build_recurrent(const Settings& s) {
  Model m(is_lstm ? "lstm" : "gru", whole(s, "batch"));
  const std::int64_t hidden = whole(s, "hidden");
  Value x = m.embedding(m.tokens({whole(s, "sequence")}), whole(s, "vocabulary"), whole(s, "width"), 1.0, "embedding");
  for (std::int64_t i = 0; i < whole(s, "layers"); ++i) {
    const std::string name = fmt::format("rnn.{}", i);
    x = is_lstm ? m.lstm(x, hidden, name) : m.gru(x, hidden, name);
  }
  m.cross_entropy(m.linear(x, {.out = whole(s, "vocabulary")}, "head"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> sequence_models() {
  const Settings recurrent = {{"batch", 16},  {"sequence", 64}, {"vocabulary", 256},
                              {"width", 256}, {"hidden", 512},  {"layers", 2}};
  const Settings decoder = {{"batch", 8}, {"sequence", 128}, {"vocabulary", 256}, {"width", 256},
                            {"heads", 8}, {"layers", 6},     {"dropout", 0}};
  return {
      {"transformer", "a decoder as GPT-2 builds it", decoder, "text:FILE", build_transformer},
      {"lstm", "an LSTM language model", recurrent, "text:FILE", build_recurrent<true>},
      {"gru", "a GRU language model", recurrent, "text:FILE", build_recurrent<false>},
  };
}

}  // namespace overtake
