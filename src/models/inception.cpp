// Inception-v3 (Szegedy et al. 2015) without its auxiliary head, with torchvision's names and initial values.

#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace overtake {
namespace {

struct InceptionV3 {
  Model& m;
  double multiplier;  // of all widths

  // Convolution, batch norm, ReLU. torchvision cuts the normal at 20 deviations, where nothing is.
  Value conv(Value x, Conv2d c, const std::string& name) const {
    c.out = scaled_channels(c.out, multiplier);
    c.weight_init = normal_init(0.1);
    return m.relu(conv_norm(m, x, c, {.options = {.eps = 0.001}}, name + ".conv", name + ".bn"));
  }
  Value pointwise(Value x, std::int64_t out, const std::string& name) const {
    return conv(x, {.out = out, .kernel = 1}, name);
  }
  // A row of `length` pixels, or a column; the image keeps its size.
  Value row(Value x, std::int64_t out, std::int64_t length, const std::string& name) const {
    return conv(x, {.out = out, .kernel_hw = {1, length}, .padding_tlbr = {0, length / 2, 0, length / 2}}, name);
  }
  Value column(Value x, std::int64_t out, std::int64_t length, const std::string& name) const {
    return conv(x, {.out = out, .kernel_hw = {length, 1}, .padding_tlbr = {length / 2, 0, length / 2, 0}}, name);
  }
  Value average(Value x) const { return m.avg_pool(x, {.kernel = 3, .stride = 1, .padding = 1}); }
  Value halved(Value x) const { return m.max_pool(x, {.kernel = 3, .stride = 2}); }

  // -> [N, 224 + pool_features, H, W]
  Value block_a(Value x, std::int64_t pool_features, const std::string& name) const {
    const Value direct = pointwise(x, 64, name + ".branch1x1");
    const Value five =
        conv(pointwise(x, 48, name + ".branch5x5_1"), {.out = 64, .kernel = 5, .padding = 2}, name + ".branch5x5_2");
    Value twice = pointwise(x, 64, name + ".branch3x3dbl_1");
    twice = conv(twice, {.out = 96, .kernel = 3, .padding = 1}, name + ".branch3x3dbl_2");
    twice = conv(twice, {.out = 96, .kernel = 3, .padding = 1}, name + ".branch3x3dbl_3");
    const Value pooled = pointwise(average(x), pool_features, name + ".branch_pool");
    return m.concat({direct, five, twice, pooled}, 1, name);
  }

  // -> [N, 480 + C, (H - 1) / 2, (W - 1) / 2]
  Value block_b(Value x, const std::string& name) const {
    const Value once = conv(x, {.out = 384, .kernel = 3, .stride = 2}, name + ".branch3x3");
    Value twice = pointwise(x, 64, name + ".branch3x3dbl_1");
    twice = conv(twice, {.out = 96, .kernel = 3, .padding = 1}, name + ".branch3x3dbl_2");
    twice = conv(twice, {.out = 96, .kernel = 3, .stride = 2}, name + ".branch3x3dbl_3");
    return m.concat({once, twice, halved(x)}, 1, name);
  }

  // -> [N, 768, H, W]; `inner` channels between the rows and columns of seven
  Value block_c(Value x, std::int64_t inner, const std::string& name) const {
    const Value direct = pointwise(x, 192, name + ".branch1x1");
    Value once = pointwise(x, inner, name + ".branch7x7_1");
    once = column(row(once, inner, 7, name + ".branch7x7_2"), 192, 7, name + ".branch7x7_3");
    Value twice = pointwise(x, inner, name + ".branch7x7dbl_1");
    twice = row(column(twice, inner, 7, name + ".branch7x7dbl_2"), inner, 7, name + ".branch7x7dbl_3");
    twice = row(column(twice, inner, 7, name + ".branch7x7dbl_4"), 192, 7, name + ".branch7x7dbl_5");
    const Value pooled = pointwise(average(x), 192, name + ".branch_pool");
    return m.concat({direct, once, twice, pooled}, 1, name);
  }

