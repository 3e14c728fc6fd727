// LSTM and GRU.

#include "op_case.h"

namespace overtake::reference {
namespace {

struct RecurrentCase {
  std::int64_t batch, steps, inputs, hidden;
};

template <bool is_lstm>
OpCase recurrent_case(const RecurrentCase& c) {
  return {.batch = c.batch,
          .build =
              [=](OpBuilder& b) {
                const Value x = b.arg("x", {c.batch, c.steps, c.inputs});
                return is_lstm ? b.m.lstm(x, c.hidden, "rnn") : b.m.gru(x, c.hidden, "rnn");
              },
          .predict =
              [](const Values& v) {
                const RecurrentWeights w{v.at("rnn.weight_ih"), v.at("rnn.weight_hh"), v.at("rnn.bias_ih"),
                                         v.at("rnn.bias_hh")};
                return is_lstm ? lstm(v.at("x"), w) : gru(v.at("x"), w);
              },
          .tolerance = 2e-5};
}

const RecurrentCase kCases[] = {{1, 1, 1, 1}, {3, 5, 4, 6}, {5, 2, 17, 3}, {2, 9, 3, 20}, {7, 1, 5, 5}};

TEST(OpLstm, Shapes) {
  for (const RecurrentCase& c : kCases) check_op(recurrent_case<true>(c));
}
TEST(OpGru, Shapes) {
  for (const RecurrentCase& c : kCases) check_op(recurrent_case<false>(c));
}
TEST(OpLstm, Bf16) { check_op_bf16(recurrent_case<true>({3, 4, 8, 16})); }
TEST(OpGru, Bf16) { check_op_bf16(recurrent_case<false>({3, 4, 8, 16})); }

// The first layer of two has no gradient for its input, which comes from the host.
template <bool is_lstm>
OpCase stacked_case() {
  return {.batch = 3,
          .build =
              [](OpBuilder& b) {
                const Value x = b.m.input({4, 5});
                const Value h = is_lstm ? b.m.lstm(x, 6, "a") : b.m.gru(x, 6, "a");
                return is_lstm ? b.m.lstm(h, 3, "b") : b.m.gru(h, 3, "b");
              },
          .predict =
              [](const Values& v) {
                const auto layer = [&](const std::string& name, const Tensor& x) {
                  const RecurrentWeights w{v.at(name + ".weight_ih"), v.at(name + ".weight_hh"),
                                           v.at(name + ".bias_ih"), v.at(name + ".bias_hh")};
                  return is_lstm ? lstm(x, w) : gru(x, w);
                };
                return layer("b", layer("a", v.at("input")));
              },
          .tolerance = 2e-5};
}
TEST(OpLstm, TwoLayersOnHostInput) { check_op(stacked_case<true>()); }
TEST(OpGru, TwoLayersOnHostInput) { check_op(stacked_case<false>()); }

}  // namespace
}  // namespace overtake::reference
