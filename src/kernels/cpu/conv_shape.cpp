#include "kernels/cpu/conv_shape.h"

#include <fmt/format.h>

namespace overtake::kernels {

std::vector<std::int64_t> weight_dims(const ConvShape& s) {
  if (s.groups == 1) return {s.out_channels, s.in_channels, s.kernel_h, s.kernel_w};
  return {s.groups, s.out_channels / s.groups, s.in_channels / s.groups, s.kernel_h, s.kernel_w};
}

std::string to_string(const ConvShape& s) {
  return fmt::format(
      "{}x{}x{}x{} -> {}x{}x{}x{}, kernel {}x{}, stride {}x{}, padding {} {} {} {}, dilation {}x{}, {} groups, {}{}",
      s.batch, s.in_channels, s.in_h, s.in_w, s.batch, s.out_channels, s.out_h, s.out_w, s.kernel_h, s.kernel_w,
      s.stride_h, s.stride_w, s.pad_top, s.pad_left, s.pad_bottom, s.pad_right, s.dilation_h, s.dilation_w, s.groups,
      s.bf16 ? "bf16" : "float", s.bias ? ", bias" : "");
}

}  // namespace overtake::kernels
