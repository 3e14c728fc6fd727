#pragma once
// Adaptive average pooling of channels-last images, as torch.nn.AdaptiveAvgPool2d; the unit of work is an image. T is
// float or bf16.

#include <cstdint>

namespace overtake::kernels {

// Window (p, q) covers input rows [floor(p in_h / out_h), ceil((p + 1) in_h / out_h)) and columns likewise. Windows may
// overlap; with more outputs than inputs they repeat.
struct AdaptivePoolShape {
  std::int64_t channels = 1, in_h = 1, in_w = 1, out_h = 1, out_w = 1;
};

// y: [batch][out_h][out_w][channels], the means of the windows of x: [batch][in_h][in_w][channels], images [begin,
// end).
template <class T>
void adaptive_pool_forward(const AdaptivePoolShape& shape, const T* x, T* y, std::int64_t begin, std::int64_t end);

// dx: like x, images [begin, end), overwritten. Each pixel gathers from its windows in ascending order.
template <class T>
void adaptive_pool_input_grad(const AdaptivePoolShape& shape, const T* dy, T* dx, std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
