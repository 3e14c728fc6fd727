// Small networks over 28 x 28 images, for first steps and tests.

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

Graph build_ffnn(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  Value x = m.flatten(input_images(m, s));  // [N, channels image image]
  for (std::int64_t i = 0; i < s.whole("layers"); ++i)
    x = m.relu(m.linear(x, {.out = s.whole("width")}, fmt::format("fc{}", i + 1)));
  m.cross_entropy(m.linear(x, {.out = s.whole("classes")}, "head"));
  return std::move(m).finish();
}

Graph build_lenet(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  Value x = m.relu(m.conv2d(input_images(m, s, 12), {.out = 6, .kernel = 5, .padding = 2}, "conv1"));
  x = m.relu(m.conv2d(m.max_pool(x), {.out = 16, .kernel = 5}, "conv2"));
  x = m.flatten(m.max_pool(x));  // [N, 400] of a 28 x 28 image
  x = m.relu(m.linear(x, {.out = 120}, "fc1"));
  x = m.relu(m.linear(x, {.out = 84}, "fc2"));
  m.cross_entropy(m.linear(x, {.out = s.whole("classes")}, "fc3"));
  return std::move(m).finish();
}

// A residual network of two stages.
Graph build_cnn(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const std::int64_t width = s.whole("width");
  const ImageNorm norm = image_norm(s);
  const auto conv = [&](Value x, std::int64_t out, std::int64_t stride, const std::string& name,
                        const std::string& norm_name) {
    return conv_norm(m, x, {.out = out, .kernel = 3, .stride = stride, .padding = 1}, norm, name, norm_name);
  };
  Value x = m.relu(conv(input_images(m, s), width, 1, "stem.conv", "stem.norm"));
  for (std::int64_t stage = 1; stage <= 2; ++stage) {
    const std::string name = fmt::format("stage{}", stage);
    const std::int64_t out = width << stage;
    x = m.relu(conv(x, out, 2, name + ".down", name + ".norm0"));
    const Value y = m.relu(conv(x, out, 1, name + ".conv1", name + ".norm1"));
    x = m.relu(m.add(conv(y, out, 1, name + ".conv2", name + ".norm2"), x));
  }
  m.cross_entropy(m.linear(m.global_pool(x), {.out = s.whole("classes")}, "fc"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> small_networks() {
  const std::map<std::string, double> images = {{"batch", 64}, {"channels", 1}, {"image", 28}, {"classes", 10}};
  std::map<std::string, double> ffnn = images, cnn = images;
  ffnn.insert({{"layers", 2}, {"width", 256}});
  cnn.insert({{"width", 16}, {"norm", 0}});
  return {{"ffnn", "images", "fully connected layers", ffnn, "fashion-mnist", build_ffnn},
          {"lenet", "images", "LeNet-5 with ReLU", images, "fashion-mnist", build_lenet},
          {"cnn", "images", "small residual network", cnn, "fashion-mnist", build_cnn}};
}

}  // namespace overtake
