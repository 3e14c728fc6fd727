// The vision transformer ViT-B/16 (Dosovitskiy et al. 2020), with torchvision's names and initial values. Dropout
// inside the attention, which torchvision has at 0, is not modelled.

#include <cmath>

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

constexpr std::int64_t kPatch = 16;
constexpr Norm kVitNorm = {.eps = 1e-6};

// Images [N, C, H, W] -> one row per patch, [N, patches, width]
Value patches_of(Model& m, const Settings& s, std::int64_t width) {
  const std::int64_t image = s.whole("image", kPatch), patches = image / kPatch * (image / kPatch);
  if (image % kPatch != 0)
    fail_user("model {}: setting image is {}; it must be a multiple of {}", s.model(), image, kPatch);
  const double fan_in = static_cast<double>(s.whole("channels") * kPatch * kPatch);
  const Value x = m.conv2d(input_images(m, s),
                           {.out = width,
                            .kernel = kPatch,
                            .stride = kPatch,
                            .weight_init = normal_init(std::sqrt(1.0 / fan_in)),
                            .bias_init = Init{}},
                           "conv_proj");
  return m.reshape(m.transpose(x, {0, 2, 3, 1}, "conv_proj.rows"), {m.batch(), patches, width}, "patches");
}

// x [N, S, D]
Value self_attention(Model& m, Value x, std::int64_t heads, const std::string& name) {
  const std::int64_t width = m.shape(x).back();
  const Value weight = m.parameter({3 * width, width}, xavier_uniform(width, 3 * width), name + ".in_proj_weight");
  const Value bias = m.parameter({3 * width}, Init{}, name + ".in_proj_bias");
  const Value qkv = m.linear(x, weight, bias, name + ".in_proj");  // [N, S, 3 D]
  const Value y = m.attention(qkv, {.heads = heads}, {}, name);
  return m.linear(y, {.out = width, .bias_init = Init{}}, name + ".out_proj");
}

Value feed_forward(Model& m, Value x, double dropout, const std::string& name) {
  const std::int64_t width = m.shape(x).back();
  const auto dense = [&](Value in, std::int64_t out, const std::string& layer) {
    const Init weight_init = xavier_uniform(m.shape(in).back(), out);
    return m.linear(in, {.out = out, .weight_init = weight_init, .bias_init = normal_init(1e-6)}, layer);
  };
  x = dropped(m, m.gelu(dense(x, 4 * width, name + ".0"), name + ".1"), dropout, name + ".2");
  return dropped(m, dense(x, width, name + ".3"), dropout, name + ".4");
}

Graph build_vit(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const std::int64_t width = s.whole("width"), heads = s.divisor("heads", "width");
  const double dropout = s.fraction("dropout");
  Value x = patches_of(m, s, width);
  const Value token = m.parameter({1, 1, width}, Init{}, "class_token");
  x = m.concat({m.expand(token, {m.batch(), 1, width}, "class_tokens"), x}, 1, "sequence");  // [N, S, D]
  const Value positions = m.parameter({1, m.shape(x)[1], width}, normal_init(0.02), "encoder.pos_embedding");
  x = dropped(m, m.add(x, positions, "positions"), dropout, "encoder.dropout");
  for (std::int64_t i = 0; i < s.whole("layers"); ++i) {
    const std::string name = fmt::format("encoder.layers.encoder_layer_{}", i);
    const Value seen = self_attention(m, m.layer_norm(x, kVitNorm, name + ".ln_1"), heads, name + ".self_attention");
    x = m.add(dropped(m, seen, dropout, name + ".dropout"), x, name + ".add_1");
    x = m.add(x, feed_forward(m, m.layer_norm(x, kVitNorm, name + ".ln_2"), dropout, name + ".mlp"), name + ".add_2");
  }
  // Only the class token is read; the norm works row by row, so the other rows need none.
  x = m.reshape(m.slice(x, 1, 0, 1, "class_row"), {m.batch(), width}, "class");
  x = m.layer_norm(x, kVitNorm, "encoder.ln");
  m.cross_entropy(m.linear(x, {.out = s.whole("classes"), .weight_init = Init{}, .bias_init = Init{}}, "heads.head"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> vision_transformers() {
  return {{"vit-b-16",
           "images",
           "ViT-B/16",
           {{"batch", 16},
            {"channels", 3},
            {"image", 224},
            {"classes", 1000},
            {"width", 768},
            {"heads", 12},
            {"layers", 12},
            {"dropout", 0}},
           "synthetic",
           build_vit}};
}

}  // namespace overtake
