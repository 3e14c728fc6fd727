// BERT (Devlin et al. 2018) as a masked language model, with the names and initial values of Hugging Face's
// BertForMaskedLM. Not modelled: dropout inside the attention, unless it is plain; the row of the padding token, which
// starts at zero there and gets no gradient as an input; segments (all tokens are of the first); hidden tokens (all
// sequences are full). Positions whose label is -100 do not count.

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

constexpr double kDeviation = 0.02;
constexpr Norm kBertNorm = {.eps = 1e-12};

struct Bert {
  Model& m;
  std::int64_t width, heads;
  double dropout;
  bool plain_attention;  // whose probabilities lie in memory, with dropout, instead of in one kernel

  Value dense(Value x, std::int64_t out, const std::string& name) const {
    return m.linear(x, {.out = out, .weight_init = normal_init(kDeviation), .bias_init = Init{}}, name);
  }

  // Tokens [N, S] -> [N, S, D]
  Value embeddings(Value tokens, const Settings& s) const {
    const std::string name = "bert.embeddings";
    const std::int64_t sequence = m.shape(tokens)[1], rows = s.whole("positions");
    Value x = m.embedding(tokens, s.whole("vocabulary"), width, kDeviation, name + ".word_embeddings");
    const Value types = m.parameter({2, width}, normal_init(kDeviation), name + ".token_type_embeddings.weight");
    x = m.add(x, m.slice(types, 0, 0, 1, name + ".token_type"), name + ".add_type");
    Value positions = m.parameter({rows, width}, normal_init(kDeviation), name + ".position_embeddings.weight");
    if (sequence < rows) positions = m.slice(positions, 0, 0, sequence, name + ".positions");  // [S, D]
    x = m.layer_norm(m.add(x, positions, name + ".add_position"), kBertNorm, name + ".LayerNorm");
    return dropped(m, x, dropout, name + ".dropout");
  }

  // What a sublayer ends with: norm(x + dropout(dense(y)))
  Value output(Value x, Value y, const std::string& name) const {
    y = dropped(m, dense(y, width, name + ".dense"), dropout, name + ".dropout");
    return m.layer_norm(m.add(y, x, name + ".add"), kBertNorm, name + ".LayerNorm");
  }

  Value layer(Value x, const std::string& name) const {
    const std::string self = name + ".attention.self";
    const Value query = dense(x, width, self + ".query"), key = dense(x, width, self + ".key");
    const Value value = dense(x, width, self + ".value");
    const Value seen = plain_attention ? attention_by_ops(m, query, key, value, heads, {}, dropout, self)
                                       : m.attention(query, key, value, {.heads = heads}, {}, self);
    x = output(x, seen, name + ".attention.output");
    const Value inner = m.gelu(dense(x, 4 * width, name + ".intermediate.dense"), name + ".intermediate");
    return output(x, inner, name + ".output");
  }

  // [N, S, D] -> logits [N, S, vocabulary]; the weight is that of the word embeddings
  Value predictions(Value x, std::int64_t vocabulary) const {
    const std::string name = "cls.predictions";
    const Value bias = m.parameter({vocabulary}, Init{}, name + ".bias");
    x = m.gelu(dense(x, width, name + ".transform.dense"), name + ".transform");
    x = m.layer_norm(x, kBertNorm, name + ".transform.LayerNorm");
    return m.linear(x, m.parameter("bert.embeddings.word_embeddings.weight"), bias, name + ".decoder");
  }
};

Graph build_bert(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const Bert net{m, s.whole("width"), s.divisor("heads", "width"), s.fraction("dropout"),
                 s.whole("plain_attention", 0, 1) == 1};
  Value x = net.embeddings(m.tokens({s.whole("sequence", 1, s.whole("positions"))}), s);
  for (std::int64_t i = 0; i < s.whole("layers"); ++i) x = net.layer(x, fmt::format("bert.encoder.layer.{}", i));
  m.cross_entropy(net.predictions(x, s.whole("vocabulary")), {.ignore_index = -100});
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> bert_networks() {
  const auto entry = [](const char* name, const char* what, double layers, double width, double heads) {
    return ZooEntry{name,
                    "language",
                    what,
                    {{"batch", 8},
                     {"sequence", 128},
                     {"positions", 512},
                     {"vocabulary", 30522},
                     {"width", width},
                     {"heads", heads},
                     {"layers", layers},
                     {"dropout", 0.1},
                     {"plain_attention", 0}},
                    "masked-text:FILE",
                    build_bert};
  };
  return {entry("bert-12", "BERT-Base", 12, 768, 12), entry("bert-24", "BERT-Large", 24, 1024, 16),
          entry("bert-36", "BERT, 36 layers", 36, 1024, 16), entry("bert-48", "BERT, 48 layers", 48, 1024, 16)};
}

}  // namespace overtake
