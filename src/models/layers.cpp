#include "models/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace overtake {
namespace {

std::int64_t window(const Conv2d& conv) {
  return conv.kernel_hw.empty() ? conv.kernel * conv.kernel : conv.kernel_hw[0] * conv.kernel_hw[1];
}

}  // namespace

Value input_images(Model& m, const Settings& s, std::int64_t least_image) {
  const std::int64_t image = s.whole("image", least_image);
  return m.input({s.whole("channels"), image, image});
}

Value dropped(Model& m, Value x, double p, const std::string& name) { return p > 0 ? m.dropout(x, p, name) : x; }

Init normal_init(double deviation) { return {Init::Kind::normal, deviation}; }

Init he_fan_out(const Conv2d& conv) {
  return normal_init(std::sqrt(2.0 / static_cast<double>(conv.out * window(conv))));
}

Init he_fan_in(const Conv2d& conv, std::int64_t in) {
  return normal_init(std::sqrt(2.0 / static_cast<double>(in / conv.groups * window(conv))));
}

Init xavier_uniform(std::int64_t in, std::int64_t out) {
  return {Init::Kind::uniform, std::sqrt(6.0 / static_cast<double>(in + out))};
}

std::int64_t scaled_channels(std::int64_t channels, double multiplier) {
  return std::max<std::int64_t>(8, std::llround(static_cast<double>(channels) * multiplier));
}

ImageNorm image_norm(const Settings& s, const Norm& options) { return {s.whole("norm", 0), options}; }

Value normalise(Model& m, Value x, const ImageNorm& norm, const std::string& name) {
  if (norm.groups == 0) return m.batch_norm(x, norm.options, name);
  Norm options = norm.options;
  options.groups = std::gcd(norm.groups, m.shape(x)[1]);
  return m.group_norm(x, options, name);
}

Value conv_norm(Model& m, Value x, Conv2d conv, const ImageNorm& norm, const std::string& conv_name,
                const std::string& norm_name) {
  conv.bias = false;
  if (!conv.weight_init) conv.weight_init = he_fan_out(conv);
  return normalise(m, m.conv2d(x, conv, conv_name), norm, norm_name);
}

}  // namespace overtake
