#include <stdexcept>
#include <string>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/conv_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/random_fill.h"

namespace overtake::cuda {
namespace {

using kernels::ConvShape;

constexpr int kThreads = 256;
constexpr int kSamples = 256;
constexpr std::int64_t kSpread = 1'000'003;  // places lie so far apart (a prime: they fall on all channels and pixels)
constexpr float kBf16Bound = 0.03f, kTf32Bound = 0.01f, kF32Bound = 1e-3f;  // of the terms' root of summed squares

// Operands as plain arrays: x [n][h][w][c], w [o][r][s][i], y [n][p][q][o].
template <class T>
struct Arrays {
  const T *x, *w, *y;
  std::int64_t x_pitch, y_pitch;
};

// The products whose sum is element `at` of the result; the j-th of `count`.
template <class T>
class Terms {
 public:
  __device__ Terms(const ConvShape& shape, ConvTask task, const Arrays<T>& arrays, std::int64_t at)
      : s_(shape),
        task_(task),
        arrays_(arrays),
        ins_(shape.in_channels / shape.groups),
        outs_(shape.out_channels / shape.groups) {
    if (task == ConvTask::forward) {
      split(at, s_.out_channels, s_.out_w, s_.out_h);
      count_ = s_.kernel_h * s_.kernel_w * ins_;
    } else if (task == ConvTask::input_grad) {
      split(at, s_.in_channels, s_.in_w, s_.in_h);
      count_ = s_.kernel_h * s_.kernel_w * outs_;
    } else {
      split(at, ins_, s_.kernel_w, s_.kernel_h);
      count_ = s_.batch * s_.out_h * s_.out_w;
    }
  }

  __device__ std::int64_t count() const { return count_; }
  // Where the element lies in the result.
  __device__ std::int64_t place(std::int64_t at) const {
    if (task_ == ConvTask::weight_grad) return at;
    const bool is_forward = task_ == ConvTask::forward;
    return at / (is_forward ? s_.out_channels : s_.in_channels) * (is_forward ? arrays_.y_pitch : arrays_.x_pitch) + c_;
  }
  __device__ std::int64_t channel() const { return c_; }

  __device__ float operator[](std::int64_t j) const {
    if (task_ == ConvTask::forward) {
      const std::int64_t i = j % ins_, t = j / ins_ % s_.kernel_w, r = j / ins_ / s_.kernel_w;
      return x(n_, h_ * s_.stride_h - s_.pad_top + r * s_.dilation_h,
               w_ * s_.stride_w - s_.pad_left + t * s_.dilation_w, c_ / outs_ * ins_ + i) *
             filter(c_, r, t, i);
    }
    if (task_ == ConvTask::input_grad) {
      const std::int64_t o = c_ / ins_ * outs_ + j % outs_, t = j / outs_ % s_.kernel_w, r = j / outs_ / s_.kernel_w;
      const std::int64_t p = h_ + s_.pad_top - r * s_.dilation_h, q = w_ + s_.pad_left - t * s_.dilation_w;
      if (p < 0 || q < 0 || p % s_.stride_h != 0 || q % s_.stride_w != 0) return 0;
      if (p / s_.stride_h >= s_.out_h || q / s_.stride_w >= s_.out_w) return 0;
      return y(n_, p / s_.stride_h, q / s_.stride_w, o) * filter(o, r, t, c_ % ins_);
    }
    // dw[n_][h_][w_][c_]: n_ is the output channel.
    const std::int64_t q = j % s_.out_w, p = j / s_.out_w % s_.out_h, n = j / s_.out_w / s_.out_h;
    return x(n, p * s_.stride_h - s_.pad_top + h_ * s_.dilation_h, q * s_.stride_w - s_.pad_left + w_ * s_.dilation_w,
             n_ / outs_ * ins_ + c_) *
           y(n, p, q, n_);
  }

