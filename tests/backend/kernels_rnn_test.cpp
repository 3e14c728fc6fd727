#include "kernels/cpu/gru.h"
#include "kernels/cpu/lstm.h"
#include "kernels_matrix_reference.h"

namespace overtake::kernels {
namespace {

using namespace testing;

const RnnShape kShapes[] = {{1, 1, 1, 1}, {3, 5, 7, 3}, {7, 4, 17, 20}, {19, 3, 33, 40}, {5, 260, 6, 9}};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// All values that a layer takes, and the gradients of what it gives, as doubles.
struct Values {
  std::vector<double> x, w_ih, w_hh, b_ih, b_hh, h0, c0;
  std::vector<double> dy, dh_n, dc_n;
};

// x w^T + b for row g of w.
double project(const std::vector<double>& w, const std::vector<double>& b, std::int64_t g, const double* x,
               std::int64_t count) {
  double sum = b[size_of(g)];
  for (std::int64_t j = 0; j < count; ++j) sum += w[size_of(g * count + j)] * x[j];
  return sum;
}

struct Outputs {
  std::vector<double> y, h_n, c_n;
};

Outputs lstm_reference(const RnnShape& s, const Values& v) {
  Outputs out{std::vector<double>(size_of(s.batch * s.steps * s.hidden)), v.h0, v.c0};
  const std::int64_t hidden = s.hidden;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    double *h = out.h_n.data() + b * hidden, *c = out.c_n.data() + b * hidden;
    for (std::int64_t t = 0; t < s.steps; ++t) {
      const double* x = v.x.data() + (b * s.steps + t) * s.inputs;
      std::vector<double> gate(size_of(4 * hidden));
      for (std::int64_t g = 0; g < 4 * hidden; ++g) {
        gate[size_of(g)] = project(v.w_ih, v.b_ih, g, x, s.inputs) + project(v.w_hh, v.b_hh, g, h, hidden);
      }
      for (std::int64_t j = 0; j < hidden; ++j) {
        c[j] = sigmoid(gate[size_of(hidden + j)]) * c[j] +
               sigmoid(gate[size_of(j)]) * std::tanh(gate[size_of(2 * hidden + j)]);
        h[j] = sigmoid(gate[size_of(3 * hidden + j)]) * std::tanh(c[j]);
        out.y[size_of((b * s.steps + t) * hidden + j)] = h[j];
      }
    }
  }
  return out;
}

Outputs gru_reference(const RnnShape& s, const Values& v) {
  Outputs out{std::vector<double>(size_of(s.batch * s.steps * s.hidden)), v.h0, {}};
  const std::int64_t hidden = s.hidden;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    double* h = out.h_n.data() + b * hidden;
    for (std::int64_t t = 0; t < s.steps; ++t) {
      const double* x = v.x.data() + (b * s.steps + t) * s.inputs;
      std::vector<double> next(size_of(hidden));
      for (std::int64_t j = 0; j < hidden; ++j) {
        const auto both = [&](std::int64_t g) {
          return project(v.w_ih, v.b_ih, g, x, s.inputs) + project(v.w_hh, v.b_hh, g, h, hidden);
        };
        const double r = sigmoid(both(j)), z = sigmoid(both(hidden + j));
        const double n = std::tanh(project(v.w_ih, v.b_ih, 2 * hidden + j, x, s.inputs) +
                                   r * project(v.w_hh, v.b_hh, 2 * hidden + j, h, hidden));
        next[size_of(j)] = (1.0 - z) * n + z * h[j];
      }
      for (std::int64_t j = 0; j < hidden; ++j) {
        h[j] = next[size_of(j)];
        out.y[size_of((b * s.steps + t) * hidden + j)] = h[j];
      }
    }
  }
  return out;
}

// The loss: outputs times the gradients given for them.
double loss_of(const Outputs& out, const Values& v) {
  double sum = 0.0;
  for (std::size_t i = 0; i < out.y.size(); ++i) sum += out.y[i] * v.dy[i];
  for (std::size_t i = 0; i < out.h_n.size(); ++i) sum += out.h_n[i] * v.dh_n[i];
  for (std::size_t i = 0; i < out.c_n.size(); ++i) sum += out.c_n[i] * v.dc_n[i];
  return sum;
}

struct Tolerance {
  double value, gradient;
};
template <class T>
constexpr Tolerance kTolerance = sizeof(T) == 2 ? Tolerance{2e-2, 8e-2} : Tolerance{2e-6, 1e-4};

