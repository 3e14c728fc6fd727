// SGD, AdamW and clipping: several steps of training against the same in double precision, with gradients by finite
// differences of the reference.

#include "op_case.h"

namespace overtake::reference {
namespace {

using Kind = OptimizerSettings::Kind;

class ReferenceTrainer {
 public:
  ReferenceTrainer(const OpCase& c, const OptimizerSettings& settings, Values values)
      : case_(c), settings_(settings), values_(std::move(values)) {
    const Graph g = build_case(c, false).graph;
    for (const Parameter& p : g.parameters)
      if (g.buffers[p.buffer].role == Role::weight) names_.push_back(g.buffer_name(p.buffer));
  }

  double step(double learning_rate) {
    ++steps_;
    const double loss = loss_of(case_, values_);
    std::map<std::string, std::vector<double>> gradients;
    double squares = 0;
    for (const std::string& name : names_)
      for (std::size_t i = 0; i < values_.at(name).v.size(); ++i) {
        gradients[name].push_back(derivative(name, i));
        squares += gradients[name].back() * gradients[name].back();
      }
    const double norm = std::sqrt(squares);
    const double factor = settings_.clip_norm > 0 ? std::min(1.0, settings_.clip_norm / (norm + 1e-6)) : 1.0;
    for (const std::string& name : names_)
      for (std::size_t i = 0; i < values_.at(name).v.size(); ++i)
        update(name, i, factor * gradients[name][i], learning_rate);
    return loss;
  }

  const Values& values() const { return values_; }

 private:
  double derivative(const std::string& name, std::size_t i) {
    constexpr double kStep = 1e-5;
    double& x = values_.at(name).v[i];
    const double middle = x;
    x = middle + kStep;
    const double above = loss_of(case_, values_);
    x = middle - kStep;
    const double below = loss_of(case_, values_);
    x = middle;
    return (above - below) / (2 * kStep);
  }

  void update(const std::string& name, std::size_t i, double g, double rate) {
    double& w = values_.at(name).v[i];
    const OptimizerSettings& s = settings_;
    if (s.kind == Kind::sgd) {
      g += s.weight_decay * w;
      double& m = first_[{name, i}];
      m = s.momentum * m + g;
      w -= rate * (s.nesterov ? g + s.momentum * m : m);
      return;
    }
    w -= rate * s.weight_decay * w;
    double &m = first_[{name, i}], &v = second_[{name, i}];
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(s.beta1, steps_)), v_hat = v / (1 - std::pow(s.beta2, steps_));
    w -= rate * m_hat / (std::sqrt(v_hat) + s.eps);
  }

  OpCase case_;
  OptimizerSettings settings_;
  Values values_;
  std::vector<std::string> names_;
  std::map<std::pair<std::string, std::size_t>, double> first_, second_;
  int steps_ = 0;
};

// A convolution (its weight lies in blocks), a norm and a linear layer.
OpCase network() {
  const Conv2d o{.out = 5, .kernel = 3, .stride = 2, .padding = 1, .bias = false};
  return {.batch = 3,
          .build =
              [=](OpBuilder& b) {
                Value x = b.m.conv2d(b.m.input({2, 5, 5}), o, "conv");
                x = b.m.activation(b.m.group_norm(x, {}, "norm"), "silu");
                return b.m.linear(b.m.flatten(x), {.out = 3}, "fc");
              },
          .predict =
              [=](const Values& v) {
                Tensor x = conv2d(v.at("input"), v.at("conv.weight"), nullptr, o);
                x = activation("silu", group_norm(x, v.at("norm.weight"), v.at("norm.bias"), 1));
                return linear(reshape(x, {3, 45}), v.at("fc.weight"), &v.at("fc.bias"));
              }};
}

void check_training(const OptimizerSettings& settings, double rate, double tolerance) {
  const OpCase c = network();
  const Values values = random_values(c, kFloatGrid);
  ReferenceTrainer want(c, settings, values);
  RunSetup options = setup_of({.parts = 2}, "");
  set_optimizer(options.spec, settings);
  TrainingRun training = run_of(build_case(c, false).graph, options);
  write_values(training, values);
  for (int step = 0; step < 5; ++step) {
    const double now = rate / (1 + step);  // a learning rate that changes
    const double loss = want.step(static_cast<double>(static_cast<float>(now)));
    EXPECT_NEAR(static_cast<double>(training.step(static_cast<float>(now)).loss), loss, 10 * tolerance * loss);
  }
  const Graph& g = training.graph();
  for (const Parameter& p : g.parameters) {
    if (g.buffers[p.buffer].role != Role::weight) continue;
    SCOPED_TRACE(g.buffer_name(p.buffer));
    const Tensor& after = want.values().at(g.buffer_name(p.buffer));
    EXPECT_GT(largest(binary(after, values.at(g.buffer_name(p.buffer)), std::minus<>())), 10 * tolerance);  // it moved
    expect_near(read_tensor(training.executor(), p.buffer), after, tolerance);
  }
}

TEST(OpSgd, Plain) { check_training({.momentum = 0}, 0.1, 1e-5); }
TEST(OpSgd, Momentum) { check_training({.momentum = 0.9}, 0.05, 1e-5); }
TEST(OpSgd, Nesterov) { check_training({.momentum = 0.8, .nesterov = true}, 0.05, 1e-5); }
TEST(OpSgd, WeightDecay) { check_training({.momentum = 0.9, .weight_decay = 0.3}, 0.05, 1e-5); }
TEST(OpSgd, NesterovDecayAndClipping) {
  check_training({.momentum = 0.8, .nesterov = true, .weight_decay = 0.1, .clip_norm = 0.2}, 0.1, 1e-5);
}
TEST(OpSgd, ClippingThatDoesNothing) { check_training({.momentum = 0, .clip_norm = 1000}, 0.1, 1e-5); }

TEST(OpAdamW, Defaults) { check_training({.kind = Kind::adamw}, 0.01, 1e-4); }
TEST(OpAdamW, WeightDecayAndBetas) {
  check_training({.kind = Kind::adamw, .weight_decay = 0.2, .beta1 = 0.7, .beta2 = 0.95, .eps = 1e-4}, 0.05, 1e-4);
}
TEST(OpAdamW, Clipping) { check_training({.kind = Kind::adamw, .eps = 1e-3, .clip_norm = 0.05}, 0.05, 1e-4); }

// d sqrt(x) at 0 is infinite while the loss is not: the step changes no weight, not by way of the clipping factor
// either, and its loss says so afterwards.
TEST(OpClipping, AGradientThatIsNotFiniteChangesNothing) {
  for (const Kind kind : {Kind::sgd, Kind::adamw}) {
    Model m("op", 2);
    const Value root = m.activation(m.parameter({2, 3}, {}, "zero"), "sqrt");
    m.mean_squared_error(m.add(root, m.parameter({2, 3}, {Init::Kind::ones}, "good")));
    RunSetup options = in_order_setup();
    use_test_device(options, Precision::f32, 1);
    set_optimizer(options.spec, {.kind = kind, .clip_norm = 1.0});
    TrainingRun training = run_of(std::move(m).finish(), std::move(options));
    training.fill_inputs(1);
    const std::uint64_t before = training.weights_hash();
    training.step(0.1f);
    EXPECT_EQ(training.weights_hash(), before);
    EXPECT_TRUE(
        std::isnan(*reinterpret_cast<const float*>(training.executor().bytes(training.graph().losses[0]).data())));
  }
}

}  // namespace
}  // namespace overtake::reference
