#pragma once
// One op through the real thing (Model -> passes -> plan -> CPU executor) against a double-precision reference: the
// forward value, the loss, and the gradient of every trained tensor by central finite differences of the reference.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "op_reference_nn.h"
#include "passes/keep.h"
#include "run_setup.h"
#include "test_device.h"

namespace overtake::reference {

using Values = std::map<std::string, Tensor>;  // weights and inputs by name

// Builds the op's inputs as trained tensors, so that input gradients can be read like weight gradients.
class OpBuilder {
 public:
  // through_sum: each input is a trained tensor plus a shift, and so an activation that may be computed in place; where
  // it is [batch, ...], the shift comes from the host, which makes images channels-last.
  OpBuilder(Model& model, bool through_sum) : m(model), through_sum_(through_sum) {}

  Model& m;

  Value arg(const std::string& name, const Dims& dims) {
    const Value x = m.parameter(dims, {}, name);
    if (!through_sum_) return x;
    const bool is_batch = dims.size() >= 2 && dims[0] == m.batch();
    const std::string shift = name + ".shift";
    return m.add(x, is_batch ? m.input({dims.begin() + 1, dims.end()}, shift) : m.parameter(dims, {}, shift),
                 name + ".sum");
  }

 private:
  bool through_sum_;
};

struct OpCase {
  std::int64_t batch = 2;
  // Returns the prediction; a mean squared error is put on it unless `loss` is given: then build has added its own.
  std::function<Value(OpBuilder&)> build;
  std::function<Tensor(const Values&)> predict;
  std::function<double(const Values&)> loss = {};
  std::map<std::string, std::function<double(std::size_t)>> fill = {};  // instead of random values
  std::int64_t ids = 2;                                                 // integer inputs are below this
  double tolerance = 1e-5;                                              // relative to the largest of a tensor
  std::set<std::string> skip = {"recognise", "fuse_elementwise"};       // the op itself is tested, whatever it does
};

struct OpOptions {
  unsigned parts = 1;
  bool through_sum = false;
  bool keep = true;  // the prediction, which then has bytes of its own
  bool bf16 = false;
};

struct OpRun {
  double loss = 0;
  Tensor prediction;
  std::map<std::string, Tensor> gradients;
  std::map<Op, std::size_t> tasks;  // of the whole step, by op
};

inline Dims dims_of(const Buffer& b) { return {b.shape.span().begin(), b.shape.span().end()}; }

inline std::vector<std::byte> to_bytes(const Tensor& t, DType dtype) {
  std::vector<std::byte> bytes(t.v.size() * static_cast<std::size_t>(bytes_of(dtype)));
  for (std::size_t i = 0; i < t.v.size(); ++i) {
    if (dtype == DType::f32) {
      const auto x = static_cast<float>(t.v[i]);
      std::memcpy(&bytes[4 * i], &x, 4);
    } else if (dtype == DType::i32) {
      const auto x = static_cast<std::int32_t>(t.v[i]);
      std::memcpy(&bytes[4 * i], &x, 4);
    } else {
      bytes[i] = static_cast<std::byte>(t.v[i]);
    }
  }
  return bytes;
}

// The values of a float buffer, in row-major order.
inline Tensor read_tensor(Executor& executor, BufferId id) {
  const Buffer& b = executor.plan(0).graph.buffers[id];
  Tensor t(dims_of(b));
  std::vector<std::byte> bytes(t.v.size() * static_cast<std::size_t>(bytes_of(b.dtype)));
  executor.read_plain(id, bytes);
  for (std::size_t i = 0; i < t.v.size(); ++i) {
    if (b.dtype == DType::bf16)
      t.v[i] = static_cast<double>(to_float(reinterpret_cast<const bf16*>(bytes.data())[i]));
    else
      t.v[i] = static_cast<double>(reinterpret_cast<const float*>(bytes.data())[i]);
  }
  return t;
}

inline BufferId find_buffer(const Graph& g, const std::string& name) {
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    if (g.buffer_name(b) == name) return b;
  return kNone;
}

// The tensors that the host gives: trained ones, and inputs.
inline std::vector<BufferId> given_buffers(const Graph& g) {
  std::vector<BufferId> all;
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    if (g.buffers[b].role == Role::weight || g.buffers[b].role == Role::input) all.push_back(b);
  return all;
}

// Odd multiples of `grid` in (-1, 1): never 0, and sums of two are exact.
inline double grid_value(std::mt19937& random, double grid) {
  const auto steps = static_cast<std::int64_t>(1.0 / grid);
  const std::int64_t k = static_cast<std::int64_t>(random()) % (2 * steps);
  return static_cast<double>((k - steps) | 1) * grid;
}

inline constexpr double kFloatGrid = 0x1p-20, kBf16Grid = 0x1p-7;

struct BuiltCase {
  Graph graph;
  std::string prediction;
};

inline BuiltCase build_case(const OpCase& c, bool through_sum) {
  Model m("op", c.batch);
  OpBuilder b(m, through_sum);
  const Value y = c.build(b);
  if (!c.loss) m.mean_squared_error(y);
  BuiltCase built{std::move(m).finish(), ""};
  built.prediction = built.graph.buffer_name(y.id);
  return built;
}

inline Values random_values(const OpCase& c, double grid) {
  const Graph g = build_case(c, false).graph;
  std::mt19937 random(4711);
  Values values;
  for (const BufferId b : given_buffers(g)) {
    Tensor t(dims_of(g.buffers[b]));
    const auto special = c.fill.find(g.buffer_name(b));
    for (std::size_t i = 0; i < t.v.size(); ++i) {
      if (special != c.fill.end())
        t.v[i] = special->second(i);
      else if (g.buffers[b].dtype == DType::i32)
        t.v[i] = static_cast<double>(static_cast<std::int64_t>(random()) % c.ids);
      else
        t.v[i] = grid_value(random, grid);
    }
    values[g.buffer_name(b)] = t;
  }
  return values;
}

// Writes values into a run's inputs and weights; what an input is shifted by is taken off it first, exactly.
inline void write_values(TrainingRun& training, const Values& values) {
  const Graph& g = training.graph();
  std::mt19937 random(99);
  for (const BufferId b : given_buffers(g)) {
    const std::string& name = g.buffer_name(b);
    const auto found = values.find(name);
    if (found == values.end()) continue;
    Tensor t = found->second;
    if (const BufferId shift = find_buffer(g, name + ".shift"); shift != kNone) {
      Tensor s(t.dims);
      for (std::size_t i = 0; i < s.v.size(); ++i) {
        s.v[i] = grid_value(random, kFloatGrid);
        t.v[i] -= s.v[i];
      }
      training.executor().write_plain(shift, to_bytes(s, DType::f32));
    }
    training.executor().write_plain(b, to_bytes(t, g.buffers[b].dtype));
  }
}

inline RunSetup setup_of(const OpOptions& options, const std::string& kept,
                         const std::set<std::string>& skip = OpCase{}.skip) {
  RunSetup setup = in_order_setup();
  use_test_device(setup, options.bf16 ? Precision::bf16 : Precision::f32, 2);
  setup.spec.parts = options.parts;
  setup.spec.skip_passes = {skip.begin(), skip.end()};
  std::vector<Pass<Graph>>& passes = setup.more.compile.extra_passes;
  passes = {keep_gradients()};
  if (options.keep) passes.push_back(keep_buffers([kept](const std::string& name) { return name == kept; }));
  return setup;
}

inline OpRun run_case(const OpCase& c, const Values& values, const OpOptions& options) {
  BuiltCase built = build_case(c, options.through_sum);
  TrainingRun training = run_of(std::move(built.graph), setup_of(options, built.prediction, c.skip));
  write_values(training, values);
  OpRun run;
  run.loss = static_cast<double>(training.step(0.0f).loss);
  const Graph& g = training.graph();
  for (const Task& t : g.tasks) ++run.tasks[t.op];
  if (options.keep) run.prediction = read_tensor(training.executor(), find_buffer(g, built.prediction));
  for (const Parameter& p : g.parameters)
    if (p.gradient != kNone) run.gradients[g.buffer_name(p.buffer)] = read_tensor(training.executor(), p.gradient);
  return run;
}

struct Derivative {
  std::size_t element = 0;
  double value = 0;
};

inline double loss_of(const OpCase& c, const Values& values) {
  return c.loss ? c.loss(values) : mean_squared_error(c.predict(values), values.at("targets"));
}

// At most 40 elements of every trained tensor.
inline std::map<std::string, std::vector<Derivative>> finite_differences(const OpCase& c, Values values) {
  constexpr std::size_t kMost = 40;
  constexpr double kStep = 1e-5;
  const Graph g = build_case(c, false).graph;
  std::mt19937 random(7);
  std::map<std::string, std::vector<Derivative>> all;
  for (const Parameter& p : g.parameters) {
    if (g.buffers[p.buffer].role != Role::weight) continue;
    const std::string& name = g.buffer_name(p.buffer);
    const std::size_t count = values.at(name).v.size();
    std::set<std::size_t> elements;
    while (elements.size() < std::min(count, kMost))
      elements.insert(count <= kMost ? elements.size() : random() % count);
    for (const std::size_t i : elements) {
      double& x = values.at(name).v[i];
      const double middle = x;
      x = middle + kStep;
      const double above = loss_of(c, values);
      x = middle - kStep;
      const double below = loss_of(c, values);
      x = middle;
      all[name].push_back({i, (above - below) / (2 * kStep)});
    }
  }
  return all;
}

inline double largest(const Tensor& t) {
  double most = 0;
  for (const double x : t.v) most = std::max(most, std::fabs(x));
  return most;
}

inline void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.dims, want.dims);
  const double bound = tolerance * std::max(largest(want), 1e-30);
  for (std::size_t i = 0; i < got.v.size(); ++i)
    ASSERT_TRUE(std::fabs(got.v[i] - want.v[i]) <= bound)
        << "element " << i << ": " << got.v[i] << ", not " << want.v[i] << " (bound " << bound << ")";
}

