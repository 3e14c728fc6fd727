// DenseNet-BC (Huang et al. 2016), with torchvision's names and initial values.

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

// Norm, ReLU, convolution: here the convolution comes last.
Value norm_conv(Model& m, Value x, Conv2d conv, const ImageNorm& norm, const std::string& norm_name,
                const std::string& conv_name) {
  conv.bias = false;
  conv.weight_init = he_fan_in(conv, m.shape(x)[1]);
  return m.conv2d(m.relu(normalise(m, x, norm, norm_name)), conv, conv_name);
}

// x [N, C, H, W] -> [N, C + growth, H, W]
Value dense_layer(Model& m, Value x, std::int64_t growth, double dropout, const ImageNorm& norm,
                  const std::string& name) {
  Value y = norm_conv(m, x, {.out = 4 * growth, .kernel = 1}, norm, name + ".norm1", name + ".conv1");
  y = norm_conv(m, y, {.out = growth, .kernel = 3, .padding = 1}, norm, name + ".norm2", name + ".conv2");
  return m.concat({x, dropped(m, y, dropout)}, 1, name);
}

Graph build_densenet(const Settings& s, const std::vector<std::int64_t>& blocks) {
  Model m(s.model(), s.whole("batch"));
  const ImageNorm norm = image_norm(s);
  const std::int64_t growth = s.whole("growth");
  const double dropout = s.fraction("dropout");
  Value x = input_images(m, s, 29);
  Conv2d stem{.out = 64, .kernel = 7, .stride = 2, .padding = 3};
  stem.weight_init = he_fan_in(stem, m.shape(x)[1]);
  x = m.relu(conv_norm(m, x, stem, norm, "features.conv0", "features.norm0"));
  x = m.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}, "features.pool0");
  for (std::size_t block = 1; block <= blocks.size(); ++block) {
    for (std::int64_t i = 1; i <= blocks[block - 1]; ++i)
      x = dense_layer(m, x, growth, dropout, norm, fmt::format("features.denseblock{}.denselayer{}", block, i));
    if (block == blocks.size()) break;
    const std::string name = fmt::format("features.transition{}", block);
    x = norm_conv(m, x, {.out = m.shape(x)[1] / 2, .kernel = 1}, norm, name + ".norm", name + ".conv");
    x = m.avg_pool(x, {.kernel = 2, .stride = 2}, name + ".pool");
  }
  x = m.relu(normalise(m, x, norm, "features.norm5"));
  m.cross_entropy(m.linear(m.global_pool(x), {.out = s.whole("classes"), .bias_init = Init{}}, "classifier"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> densenets() {
  const std::map<std::string, double> defaults = {{"batch", 16},  {"channels", 3}, {"image", 224}, {"classes", 1000},
                                                  {"growth", 32}, {"norm", 0},     {"dropout", 0}};
  return {{"densenet-121", "images", "DenseNet-121", defaults, "synthetic",
           [](const Settings& s) {
             return build_densenet(s, {6, 12, 24, 16});
           }},
          {"densenet-169", "images", "DenseNet-169", defaults, "synthetic", [](const Settings& s) {
             return build_densenet(s, {6, 12, 32, 32});
           }}};
}

}  // namespace overtake
