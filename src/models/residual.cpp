// Residual networks (He et al. 2015). ResNet-18 to 152 have torchvision's names and initial values; the one for CIFAR
// is that of the paper's section 4.2.

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

// One network while it is built; its norm goes into every block.
struct Residual {
  Model& m;
  ImageNorm norm;

  Value conv(Value x, const Conv2d& c, const std::string& conv_name, const std::string& norm_name) const {
    return conv_norm(m, x, c, norm, conv_name, norm_name);
  }

  // Projects where the shape changes (the paper's option B).
  Value shortcut(Value x, std::int64_t out, std::int64_t stride, const std::string& name) const {
    if (stride == 1 && m.shape(x)[1] == out) return x;
    return conv(x, {.out = out, .kernel = 1, .stride = stride}, name + ".downsample.0", name + ".downsample.1");
  }

  Value basic(Value x, std::int64_t width, std::int64_t stride, const std::string& name) const {
    const Value skipped = shortcut(x, width, stride, name);
    x = m.relu(conv(x, {.out = width, .kernel = 3, .stride = stride, .padding = 1}, name + ".conv1", name + ".bn1"));
    x = conv(x, {.out = width, .kernel = 3, .padding = 1}, name + ".conv2", name + ".bn2");
    return m.relu(m.add(x, skipped));
  }

  // With the stride in the 3 x 3 convolution, which is called v1.5.
  Value bottleneck(Value x, std::int64_t width, std::int64_t stride, const std::string& name) const {
    const Value skipped = shortcut(x, 4 * width, stride, name);
    x = m.relu(conv(x, {.out = width, .kernel = 1}, name + ".conv1", name + ".bn1"));
    x = m.relu(conv(x, {.out = width, .kernel = 3, .stride = stride, .padding = 1}, name + ".conv2", name + ".bn2"));
    x = conv(x, {.out = 4 * width, .kernel = 1}, name + ".conv3", name + ".bn3");
    return m.relu(m.add(x, skipped));
  }

  // 7 x 7 with stride 2 and a pool for large images; 3 x 3 for those of CIFAR's size.
  Value stem(Value x, std::int64_t width, bool is_small) const {
    if (is_small) return m.relu(conv(x, {.out = width, .kernel = 3, .padding = 1}, "conv1", "bn1"));
    x = m.relu(conv(x, {.out = width, .kernel = 7, .stride = 2, .padding = 3}, "conv1", "bn1"));
    return m.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  }
};

Graph build_resnet(const Settings& s, std::initializer_list<std::int64_t> stages, bool has_bottlenecks) {
  Model m(s.model(), s.whole("batch"));
  const Residual net{m, image_norm(s)};
  std::int64_t width = s.whole("width");
  Value x = net.stem(input_images(m, s), width, s.whole("stem", 0, 1) == 1);
  int stage = 1;
  for (const std::int64_t blocks : stages) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::string name = fmt::format("layer{}.{}", stage, b);
      const std::int64_t stride = b == 0 && stage > 1 ? 2 : 1;
      x = has_bottlenecks ? net.bottleneck(x, width, stride, name) : net.basic(x, width, stride, name);
    }
    ++stage;
    width *= 2;
  }
  m.cross_entropy(m.linear(m.global_pool(x), {.out = s.whole("classes")}, "fc"));
  return std::move(m).finish();
}

// The paper's option A: every other pixel, and new channels that are zero, half of them on each side.
Value shortcut_without_weights(Model& m, Value x, const std::string& name) {
  const Value half = m.max_pool(x, {.kernel = 1, .stride = 2}, name + ".shortcut.half");  // [N, C, H / 2, W / 2]
  const Shape shape = m.shape(half), new_channels = {shape[0], shape[1] / 2, shape[2], shape[3]};
  const std::vector<float> zeros(static_cast<std::size_t>(new_channels.elements()));
  const Value none = m.constant(new_channels, zeros, name + ".shortcut.zeros");
  return m.concat({none, half, none}, 1, name + ".shortcut");  // [N, 2 C, H / 2, W / 2]
}

// 6 n + 2 layers: n blocks of two convolutions at each of the widths 16, 32, 64.
Graph build_cifar_resnet(const Settings& s, std::int64_t blocks) {
  Model m(s.model(), s.whole("batch"));
  const ImageNorm norm = image_norm(s);
  const auto conv = [&](Value x, std::int64_t out, std::int64_t stride, const std::string& name,
                        const std::string& norm_name) {
    Conv2d c{.out = out, .kernel = 3, .stride = stride, .padding = 1};
    c.weight_init = he_fan_in(c, m.shape(x)[1]);
    return conv_norm(m, x, c, norm, name, norm_name);
  };
  Value x = m.relu(conv(input_images(m, s), 16, 1, "conv1", "bn1"));
  for (std::int64_t stage = 0; stage < 3; ++stage) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, b);
      const bool is_halved = stage > 0 && b == 0;
      const Value skipped = is_halved ? shortcut_without_weights(m, x, name) : x;
      x = m.relu(conv(x, 16 << stage, is_halved ? 2 : 1, name + ".conv1", name + ".bn1"));
      x = m.relu(m.add(conv(x, 16 << stage, 1, name + ".conv2", name + ".bn2"), skipped));
    }
  }
  const Init he = he_fan_in({.kernel = 1}, 64);
  m.cross_entropy(
      m.linear(m.global_pool(x), {.out = s.whole("classes"), .weight_init = he, .bias_init = Init{}}, "fc"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> residual_networks() {
  const std::map<std::string, double> cifar = {
      {"batch", 128}, {"channels", 3}, {"image", 32}, {"classes", 10}, {"norm", 0}};
  const std::map<std::string, double> large = {{"batch", 16}, {"channels", 3}, {"image", 224}, {"classes", 1000},
                                               {"width", 64}, {"norm", 0},     {"stem", 0}};
  const auto entry = [&](const char* name, const char* what, Graph (*build)(const Settings&)) {
    return ZooEntry{name, "images", what, large, "synthetic", build};
  };
  return {
      {"resnet-32-cifar", "images", "ResNet-32 of CIFAR", cifar, "synthetic",
       [](const Settings& s) { return build_cifar_resnet(s, 5); }},
      entry("resnet-18", "ResNet-18",
            [](const Settings& s) {
              return build_resnet(s, {2, 2, 2, 2}, false);
            }),
      entry("resnet-34", "ResNet-34",
            [](const Settings& s) {
              return build_resnet(s, {3, 4, 6, 3}, false);
            }),
      entry("resnet-50", "ResNet-50, v1.5",
            [](const Settings& s) {
              return build_resnet(s, {3, 4, 6, 3}, true);
            }),
      entry("resnet-101", "ResNet-101, v1.5",
            [](const Settings& s) {
              return build_resnet(s, {3, 4, 23, 3}, true);
            }),
      entry("resnet-152", "ResNet-152, v1.5",
            [](const Settings& s) {
              return build_resnet(s, {3, 8, 36, 3}, true);
            }),
  };
}

}  // namespace overtake