// A gradient that is zero in truth is only as exact as the others are large.
inline void expect_gradients(const OpRun& run, const std::map<std::string, std::vector<Derivative>>& want,
                             double tolerance) {
  double most = 0;
  for (const auto& [name, gradient] : run.gradients) most = std::max(most, largest(gradient));
  for (const auto& [name, derivatives] : want) {
    ASSERT_TRUE(run.gradients.contains(name)) << "no gradient for " << name;
    const Tensor& got = run.gradients.at(name);
    const double bound = tolerance * std::max(largest(got), 1e-2 * most);
    for (const Derivative& d : derivatives)
      ASSERT_TRUE(std::fabs(got.v[d.element] - d.value) <= bound)
          << "gradient of " << name << ", element " << d.element << ": " << got.v[d.element] << ", not " << d.value
          << " (bound " << bound << ")";
  }
}

inline void check_runs(const OpCase& c, const Values& values, const std::vector<OpOptions>& runs, double tolerance) {
  const auto want = finite_differences(c, values);
  const Tensor prediction = c.predict(values);
  const double loss = loss_of(c, values);
  std::map<std::pair<unsigned, bool>, OpRun> kept;  // by parts and through_sum
  for (const OpOptions& options : runs) {
    SCOPED_TRACE(::testing::Message() << "parts " << options.parts << (options.through_sum ? ", through a sum" : "")
                                      << (options.keep ? "" : ", prediction not kept")
                                      << (options.bf16 ? ", bf16" : ""));
    const OpRun run = run_case(c, values, options);
    EXPECT_NEAR(run.loss, loss, tolerance * std::max(1.0, std::fabs(loss)));
    if (options.keep) expect_near(run.prediction, prediction, tolerance);
    expect_gradients(run, want, tolerance);
    const auto [first, is_first] = kept.try_emplace({options.parts, options.through_sum}, run);
    if (is_first) continue;
    for (const auto& [name, gradient] : run.gradients)
      EXPECT_EQ(gradient.v, first->second.gradients.at(name).v) << name << ": bits depend on what is computed in place";
  }
}

inline void check_op(const OpCase& c) {
  check_runs(c, random_values(c, kFloatGrid),
             {{.parts = 1},
              {.parts = 2, .through_sum = true},
              {.parts = 2, .through_sum = true, .keep = false},
              {.parts = 3},
              {.parts = 3, .keep = false},
              {.parts = 3, .through_sum = true, .keep = false}},
             c.tolerance);
}

// Values are exact in bfloat16, so that kinks stay where they are.
inline void check_op_bf16(const OpCase& c) {
  OVERTAKE_NEEDS_BF16();
  check_runs(c, random_values(c, kBf16Grid),
             {{.parts = 1, .bf16 = true}, {.parts = 2, .bf16 = true}, {.parts = 2, .keep = false, .bf16 = true}}, 3e-2);
}

}  // namespace overtake::reference
