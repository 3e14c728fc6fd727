// Arithmetic, activations, softmax, dropout, masks.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "models/onnx/importer.h"
#include "models/onnx/recorded_call.h"

namespace overtake::onnx {
namespace {

constexpr double kMasked = -1e4;  // what is added to scores to hide them is below
constexpr double kFar = 3e38;     // a bound that is none

void add(Call& c) { c.give(c.model().add(c.value(0, "bias"), c.value(1, "bias"), c.name())); }
void mul(Call& c) { c.give(c.model().mul(c.value(0), c.value(1), c.name())); }

void sub(Call& c) {
  if (const auto b = c.scalar(1)) return c.give(c.model().add(c.value(0), c.number(-*b), c.name()));
  c.give(c.model().add(c.value(0), c.scaled(c.value(1), -1), c.name()));
}

void div(Call& c) {
  if (const auto b = c.scalar(1)) {
    if (*b == 0) fail_unsupported_node("a division by zero");
    return c.give(c.scaled(c.value(0), 1 / *b));
  }
  c.give(c.model().mul(c.value(0), c.model().activation(c.value(1), "reciprocal", c.name()), c.name()));
}

void pow(Call& c) {
  const auto exponent = c.setting(1);
  const Value x = c.value(0);
  if (exponent == 1.0) return c.give(x);
  if (exponent == 2.0) return c.give(c.model().mul(x, x, c.name()));
  if (exponent == 3.0) return c.give(c.model().mul(c.model().mul(x, x, c.name()), x, c.name()));
  if (exponent == 0.5) return c.give(c.model().activation(x, "sqrt", c.name()));
  if (exponent == -1.0) return c.give(c.model().activation(x, "reciprocal", c.name()));
  if (exponent == -0.5) {
    const Value root = c.model().activation(x, "sqrt", c.name());
    return c.give(c.model().activation(root, "reciprocal", c.name()));
  }
  fail_unsupported_node("an exponent other than -1, -0.5, 0.5, 1, 2, 3");
}

void neg(Call& c) { c.give(c.scaled(c.value(0), -1)); }

void sum(Call& c) {
  Value total = c.value(0);
  for (std::size_t i = 1; i < c.node.inputs.size(); ++i) total = c.model().add(total, c.value(i), c.name());
  c.give(total);
}

void activation(Call& c) {
  constexpr std::pair<std::string_view, const char*> kFunctions[] = {
      {"Relu", "relu"}, {"Sigmoid", "sigmoid"},       {"Tanh", "tanh"}, {"Sqrt", "sqrt"}, {"Exp", "exp"},
      {"Log", "log"},   {"Reciprocal", "reciprocal"}, {"Erf", "erf"},   {"Abs", "abs"},   {"Softplus", "softplus"},
      {"Mish", "mish"}, {"HardSwish", "hard_swish"}};
  for (const auto& [op, function] : kFunctions)
    if (op == c.node.op) return c.give(c.model().activation(c.value(0), function, c.name()));
}

void gelu(Call& c) {
  const std::string approximate = c.node.text("approximate", "none");
  c.give(c.model().activation(c.value(0), approximate == "tanh" ? "gelu_tanh" : "gelu", c.name()));
}

void with_alpha(Call& c) {
  const bool is_elu = c.node.op == "Elu";
  const double alpha = static_cast<double>(c.node.real("alpha", is_elu ? 1.0f : 0.01f));
  const Attrs attrs{{"function", std::string(is_elu ? "elu" : "leaky_relu")}, {"alpha", alpha}};
  c.give(c.model().layer(Op::activation, {c.value(0)}, attrs, c.name()));
}

void hard_sigmoid(Call& c) {
  const double alpha = static_cast<double>(c.node.real("alpha", 0.2f)),
               beta = static_cast<double>(c.node.real("beta", 0.5f));
  if (std::fabs(alpha - 1.0 / 6) < 1e-6 && beta == 0.5)
    return c.give(c.model().activation(c.value(0), "hard_sigmoid", c.name()));
  c.give(c.model().clip(c.model().add(c.scaled(c.value(0), alpha), c.number(beta), c.name()), 0, 1, c.name()));
}

void clip(Call& c) {
  const auto bound = [&](std::size_t i, double fallback) {
    if (!c.has(i)) return fallback;
    const auto value = c.setting(i);
    if (!value) fail_unsupported_node("bounds that are not known");
    return std::clamp(*value, -kFar, kFar);
  };
  const double low = bound(1, -kFar), high = bound(2, kFar);
  if (low == 0 && high == kFar) return c.give(c.model().relu(c.value(0), c.name()));
  c.give(c.model().clip(c.value(0), low, high, c.name()));
}

// The dynamo exporter writes torch.clamp(x, 0, 6) as a maximum and a minimum too, with the bounds as scalars.
bool is_clamp_by_numbers(const Call& c) {
  const RecordedCall call = recorded_call(c.node.origin);
  return call.op == "clamp" && std::ranges::all_of(std::span(call.arguments).subspan(1), [](std::string_view bound) {
           return bound == "None" || bound.starts_with("%scalar_tensor");
         });
}

// Of a tensor and a number; of two tensors there is no gradient here. Where both are equal, each has half of it.
void extreme(Call& c) {
  if (c.node.inputs.size() != 2) fail_unsupported_node("of other than two values");
  const std::size_t x = c.scalar(1) ? 0 : 1;
  const auto bound = c.scalar(1 - x);
  if (!bound) fail_unsupported_node("of two tensors");
  const bool is_max = c.node.op == "Max";
  const double b = std::clamp(*bound, -kFar, kFar);
  if (is_clamp_by_numbers(c) && is_max && b == 0) return c.give(c.model().relu(c.value(x), c.name()));
  if (is_clamp_by_numbers(c))
    return c.give(c.model().clip(c.value(x), is_max ? b : -kFar, is_max ? kFar : b, c.name()));
  const auto maximum = [&](Value of, double other) {
    return c.model().layer(Op::activation, {of}, {{"function", std::string("maximum")}, {"alpha", other}}, c.name());
  };
  c.give(is_max ? maximum(c.value(x), b) : c.scaled(maximum(c.scaled(c.value(x), -1), -b), -1));
}

void softmax(Call& c) {
  const Value p = c.model().softmax(c.value(0), c.axis(c.node.integer("axis", -1), c.dims(0).size()), c.name());
  c.give(c.node.op == "Softmax" ? p : c.model().activation(p, "log", c.name()));
}

void dropout(Call& c) {
  const double ratio = c.has(1) ? c.setting(1).value_or(-1) : static_cast<double>(c.node.real("ratio", 0.5f));
  const std::optional<double> training = c.has(2) ? c.scalar(2) : 0;
  if (!training) fail_unsupported_node("a training mode that is not known");
  const bool is_training = *training != 0;
  if (!(ratio >= 0 && ratio < 1)) fail_unsupported_node("a ratio that is not known or not below 1");
  if (!is_training || ratio == 0) return c.pass(0);
  c.give(c.model().dropout(c.value(0), ratio, c.name()));
}

// Stochastic depth is a random number per sample, compared with the rate at which it survives.
void random_like(Call& c) {
  if (c.node.real("low", 0) != 0 || c.node.real("high", 1) != 1) fail_unsupported_node("a range other than 0 to 1");
  c.importer.give(c.node.outputs.at(0), Item{.kind = Item::Kind::random, .value = c.value(0)});
}

// The one number that a known input consists of.
std::optional<double> uniform(Call& c, std::size_t i) {
  if (c.item(i).kind != Item::Kind::known) return {};
  const Constant& k = c.known(i, "rate");
  for (std::size_t e = 0; e < static_cast<std::size_t>(k.elements()); ++e)
    if (k.real_at(e) != k.real_at(0)) return {};
  return k.elements() > 0 ? std::optional(k.real_at(0)) : std::nullopt;
}

void less(Call& c) {
  const Item& random = c.item(0);
  const auto rate = uniform(c, 1);
  if (random.kind != Item::Kind::random || !rate) fail_unsupported_node("of values that depend on the data");
  const double p = std::clamp(*rate, 0.0, 1.0);
  const Shape shape = c.model().shape(random.value);
  c.importer.budget().take(shape.elements(), c.node.label());
  const std::vector<float> values(static_cast<std::size_t>(shape.elements()), static_cast<float>(p));
  const Value keep = c.model().constant(shape, values, c.name() + ".rate");
  // p / p with probability p, else 0.
  c.give(p > 0 && p < 1 ? c.model().dropout(keep, 1 - p, c.name()) : keep);
}

void cast(Call& c) {
  const Item& x = c.item(0);
  if (x.kind == Item::Kind::random) return c.pass(0);
  const auto to = static_cast<ElementType>(c.node.integer("to", static_cast<std::int64_t>(ElementType::f32)));
  const bool to_real =
      to == ElementType::f32 || to == ElementType::f16 || to == ElementType::bf16 || to == ElementType::f64;
  if (x.kind == Item::Kind::known && c.node.op == "CastLike") {  // beside a tensor, which is of floats
    const Node to_float{.name = c.node.name,
                        .op = "Cast",
                        .inputs = {""},
                        .outputs = c.node.outputs,
                        .attributes = {{.name = "to", .kind = Attribute::Kind::integer, .integer = 1}}};
    const Constant* input = x.known.get();
    return c.importer.give(c.node.outputs.at(0),
                           std::move(fold(to_float, {&input, 1}, c.importer.file().opset, c.importer.budget())[0]));
  }
  if (x.kind == Item::Kind::weight || c.node.op == "CastLike") return c.pass(0);
  const bool from_real = x.kind == Item::Kind::runtime && c.model().dtype(x.value) == DType::f32;
  if (to_real != from_real) fail_unsupported_node("between real and whole numbers");
  c.pass(0);
}

void stop_gradient(Call& c) {
  if (c.item(0).kind == Item::Kind::known) return c.pass(0);
  c.give(c.model().stop_gradient(c.value(0), c.name()));
}

void identity(Call& c) {
  if (recorded_call(c.node.origin).op == "detach") return stop_gradient(c);
  Item x = c.item(0);
  // The older exporter tells so that two parameters are equal; the dynamo exporter, that one was copied.
  if (x.kind == Item::Kind::weight && c.node.origin.empty()) x.alias = c.node.outputs.at(0);
  c.importer.give(c.node.outputs.at(0), std::move(x));
}

void is_nan(Call& c) { c.importer.give(c.node.outputs.at(0), Item{.kind = Item::Kind::nan_test, .value = c.value(0)}); }

// `chosen` where the condition is one, else 0; or the other way round.
Constant masked(Call& c, const Constant& condition, const Constant& chosen, bool where_true) {
  Constant zero{.kind = Constant::Kind::real, .dims = {}, .reals = {0}};
  Constant real = chosen;
  if (real.kind != Constant::Kind::real) {
    real.reals.assign(real.integers.begin(), real.integers.end());
    real.kind = Constant::Kind::real;
  }
  const Node node{.name = c.node.name, .op = "Where", .inputs = {"", "", ""}, .outputs = c.node.outputs};
  const Constant* inputs[] = {&condition, where_true ? &real : &zero, where_true ? &zero : &real};
  return std::move(fold(node, inputs, c.importer.file().opset, c.importer.budget())[0]);
}

Value constant_of(Call& c, Constant constant) {
  Item item{.kind = Item::Kind::known, .known = std::make_shared<const Constant>(std::move(constant))};
  return c.importer.value_of(item, c.node, "constant");
}

void where(Call& c) {
  const Item &condition = c.item(0), &a = c.item(1), &b = c.item(2);
  // PyTorch guards softmax against rows that are hidden as a whole; none is here.
  if (condition.kind == Item::Kind::nan_test && b.kind == Item::Kind::runtime && b.value.id == condition.value.id)
    return c.pass(2);
  const Constant& mask = c.known(0, "condition");
  const bool keeps_true = a.kind == Item::Kind::runtime;  // the side that is computed
  const Item& other = keeps_true ? b : a;
  if (other.kind == Item::Kind::runtime) {
    const Constant one{.kind = Constant::Kind::real, .dims = {}, .reals = {1}};
    const Value yes = constant_of(c, masked(c, mask, one, true)), no = constant_of(c, masked(c, mask, one, false));
    return c.give(c.model().add(c.model().mul(c.value(1), yes), c.model().mul(c.value(2), no), c.name()));
  }
  const std::size_t kept = keeps_true ? 1 : 2, given = keeps_true ? 2 : 1;
  const Constant& fill = c.known(given, "other side");
  Value x = c.value(kept);
  bool hides = true;
  for (std::size_t i = 0; i < static_cast<std::size_t>(fill.elements()); ++i)
    hides = hides && fill.real_at(i) < kMasked;
  if (!hides) {
    const Constant one{.kind = Constant::Kind::real, .dims = {}, .reals = {1}};
    x = c.model().mul(x, constant_of(c, masked(c, mask, one, keeps_true)), c.name());
  }
  c.give(c.model().add(x, constant_of(c, masked(c, mask, fill, !keeps_true)), c.name()));
}

}  // namespace

void add_elementwise(LowerTable& table) {
  for (const char* op :
       {"Relu", "Sigmoid", "Tanh", "Sqrt", "Exp", "Log", "Reciprocal", "Erf", "Abs", "Softplus", "Mish", "HardSwish"})
    table[op] = activation;
  table["Add"] = add;
  table["Sub"] = sub;
  table["Mul"] = mul;
  table["Div"] = div;
  table["Pow"] = pow;
  table["Neg"] = neg;
  table["Sum"] = sum;
  table["Gelu"] = gelu;
  table["LeakyRelu"] = table["Elu"] = with_alpha;
  table["HardSigmoid"] = hard_sigmoid;
  table["Clip"] = clip;
  table["Max"] = table["Min"] = extreme;
  table["Softmax"] = table["LogSoftmax"] = softmax;
  table["Dropout"] = dropout;
  table["RandomUniformLike"] = random_like;
  table["Less"] = less;
  table["Cast"] = table["CastLike"] = cast;
  table["Identity"] = identity;
  table["overtake.StopGradient"] = stop_gradient;
  table["IsNaN"] = is_nan;
  table["Where"] = where;
}

}  // namespace overtake::onnx