// One layer with random values; `states`: with h0, c0 and gradients of the final states, else null (zeros).
template <class T>
struct Layer {
  RnnShape s;
  bool states;
  std::int64_t gates;  // rows of the weights
  std::vector<T> x, w_ih, w_hh, h0, dy, dh_n;
  std::vector<float> b_ih, b_hh, c0, dc_n;

  Layer(const RnnShape& shape, std::int64_t gate_count, bool with_states)
      : s(shape),
        states(with_states),
        gates(gate_count * shape.hidden),
        x(random_values<T>(s.batch * s.steps * s.inputs, 1)),
        w_ih(random_values<T>(gates * s.inputs, 2, 0.4f)),
        w_hh(random_values<T>(gates * s.hidden, 3, 0.3f)),
        h0(random_values<T>(s.batch * s.hidden, 4, with_states ? 0.5f : 0.0f)),
        dy(random_values<T>(s.batch * s.steps * s.hidden, 5)),
        dh_n(random_values<T>(s.batch * s.hidden, 6, with_states ? 1.0f : 0.0f)),
        b_ih(random_values<float>(gates, 7, 0.5f)),
        b_hh(random_values<float>(gates, 8, 0.5f)),
        c0(random_values<float>(s.batch * s.hidden, 9, with_states ? 0.5f : 0.0f)),
        dc_n(random_values<float>(s.batch * s.hidden, 10, with_states ? 1.0f : 0.0f)) {}

  template <class U>
  const U* state(const std::vector<U>& v) const {
    return states ? v.data() : nullptr;
  }

  Values values() const {
    return {to_double(x),  to_double(w_ih), to_double(w_hh), to_double(b_ih), to_double(b_hh),
            to_double(h0), to_double(c0),   to_double(dy),   to_double(dh_n), to_double(dc_n)};
  }
};

// Everything the kernels write.
template <class T>
struct Results {
  std::vector<T> y, h_n, dgates, dx, dh0;
  std::vector<float> c_n, gates, cells, dc0, dw_ih, dw_hh, db_ih, db_hh;

  explicit Results(const Layer<T>& l)
      : y(l.dy.size()),
        h_n(l.h0.size()),
        dgates(4 * l.dy.size()),
        dx(l.x.size()),
        dh0(l.h0.size()),
        c_n(l.h0.size()),
        gates(4 * l.dy.size()),
        cells(l.dy.size()),
        dc0(l.h0.size()),
        dw_ih(l.w_ih.size()),
        dw_hh(l.w_hh.size()),
        db_ih(l.b_ih.size()),
        db_hh(l.b_hh.size()) {}

  bool same(const Results& r) const {
    return same_bytes(y, r.y) && same_bytes(h_n, r.h_n) && same_bytes(dgates, r.dgates) && same_bytes(dx, r.dx) &&
           same_bytes(dh0, r.dh0) && same_bytes(c_n, r.c_n) && same_bytes(gates, r.gates) &&
           same_bytes(cells, r.cells) && same_bytes(dc0, r.dc0) && same_bytes(dw_ih, r.dw_ih) &&
           same_bytes(dw_hh, r.dw_hh) && same_bytes(db_ih, r.db_ih) && same_bytes(db_hh, r.db_hh);
  }
};

using Cover = std::function<void(std::int64_t, const std::function<void(std::int64_t, std::int64_t)>&)>;

void at_once(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) { body(0, count); }

template <class T>
void run_lstm(const Layer<T>& l, const Cover& cover, Results<T>& r) {
  const LstmWeights<T> weights{l.w_ih.data(), l.w_hh.data(), l.b_ih.data(), l.b_hh.data()};
  const LstmSaved saved{r.gates.data(), r.cells.data()};
  AlignedScratch forward(lstm_forward_scratch_bytes<T>(l.s, l.s.batch));
  AlignedScratch backward(lstm_input_grad_scratch_bytes<T>(l.s, l.s.batch));
  AlignedScratch weight(lstm_weight_grad_scratch_bytes<T>(l.s));
  cover(l.s.batch, [&](std::int64_t begin, std::int64_t end) {
    lstm_forward(l.s, weights, l.x.data(), l.state(l.h0), l.state(l.c0), r.y.data(), r.h_n.data(), r.c_n.data(), saved,
                 forward.data(), begin, end);
    lstm_input_grad(l.s, weights, saved, l.state(l.c0), l.dy.data(), l.state(l.dh_n), l.state(l.dc_n), r.dgates.data(),
                    r.dx.data(), r.dh0.data(), r.dc0.data(), backward.data(), begin, end);
  });
  cover(l.gates, [&](std::int64_t begin, std::int64_t end) {
    lstm_weight_grad(l.s, r.dgates.data(), l.x.data(), r.y.data(), l.state(l.h0), r.dw_ih.data(), r.dw_hh.data(),
                     r.db_ih.data(), weight.data(), begin, end);
  });
  r.db_hh = r.db_ih;
}