 private:
  __device__ void split(std::int64_t at, std::int64_t channels, std::int64_t width, std::int64_t height) {
    c_ = at % channels, w_ = at / channels % width, h_ = at / channels / width % height;
    n_ = at / channels / width / height;
  }
  __device__ float x(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) const {
    if (h < 0 || w < 0 || h >= s_.in_h || w >= s_.in_w) return 0;
    return access::widen(arrays_.x[((n * s_.in_h + h) * s_.in_w + w) * arrays_.x_pitch + c]);
  }
  __device__ float y(std::int64_t n, std::int64_t p, std::int64_t q, std::int64_t o) const {
    return access::widen(arrays_.y[((n * s_.out_h + p) * s_.out_w + q) * arrays_.y_pitch + o]);
  }
  __device__ float filter(std::int64_t o, std::int64_t r, std::int64_t t, std::int64_t i) const {
    return access::widen(arrays_.w[((o * s_.kernel_h + r) * s_.kernel_w + t) * ins_ + i]);
  }

  const ConvShape& s_;
  ConvTask task_;
  Arrays<T> arrays_;
  std::int64_t ins_, outs_, n_ = 0, h_ = 0, w_ = 0, c_ = 0, count_ = 0;
};

// A block per sample. wrong: how many samples are off.
template <class T>
__global__ void __launch_bounds__(kThreads)
    check_kernel(const ConvShape shape, ConvTask task, Arrays<T> arrays, std::int64_t elements, const float* bias,
                 const T* out, float bound, int* wrong) {
  __shared__ double sums[kThreads], squares[kThreads];
  const std::int64_t at = blockIdx.x * kSpread % elements;
  const Terms<T> terms(shape, task, arrays, at);
  double sum = 0, square = 0;
  for (std::int64_t j = threadIdx.x; j < terms.count(); j += kThreads) {
    const double term = terms[j];
    sum += term;
    square += term * term;
  }
  sums[threadIdx.x] = sum;
  squares[threadIdx.x] = square;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads; ++i) sum += sums[i], square += squares[i];
  if (bias != nullptr) sum += bias[terms.channel()];
  const double error = fabs(static_cast<double>(access::widen(out[terms.place(at)])) - sum);
  if (!(error <= bound * sqrt(square) + bound * fabs(sum))) atomicAdd(wrong, 1);
}

template <class T>
void launch(cudaStream_t stream, const ConvKind& kind, const void* a, const void* b, const float* bias, const void* out,
            int* wrong) {
  const ConvShape& s = kind.shape;
  const auto *first = static_cast<const T*>(a), *second = static_cast<const T*>(b);
  Arrays<T> arrays{nullptr, nullptr, nullptr, kind.x_pitch == 0 ? s.in_channels : kind.x_pitch,
                   kind.y_pitch == 0 ? s.out_channels : kind.y_pitch};
  std::int64_t elements = 0;
  if (kind.task == ConvTask::forward) {
    arrays.x = first, arrays.w = second;
    elements = s.batch * s.out_h * s.out_w * s.out_channels;
  } else if (kind.task == ConvTask::input_grad) {
    arrays.y = first, arrays.w = second;
    elements = s.batch * s.in_h * s.in_w * s.in_channels;
  } else {
    arrays.x = first, arrays.y = second;
    elements = s.out_channels * s.kernel_h * s.kernel_w * (s.in_channels / s.groups);
  }
  const float bound = sizeof(T) == 2 ? kBf16Bound : kind.tf32 ? kTf32Bound : kF32Bound;
  check_kernel<T><<<kSamples, kThreads, 0, stream>>>(s, kind.task, arrays, elements, bias, static_cast<const T*>(out),
                                                     bound, wrong);
  check_launch("conv_check");
}

}  // namespace

bool is_right(cudaStream_t stream, const ConvKind& kind, const void* a, const void* b, const float* bias,
              const void* out) {
  const TemporaryArray count(sizeof(int));
  int wrong = 0;
  cudaError_t error = cudaMemsetAsync(count.data(), 0, sizeof(int), stream);
  if (error == cudaSuccess) {
    if (kind.shape.bf16) {
      launch<bf16>(stream, kind, a, b, bias, out, static_cast<int*>(count.data()));
    } else {
      launch<float>(stream, kind, a, b, bias, out, static_cast<int*>(count.data()));
    }
    error = cudaMemcpyAsync(&wrong, count.data(), sizeof(int), cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("checking a convolution: ") + cudaGetErrorString(error));
  return wrong == 0;
}

}  // namespace overtake::cuda