  // -> [N, 512 + C, (H - 1) / 2, (W - 1) / 2]
  Value block_d(Value x, const std::string& name) const {
    const Value three =
        conv(pointwise(x, 192, name + ".branch3x3_1"), {.out = 320, .kernel = 3, .stride = 2}, name + ".branch3x3_2");
    Value seven = pointwise(x, 192, name + ".branch7x7x3_1");
    seven = column(row(seven, 192, 7, name + ".branch7x7x3_2"), 192, 7, name + ".branch7x7x3_3");
    seven = conv(seven, {.out = 192, .kernel = 3, .stride = 2}, name + ".branch7x7x3_4");
    return m.concat({three, seven, halved(x)}, 1, name);
  }

  // -> [N, 2048, H, W]
  Value block_e(Value x, const std::string& name) const {
    const Value direct = pointwise(x, 320, name + ".branch1x1");
    const Value once = pointwise(x, 384, name + ".branch3x3_1");
    const Value once_row = row(once, 384, 3, name + ".branch3x3_2a");
    const Value once_column = column(once, 384, 3, name + ".branch3x3_2b");
    const Value twice = conv(pointwise(x, 448, name + ".branch3x3dbl_1"), {.out = 384, .kernel = 3, .padding = 1},
                             name + ".branch3x3dbl_2");
    const Value twice_row = row(twice, 384, 3, name + ".branch3x3dbl_3a");
    const Value twice_column = column(twice, 384, 3, name + ".branch3x3dbl_3b");
    const Value pooled = pointwise(average(x), 192, name + ".branch_pool");
    return m.concat({direct, once_row, once_column, twice_row, twice_column, pooled}, 1, name);
  }
};

Graph build_inception_v3(const Settings& s) {
  Model m(s.model(), s.whole("batch"));
  const InceptionV3 net{m, s.positive("width_multiplier")};
  Value x = net.conv(input_images(m, s, 75), {.out = 32, .kernel = 3, .stride = 2}, "Conv2d_1a_3x3");
  x = net.conv(x, {.out = 32, .kernel = 3}, "Conv2d_2a_3x3");
  x = net.conv(x, {.out = 64, .kernel = 3, .padding = 1}, "Conv2d_2b_3x3");
  x = net.pointwise(net.halved(x), 80, "Conv2d_3b_1x1");
  x = net.halved(net.conv(x, {.out = 192, .kernel = 3}, "Conv2d_4a_3x3"));  // [N, 192, 35, 35] of a 299 x 299 image
  x = net.block_a(x, 32, "Mixed_5b");
  x = net.block_a(x, 64, "Mixed_5c");
  x = net.block_a(x, 64, "Mixed_5d");
  x = net.block_b(x, "Mixed_6a");  // [N, 768, 17, 17]
  x = net.block_c(x, 128, "Mixed_6b");
  x = net.block_c(x, 160, "Mixed_6c");
  x = net.block_c(x, 160, "Mixed_6d");
  x = net.block_c(x, 192, "Mixed_6e");
  x = net.block_d(x, "Mixed_7a");  // [N, 1280, 8, 8]
  x = net.block_e(x, "Mixed_7b");
  x = net.block_e(x, "Mixed_7c");
  x = dropped(m, m.global_pool(x, "avgpool"), s.fraction("dropout"), "dropout");  // [N, 2048]
  m.cross_entropy(m.linear(x, {.out = s.whole("classes"), .weight_init = normal_init(0.1)}, "fc"));
  return std::move(m).finish();
}

}  // namespace

std::vector<ZooEntry> inception_v3_networks() {
  return {
      {"inception-v3",
       "images",
       "Inception-v3",
       {{"batch", 16}, {"channels", 3}, {"image", 299}, {"classes", 1000}, {"width_multiplier", 1}, {"dropout", 0.5}},
       "synthetic",
       build_inception_v3}};
}

}  // namespace overtake
