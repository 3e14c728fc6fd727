// Pooling over windows of an image, [N, C, H, W] -> [N, C, H', W'], and over whole images, -> [N, C].
// max_pool   forward: reads x   writes y, index (which of the window, uint8)   input_grad: reads dy, index   writes dx
// the others forward: reads x   writes y (means)                               input_grad: reads dy          writes dx
// attributes (max, avg): kernel [2], stride [2], padding [4: top, left, bottom, right], ceil (0 or 1),
//                        count_include_pad (avg)
// attributes (adaptive): size [2]; window i of a dimension covers [floor(i n / size), ceil((i + 1) n / size)), as in
//                        PyTorch's AdaptiveAvgPool2d

#include <fmt/ranges.h>

#include <algorithm>

#include "ops/rules.h"

namespace overtake {
namespace {

Shape pooled(const TensorType& x, const Attrs& attrs) {
  expect_rank(x, 4, "the input");
  const auto &kernel = integers_of(attrs, "kernel", 2), &stride = integers_of(attrs, "stride", 2),
             &padding = integers_of(attrs, "padding", 4);
  Shape y = x.shape;
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t size = x.shape[d + 2];
    const std::int64_t room = size + padding[d] + padding[d + 2] - kernel[d];
    if (kernel[d] < 1 || stride[d] < 1 || room < 0 || 2 * std::max(padding[d], padding[d + 2]) > kernel[d])
      fail_shape("kernel {}, stride {}, padding {} on an input {}", kernel[d], stride[d], padding[d],
                 to_string(x.shape));
    std::int64_t out = (attrs.integer("ceil", 0) != 0 ? room + stride[d] - 1 : room) / stride[d] + 1;
    // A last window that would start in the padding beyond the image does not count.
    if ((out - 1) * stride[d] >= size + padding[d]) --out;
    y[d + 2] = out;
  }
  if (kernel[0] * kernel[1] > 256) fail_shape("a window of {} x {}; at most 256 elements", kernel[0], kernel[1]);
  return y;
}

OpForm max_form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const Shape y = pooled(inputs[0], attrs);
  return {.parameters = {}, .outputs = {{"", y, inputs[0].dtype}, {"index", y, DType::u8}}};
}

OpForm avg_form(std::span<const TensorType> inputs, const Attrs& attrs) {
  return {.parameters = {}, .outputs = {{"", pooled(inputs[0], attrs), inputs[0].dtype}}};
}

OpForm global_form(std::span<const TensorType> inputs, const Attrs&) {
  expect_rank(inputs[0], 4, "the input");
  return {.parameters = {}, .outputs = {{"", {inputs[0].shape[0], inputs[0].shape[1]}, inputs[0].dtype}}};
}

OpForm adaptive_form(std::span<const TensorType> inputs, const Attrs& attrs) {
  expect_rank(inputs[0], 4, "the input");
  const std::vector<std::int64_t>& size = integers_of(attrs, "size", 2);
  if (size[0] < 1 || size[1] < 1) fail_shape("a size of [{}]; both must be 1 or more", fmt::join(size, ", "));
  const Shape& x = inputs[0].shape;
  return {.parameters = {}, .outputs = {{"", {x[0], x[1], size[0], size[1]}, inputs[0].dtype}}};
}

void max_gradient(Gradient& g) { g.emit(Kind::input_grad, {g.grad_out(0), g.out(1)}, {g.grad_in(0)}); }
void mean_gradient(Gradient& g) { g.emit(Kind::input_grad, {g.grad_out(0)}, {g.grad_in(0)}); }

constexpr TaskRule kMaxTasks[] = {{kForward, "x -> y index"}, {kGradient, "dy index -> dx"}};
constexpr TaskRule kMeanTasks[] = {{kForward, "x -> y"}, {kGradient, "dy -> dx"}};

}  // namespace

OpTraits max_pool_traits() {
  return {.op = Op::max_pool, .form = max_form, .gradient = max_gradient, .tasks = kMaxTasks};
}
OpTraits avg_pool_traits() {
  return {.op = Op::avg_pool, .form = avg_form, .gradient = mean_gradient, .tasks = kMeanTasks};
}
OpTraits adaptive_pool_traits() {
  return {.op = Op::adaptive_pool, .form = adaptive_form, .gradient = mean_gradient, .tasks = kMeanTasks};
}
OpTraits global_pool_traits() {
  return {.op = Op::global_pool, .form = global_form, .gradient = mean_gradient, .tasks = kMeanTasks};
}

}  // namespace overtake