template <class T>
void run_gru(const Layer<T>& l, const Cover& cover, Results<T>& r) {
  const GruWeights<T> weights{l.w_ih.data(), l.w_hh.data(), l.b_ih.data(), l.b_hh.data()};
  AlignedScratch forward(gru_forward_scratch_bytes<T>(l.s, l.s.batch));
  AlignedScratch backward(gru_input_grad_scratch_bytes<T>(l.s, l.s.batch));
  AlignedScratch weight(gru_weight_grad_scratch_bytes<T>(l.s));
  cover(l.s.batch, [&](std::int64_t begin, std::int64_t end) {
    gru_forward(l.s, weights, l.x.data(), l.state(l.h0), r.y.data(), r.h_n.data(), r.gates.data(), forward.data(),
                begin, end);
    gru_input_grad(l.s, weights, r.gates.data(), r.y.data(), l.state(l.h0), l.dy.data(), l.state(l.dh_n),
                   r.dgates.data(), r.dx.data(), r.dh0.data(), backward.data(), begin, end);
  });
  cover(l.gates, [&](std::int64_t begin, std::int64_t end) {
    gru_weight_grad(l.s, r.dgates.data(), l.x.data(), r.y.data(), l.state(l.h0), r.dw_ih.data(), r.dw_hh.data(),
                    r.db_ih.data(), r.db_hh.data(), weight.data(), begin, end);
  });
}

template <class T>
using Run = void (*)(const Layer<T>&, const Cover&, Results<T>&);
using Reference = Outputs (*)(const RnnShape&, const Values&);

template <class T>
void check(const RnnShape& s, std::int64_t gate_count, bool states, Run<T> run, Reference reference) {
  SCOPED_TRACE(::testing::Message() << s.batch << " rows of " << s.steps << " steps, " << s.inputs << " to " << s.hidden
                                    << (states ? ", with states" : ""));
  const Layer<T> layer(s, gate_count, states);
  Results<T> r(layer), pieces(layer);
  run(layer, at_once, r);
  run(layer, in_odd_pieces, pieces);
  EXPECT_TRUE(r.same(pieces));

  Values v = layer.values();
  const Outputs expected = reference(s, v);
  const Tolerance tolerance = kTolerance<T>;
  expect_close(r.y, expected.y, tolerance.value, "y");
  expect_close(r.h_n, expected.h_n, tolerance.value, "h_n");
  if (!expected.c_n.empty()) expect_close(r.c_n, expected.c_n, tolerance.value, "c_n");

  const auto loss = [&] { return loss_of(reference(s, v), v); };
  expect_gradient(r.dx, v.x, loss, tolerance.gradient, "dx", 20);
  expect_gradient(r.dw_ih, v.w_ih, loss, tolerance.gradient, "dw_ih", 20);
  expect_gradient(r.dw_hh, v.w_hh, loss, tolerance.gradient, "dw_hh", 20);
  expect_gradient(r.db_ih, v.b_ih, loss, tolerance.gradient, "db_ih", 20);
  expect_gradient(r.db_hh, v.b_hh, loss, tolerance.gradient, "db_hh", 20);
  expect_gradient(r.dh0, v.h0, loss, tolerance.gradient, "dh0", 20);
  if (!expected.c_n.empty()) expect_gradient(r.dc0, v.c0, loss, tolerance.gradient, "dc0", 20);
}

TEST(KernelsRnn, LstmFloat) {
  for (const RnnShape& s : kShapes) {
    for (const bool states : {false, true}) check<float>(s, 4, states, run_lstm<float>, lstm_reference);
  }
}

TEST(KernelsRnn, GruFloat) {
  for (const RnnShape& s : kShapes) {
    for (const bool states : {false, true}) check<float>(s, 3, states, run_gru<float>, gru_reference);
  }
}

TEST(KernelsRnn, LstmBf16) { check<bf16>({5, 4, 12, 18}, 4, true, run_lstm<bf16>, lstm_reference); }

TEST(KernelsRnn, GruBf16) { check<bf16>({5, 4, 12, 18}, 3, true, run_gru<bf16>, gru_reference); }

}  // namespace
}  // namespace overtake::kernels
