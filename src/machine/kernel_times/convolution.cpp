#include "machine/kernel_times/convolution.h"

#include <algorithm>

#include "ops/conv2d.h"

namespace overtake {
namespace {

// Images have so many channels in memory, padding included.
std::int64_t channels_of(const Buffer& image) {
  return image.layout.blocks == 0 ? image.shape[1] : padded_dims(image.layout, image.shape.span())[1];
}

constexpr std::int64_t kNarrow = 32;  // channels

}  // namespace

ProductTime convolution_time(const Graph& g, const Task& task, MatrixRate rate, const DeviceType& device,
                             const KernelTable& table) {
  const ConvOperands o = conv_operands(g, task);
  if (o.weight == nullptr) return {};
  const Attrs& attrs = g.attrs_of(task);
  const std::int64_t groups = attrs.integer("groups");
  const auto& kernel = attrs.integers("kernel");
  const auto& stride = attrs.integers("stride");
  const std::int64_t taps = kernel[0] * kernel[1];
  const std::int64_t in = channels_of(*o.x) / groups, out = channels_of(*o.y) / groups;
  const auto pixels = [](const Buffer& image) { return image.shape[0] * image.shape[2] * image.shape[3]; };
  if (is_depthwise(g, task)) {
    const double flops = 2.0 * static_cast<double>(pixels(*o.y) * o.y->shape[1] * taps);
    return {1e9 * flops / (table.depthwise_part * static_cast<double>(device.f32_flops)) +
                static_cast<double>(table.convolution_ns),
            0};
  }
  ProductShape s{.count = groups, .rate = rate};
  double part = 1;
  switch (task.kind) {
    case Kind::forward:
      s.m = pixels(*o.y), s.n = out, s.k = in * taps;
      part = table.convolution_part[0];
      break;
    case Kind::input_grad:
      // Of each output pixel's taps only those that the stride hits.
      s.m = pixels(*o.x), s.n = in, s.k = std::max<std::int64_t>(1, out * taps / (stride[0] * stride[1]));
      part = table.convolution_part[1];
      if (stride[0] * stride[1] > 1) part *= table.strided_part;
      break;
    default:
      s.m = out, s.n = in * taps, s.k = pixels(*o.y);
      part = table.convolution_part[2];
  }
  if (rate == MatrixRate::f32) {
    // Winograd's algorithm makes 2 x 2 outputs of 3 x 3 taps with 16 products instead of 36.
    const bool is_winograd = kernel[0] == 3 && kernel[1] == 3 && stride[0] == 1 && stride[1] == 1 && groups == 1 &&
                             task.kind != Kind::weight_grad;
    part = table.direct_part * (is_winograd ? 36.0 / 16 * table.winograd_part : 1);
  } else if (std::min(in, out) < kNarrow) {
    part *= table.narrow_part;
  }
  const std::int64_t vector = rate == MatrixRate::bf16 ? 8 : 4;
  s.is_aligned = in % vector == 0 && out % vector == 0;
  ProductTime time = product_time(s, device, table, part);
  time.ns += static_cast<double>(table.convolution_ns);
  return time;
}

}  // namespace overtake
