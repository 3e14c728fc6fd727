// Inception-v4 (Szegedy et al. 2016), with the names that timm gives it and PyTorch's own initial values.

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

// A convolution of a branch: kernel and padding follow from the window; the image keeps its size unless `is_valid`.
struct Step {
  std::int64_t out, height, width;
  bool is_valid = false;
  std::int64_t stride = 1;
};

struct InceptionV4 {
  Model& m;
  double multiplier;  // of all widths

  // Convolution, batch norm, ReLU.
  Value conv(Value x, const Step& step, const std::string& name) const {
    Conv2d c{.out = scaled_channels(step.out, multiplier),
             .stride = step.stride,
             .bias = false,
             .kernel_hw = {step.height, step.width}};
    const std::int64_t down = step.is_valid ? 0 : step.height / 2, across = step.is_valid ? 0 : step.width / 2;
    c.padding_tlbr = {down, across, down, across};
    return m.relu(m.batch_norm(m.conv2d(x, c, name + ".conv"), {.eps = 0.001}, name + ".bn"));
  }
  // Convolutions one after the other: NAME.`first`, and so on.
  Value branch(Value x, const std::vector<Step>& steps, const std::string& name, int first = 0) const {
    for (const Step& step : steps) x = conv(x, step, fmt::format("{}.{}", name, first++));
    return x;
  }
  // A branch that averages, then mixes channels.
  Value pool_branch(Value x, std::int64_t out, const std::string& name) const {
    const Value mean = m.avg_pool(x, {.kernel = 3, .stride = 1, .padding = 1, .count_include_pad = false}, name + ".0");
    return branch(mean, {{out, 1, 1}}, name, 1);
  }
  Value halved(Value x, const std::string& name) const { return m.max_pool(x, {.kernel = 3, .stride = 2}, name); }

  // -> [N, 384, H, W], about an eighth of the image's size
  Value stem(Value x) const {
    x = conv(x, {32, 3, 3, true, 2}, "features.0");
    x = conv(x, {32, 3, 3, true}, "features.1");
    x = conv(x, {64, 3, 3}, "features.2");
    x = m.concat({halved(x, "features.3.maxpool"), conv(x, {96, 3, 3, true, 2}, "features.3.conv")}, 1, "features.3");
    const Value short_way = branch(x, {{64, 1, 1}, {96, 3, 3, true}}, "features.4.branch0");
    const Value long_way = branch(x, {{64, 1, 1}, {64, 1, 7}, {64, 7, 1}, {96, 3, 3, true}}, "features.4.branch1");
    x = m.concat({short_way, long_way}, 1, "features.4");
    const Value convolved = conv(x, {192, 3, 3, true, 2}, "features.5.conv");
    return m.concat({convolved, halved(x, "features.5.maxpool")}, 1, "features.5");
  }

  // -> [N, 384, H, W]
  Value block_a(Value x, const std::string& name) const {
    return m.concat(
        {conv(x, {96, 1, 1}, name + ".branch0"), branch(x, {{64, 1, 1}, {96, 3, 3}}, name + ".branch1"),
         branch(x, {{64, 1, 1}, {96, 3, 3}, {96, 3, 3}}, name + ".branch2"), pool_branch(x, 96, name + ".branch3")},
        1, name);
  }

  // -> [N, 1024, (H - 1) / 2, (W - 1) / 2]
  Value reduction_a(Value x, const std::string& name) const {
    return m.concat(
        {conv(x, {384, 3, 3, true, 2}, name + ".branch0"),
         branch(x, {{192, 1, 1}, {224, 3, 3}, {256, 3, 3, true, 2}}, name + ".branch1"), halved(x, name + ".branch2")},
        1, name);
  }

  // -> [N, 1024, H, W]
  Value block_b(Value x, const std::string& name) const {
    return m.concat(
        {conv(x, {384, 1, 1}, name + ".branch0"), branch(x, {{192, 1, 1}, {224, 1, 7}, {256, 7, 1}}, name + ".branch1"),
         branch(x, {{192, 1, 1}, {192, 7, 1}, {224, 1, 7}, {224, 7, 1}, {256, 1, 7}}, name + ".branch2"),
         pool_branch(x, 128, name + ".branch3")},
        1, name);
  }

  // -> [N, 1536, (H - 1) / 2, (W - 1) / 2]
  Value reduction_b(Value x, const std::string& name) const {
    return m.concat({branch(x, {{192, 1, 1}, {192, 3, 3, true, 2}}, name + ".branch0"),
                     branch(x, {{256, 1, 1}, {256, 1, 7}, {320, 7, 1}, {320, 3, 3, true, 2}}, name + ".branch1"),
                     halved(x, name + ".branch2")},
                    1, name);
  }

  // -> [N, 1536, H, W]
  Value block_c(Value x, const std::string& name) const {
    const Value direct = conv(x, {256, 1, 1}, name + ".branch0");
    const Value once = conv(x, {384, 1, 1}, name + ".branch1_0");
    const Value once_row = conv(once, {256, 1, 3}, name + ".branch1_1a");
    const Value once_column = conv(once, {256, 3, 1}, name + ".branch1_1b");
    Value twice = conv(x, {384, 1, 1}, name + ".branch2_0");
    twice = conv(twice, {448, 3, 1}, name + ".branch2_1");
    twice = conv(twice, {512, 1, 3}, name + ".branch2_2");
    const Value twice_row = conv(twice, {256, 1, 3}, name + ".branch2_3a");
    const Value twice_column = conv(twice, {256, 3, 1}, name + ".branch2_3b");
    const Value pooled = pool_branch(x, 256, name + ".branch3");
    return m.concat({direct, once_row, once_column, twice_row, twice_column, pooled}, 1, name);
  }
};

Graph build_inception_v4(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const InceptionV4 net{m, s.positive("width_multiplier")};
  Value x = net.stem(input_images(m, s, 75));
  int index = 6;
  const auto next = [&] { return fmt::format("features.{}", index++); };
  for (int i = 0; i < 4; ++i) x = net.block_a(x, next());
  x = net.reduction_a(x, next());
  for (int i = 0; i < 7; ++i) x = net.block_b(x, next());
  x = net.reduction_b(x, next());
  for (int i = 0; i < 3; ++i) x = net.block_c(x, next());
  x = dropped(m, m.global_pool(x, "global_pool"), s.fraction("dropout"), "head_drop");  // [N, 1536]
  m.cross_entropy(m.linear(x, {.out = s.whole("classes")}, "last_linear"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> inception_v4_networks() {
  return {
      {"inception-v4",
       "images",
       "Inception-v4",
       {{"batch", 16}, {"channels", 3}, {"image", 299}, {"classes", 1000}, {"width_multiplier", 1}, {"dropout", 0.2}},
       "synthetic",
       build_inception_v4}};
}

}  // namespace overtake
