// VGG-16 (Simonyan and Zisserman 2014, configuration D), with torchvision's names and initial values.

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

struct Stage {
  std::int64_t convolutions, widening;  // of the first stage's width
};
constexpr Stage kStages[] = {{2, 1}, {2, 2}, {3, 4}, {3, 8}, {3, 8}};

Graph build_vgg16(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const double p = s.fraction("dropout");
  const std::int64_t width = s.whole("width"), hidden = s.whole("hidden");
  Value x = input_images(m, s, 32);
  int index = 0;  // torchvision numbers convolutions, ReLUs and pools alike
  for (const Stage& stage : kStages) {
    for (std::int64_t i = 0; i < stage.convolutions; ++i, index += 2) {
      Conv2d conv{.out = stage.widening * width, .kernel = 3, .padding = 1, .bias_init = Init{}};
      conv.weight_init = he_fan_out(conv);
      x = m.relu(m.conv2d(x, conv, fmt::format("features.{}", index)));
    }
    x = m.max_pool(x, {.kernel = 2, .stride = 2}, fmt::format("features.{}", index++));
  }
  const auto dense = [&](Value in, std::int64_t out, const char* name) {
    return m.linear(in, {.out = out, .weight_init = normal_init(0.01), .bias_init = Init{}}, name);
  };
  x = m.flatten(m.adaptive_pool(x, 7, 7, "avgpool"));  // [N, 8 width x 7 x 7]
  x = dropped(m, m.relu(dense(x, hidden, "classifier.0")), p, "classifier.2");
  x = dropped(m, m.relu(dense(x, hidden, "classifier.3")), p, "classifier.5");
  m.cross_entropy(dense(x, s.whole("classes"), "classifier.6"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> vgg_networks() {
  return {{"vgg-16",
           "images",
           "VGG-16",
           {{"batch", 16},
            {"channels", 3},
            {"image", 224},
            {"classes", 1000},
            {"width", 64},
            {"hidden", 4096},
            {"dropout", 0.5}},
           "synthetic",
           build_vgg16}};
}

}  // namespace overtake
