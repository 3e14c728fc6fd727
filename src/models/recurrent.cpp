// Recurrent language models: an embedding, layers of LSTM or GRU, a linear layer. Names and initial values are those of
// PyTorch's nn.LSTM and nn.GRU, with dropout between their layers.

#include <cmath>

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

// x [N, S, D] -> [N, S, hidden]
Value recurrent_layer(Model& m, Op op, Value x, std::int64_t hidden, std::int64_t index) {
  const std::int64_t rows = (op == Op::lstm ? 4 : 3) * hidden;
  const Init init{Init::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(hidden))};
  const auto own = [&](std::vector<std::int64_t> shape, const char* name) {
    return ParameterChoice{.shared = m.parameter(std::move(shape), init, fmt::format("rnn.{}_l{}", name, index))};
  };
  const std::vector<ParameterChoice> weights = {own({rows, m.shape(x).back()}, "weight_ih"),
                                                own({rows, hidden}, "weight_hh"), own({rows}, "bias_ih"),
                                                own({rows}, "bias_hh")};
  return m.layer(op, {x}, {{"hidden", hidden}}, fmt::format("rnn.l{}", index), weights);
}

template <Op op>
Graph build_recurrent(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const std::int64_t vocabulary = s.whole("vocabulary"), layers = s.whole("layers");
  const double dropout = s.fraction("dropout");
  Value x = m.embedding(m.tokens({s.whole("sequence")}), vocabulary, s.whole("width"), 1.0, "embedding");
  for (std::int64_t i = 0; i < layers; ++i) {
    x = recurrent_layer(m, op, x, s.whole("hidden"), i);
    if (i + 1 < layers) x = dropped(m, x, dropout);
  }
  m.cross_entropy(m.linear(x, {.out = vocabulary}, "head"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> recurrent_networks() {
  const std::map<std::string, double> defaults = {{"batch", 16},  {"sequence", 64}, {"vocabulary", 256},
                                                  {"width", 256}, {"hidden", 512},  {"layers", 2},
                                                  {"dropout", 0}};
  return {{"lstm", "language", "LSTM language model", defaults, "text:FILE", build_recurrent<Op::lstm>},
          {"gru", "language", "GRU language model", defaults, "text:FILE", build_recurrent<Op::gru>}};
}

}  // namespace overtake
