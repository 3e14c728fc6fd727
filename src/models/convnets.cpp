// Networks over images. Layers are named as torchvision names them.

#include <cmath>

#include "base/error.h"
#include "models/families.h"

namespace overtake {
namespace {

// He et al. 2015, as torchvision initialises its residual networks: normal, by the fan-out.
double he_fan_out(std::int64_t out, std::int64_t kernel) {
  return std::sqrt(2.0 / static_cast<double>(out * kernel * kernel));
}

Value conv_norm(Model& m, Value x, Conv2d conv, const std::string& conv_name, const std::string& norm_name) {
  conv.bias = false;
  conv.init_std = he_fan_out(conv.out, conv.kernel);
  return m.batch_norm(m.conv2d(x, conv, conv_name), {}, norm_name);
}

Value input_images(Model& m, const Settings& s) {
  return m.input({whole(s, "channels"), whole(s, "image"), whole(s, "image")});
}

Graph build_mlp(const Settings& s) {
  Model m("mlp", whole(s, "batch"));
  Value x = m.flatten(input_images(m, s));
  for (std::int64_t i = 0; i < whole(s, "layers"); ++i)
    x = m.relu(m.linear(x, {.out = whole(s, "width")}, fmt::format("fc{}", i + 1)));
  m.cross_entropy(m.linear(x, {.out = whole(s, "classes")}, "head"));
  return std::move(m).finish();
}

Graph build_lenet(const Settings& s) {
  Model m("lenet", whole(s, "batch"));
  Value x = m.relu(m.conv2d(input_images(m, s), {.out = 6, .kernel = 5, .padding = 2}, "conv1"));
  x = m.relu(m.conv2d(m.max_pool(x), {.out = 16, .kernel = 5}, "conv2"));
  x = m.flatten(m.max_pool(x));
  x = m.relu(m.linear(x, {.out = 120}, "fc1"));
  x = m.relu(m.linear(x, {.out = 84}, "fc2"));
  m.cross_entropy(m.linear(x, {.out = whole(s, "classes")}, "fc3"));
  return std::move(m).finish();
}

// A small residual network for 28 x 28 images.
Graph build_cnn(const Settings& s) {
  Model m("cnn", whole(s, "batch"));
  const std::int64_t width = whole(s, "width");
  Value x =
      m.relu(conv_norm(m, input_images(m, s), {.out = width, .kernel = 3, .padding = 1}, "stem.conv", "stem.norm"));
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    const std::string name = fmt::format("stage{}", stage + 1);
    const std::int64_t out = width << (stage + 1);
    x = m.relu(conv_norm(m, x, {.out = out, .kernel = 3, .stride = 2, .padding = 1}, name + ".down", name + ".norm0"));
    Value y = m.relu(conv_norm(m, x, {.out = out, .kernel = 3, .padding = 1}, name + ".conv1", name + ".norm1"));
    y = conv_norm(m, y, {.out = out, .kernel = 3, .padding = 1}, name + ".conv2", name + ".norm2");
    x = m.relu(m.add(y, x));
  }
  m.cross_entropy(m.linear(m.global_pool(x), {.out = whole(s, "classes")}, "fc"));
  return std::move(m).finish();
}

Value basic_block(Model& m, Value x, std::int64_t width, std::int64_t stride, const std::string& name) {
  Value y = m.relu(
      conv_norm(m, x, {.out = width, .kernel = 3, .stride = stride, .padding = 1}, name + ".conv1", name + ".bn1"));
  y = conv_norm(m, y, {.out = width, .kernel = 3, .padding = 1}, name + ".conv2", name + ".bn2");
  if (stride != 1 || m.shape(x)[1] != width)
    x = conv_norm(m, x, {.out = width, .kernel = 1, .stride = stride}, name + ".downsample.0", name + ".downsample.1");
  return m.relu(m.add(y, x));
}

Value bottleneck_block(Model& m, Value x, std::int64_t width, std::int64_t stride, const std::string& name) {
  Value y = m.relu(conv_norm(m, x, {.out = width, .kernel = 1}, name + ".conv1", name + ".bn1"));
  y = m.relu(
      conv_norm(m, y, {.out = width, .kernel = 3, .stride = stride, .padding = 1}, name + ".conv2", name + ".bn2"));
  y = conv_norm(m, y, {.out = 4 * width, .kernel = 1}, name + ".conv3", name + ".bn3");
  if (stride != 1 || m.shape(x)[1] != 4 * width)
    x = conv_norm(m, x, {.out = 4 * width, .kernel = 1, .stride = stride}, name + ".downsample.0",
                  name + ".downsample.1");
  return m.relu(m.add(y, x));
}

Graph build_resnet(const std::string& name, const std::vector<std::int64_t>& blocks, bool bottleneck,
                   const Settings& s) {
  Model m(name, whole(s, "batch"));
  Value x =
      m.relu(conv_norm(m, input_images(m, s), {.out = 64, .kernel = 7, .stride = 2, .padding = 3}, "conv1", "bn1"));
  x = m.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    for (std::int64_t b = 0; b < blocks[stage]; ++b) {
      const std::int64_t stride = b == 0 && stage > 0 ? 2 : 1, width = 64 << stage;
      const std::string block = fmt::format("layer{}.{}", stage + 1, b);
      x = bottleneck ? bottleneck_block(m, x, width, stride, block) : basic_block(m, x, width, stride, block);
    }
  }
  m.cross_entropy(m.linear(m.global_pool(x), {.out = whole(s, "classes")}, "fc"));
  return std::move(m).finish();
}

Graph build_resnet18(const Settings& s) { return build_resnet("resnet-18", {2, 2, 2, 2}, false, s); }
Graph build_resnet50(const Settings& s) { return build_resnet("resnet-50", {3, 4, 6, 3}, true, s); }

}  // namespace

std::vector<ZooEntry> convnets() {
  const Settings small = {{"batch", 64}, {"channels", 1}, {"image", 28}, {"classes", 10}};
  const Settings large = {{"batch", 16}, {"channels", 3}, {"image", 224}, {"classes", 1000}};
  const auto with = [](Settings s, const Settings& more) {
    s.insert(more.begin(), more.end());
    return s;
  };
  return {
      {"mlp", "fully connected layers over flattened images", with(small, {{"layers", 2}, {"width", 256}}),
       "fashion-mnist", build_mlp},
      {"lenet", "LeNet-5 with ReLU and max pooling", small, "fashion-mnist", build_lenet},
      {"cnn", "a small residual network with batch norm", with(small, {{"width", 16}}), "fashion-mnist", build_cnn},
      {"resnet-18", "ResNet-18 (basic blocks)", large, "synthetic", build_resnet18},
      {"resnet-50", "ResNet-50 (bottleneck blocks, v1.5)", large, "synthetic", build_resnet50},
  };
}

}  // namespace overtake
