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

Value attention_by_ops(Model& m, Value query, Value key, Value value, std::int64_t heads, std::optional<Value> mask,
                       double dropout, const std::string& name) {
  const std::int64_t n = m.shape(query)[0], s = m.shape(query)[1], width = m.shape(query)[2], head = width / heads;
  const auto by_head = [&](Value x, const char* part) {  // [N, S, D] -> [N, heads, S, head]
    return m.transpose(m.reshape(x, {n, s, heads, head}, name + part + "_heads"), {0, 2, 1, 3}, name + part);
  };
  const float scale = 1 / std::sqrt(static_cast<float>(head));
  Value seen = m.matmul(by_head(query, ".q"), by_head(key, ".k"), false, true, name + ".scores");  // [N, heads, S, S]
  seen = m.mul(seen, m.constant({1}, {&scale, 1}, name + ".scale"), name + ".scaled");
  if (mask) seen = m.add(seen, *mask, name + ".masked");
  seen = dropped(m, m.softmax(seen, 3, name + ".softmax"), dropout, name + ".dropout");
  seen = m.matmul(seen, by_head(value, ".v"), false, false, name + ".seen");
  return m.reshape(m.transpose(seen, {0, 2, 1, 3}, name + ".by_place"), {n, s, width}, name + ".joined");
}

Value causal_mask(Model& m, std::int64_t sequence, const std::string& name) {
  constexpr float kHidden = -1e9F;  // after which softmax gives 0
  std::vector<float> values(static_cast<std::size_t>(sequence * sequence), 0);
  for (std::int64_t i = 0; i < sequence; ++i)
    std::fill(values.begin() + i * sequence + i + 1, values.begin() + (i + 1) * sequence, kHidden);
  return m.constant({sequence, sequence}, values, name);
}

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
