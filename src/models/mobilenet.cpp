// MobileNetV3-Large (Howard et al. 2019), with torchvision's names and initial values.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

// A row of the paper's table 1.
struct Row {
  std::int64_t kernel, expanded, out;
  bool has_squeeze, has_hard_swish;
  std::int64_t stride;
};
constexpr Row kRows[] = {
    {3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
    {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
    {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
    {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
    {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1},
};

// The nearest multiple of 8, but never more than a tenth below.
std::int64_t rounded_channels(double wanted) {
  const std::int64_t nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(wanted + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * wanted ? nearest + 8 : nearest;
}

struct MobileNet {
  Model& m;
  ImageNorm norm;

  // A convolution ("NAME.0"), a norm ("NAME.1") and a function, unless that is empty.
  Value conv(Value x, Conv2d c, const std::string& function, const std::string& name) const {
    c.padding = (c.kernel - 1) / 2;
    x = conv_norm(m, x, c, norm, name + ".0", name + ".1");
    return function.empty() ? x : m.activation(x, function, name + ".2");
  }

  // Weighs the channels of x [N, C, H, W] by what two 1 x 1 convolutions make of their means.
  Value squeeze_excite(Value x, const std::string& name) const {
    const std::int64_t channels = m.shape(x)[1];
    const auto pointwise = [&](Value in, std::int64_t out, const std::string& layer) {
      Conv2d c{.out = out, .kernel = 1, .bias_init = Init{}};
      c.weight_init = he_fan_out(c);
      return m.conv2d(in, c, layer);
    };
    const Value means = m.reshape(m.global_pool(x, name + ".avgpool"), {m.batch(), channels, 1, 1}, name + ".means");
    const Value squeezed = m.relu(pointwise(means, rounded_channels(static_cast<double>(channels / 4)), name + ".fc1"));
    const Value scale = m.activation(pointwise(squeezed, channels, name + ".fc2"), "hard_sigmoid");
    return m.mul(x, scale, name);
  }

  // An inverted residual: expands, filters every channel by itself, weighs the channels, projects.
  Value block(Value x, const Row& row, double multiplier, const std::string& name) const {
    const std::int64_t in = m.shape(x)[1];
    const std::int64_t expanded = rounded_channels(static_cast<double>(row.expanded) * multiplier);
    const std::int64_t out = rounded_channels(static_cast<double>(row.out) * multiplier);
    const std::string function = row.has_hard_swish ? "hard_swish" : "relu";
    int part = 0;
    const auto next = [&] { return fmt::format("{}.block.{}", name, part++); };
    Value y = x;
    if (expanded != in) y = conv(y, {.out = expanded, .kernel = 1}, function, next());
    y = conv(y, {.out = expanded, .kernel = row.kernel, .stride = row.stride, .groups = expanded}, function, next());
    if (row.has_squeeze) y = squeeze_excite(y, next());
    y = conv(y, {.out = out, .kernel = 1}, "", next());
    return row.stride == 1 && in == out ? m.add(y, x, name) : y;
  }
};

Graph build_mobilenet_v3(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const double multiplier = s.positive("width_multiplier"), dropout = s.fraction("dropout");
  const MobileNet net{m, image_norm(s, {.eps = 0.001, .momentum = 0.01})};
  const auto scaled = [&](double channels) { return rounded_channels(channels * multiplier); };
  Value x = net.conv(input_images(m, s), {.out = scaled(16), .kernel = 3, .stride = 2}, "hard_swish", "features.0");
  int index = 1;
  for (const Row& row : kRows) x = net.block(x, row, multiplier, fmt::format("features.{}", index++));
  x = net.conv(x, {.out = 6 * scaled(160), .kernel = 1}, "hard_swish", fmt::format("features.{}", index));
  const auto dense = [&](Value in, std::int64_t out, const char* name) {
    return m.linear(in, {.out = out, .weight_init = normal_init(0.01), .bias_init = Init{}}, name);
  };
  x = m.activation(dense(m.global_pool(x), scaled(1280), "classifier.0"), "hard_swish", "classifier.1");
  m.cross_entropy(dense(dropped(m, x, dropout, "classifier.2"), s.whole("classes"), "classifier.3"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> mobilenets() {
  return {{"mobilenet-v3-large",
           "images",
           "MobileNetV3-Large",
           {{"batch", 16},
            {"channels", 3},
            {"image", 224},
            {"classes", 1000},
            {"width_multiplier", 1},
            {"norm", 0},
            {"dropout", 0.2}},
           "synthetic",
           build_mobilenet_v3}};
}

}  // namespace overtake
