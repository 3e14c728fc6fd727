#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_report.h"

namespace overtake::cuda {

namespace {

constexpr int kThreads = 64;

__global__ void set_step_values_kernel(StepValues values, StepValues last, StepValues* to) {
  to[0] = values;
  to[1] = last;
}

__global__ void report_words_kernel(const StepValues* values, const std::uint32_t* const* from, int count, int slots,
                                    std::uint32_t* to) {
  std::uint32_t* row = to + static_cast<std::int64_t>(values->report % static_cast<std::uint64_t>(slots)) * count;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) row[i] = *from[i];
}

// One thread: there are a few losses at most.
__global__ void carry_losses_kernel(float* const* from, int losses, float* carried, std::uint32_t* was_finite) {
  bool is_spoilt = false;
  for (int i = 0; i < losses; ++i) is_spoilt = is_spoilt || (was_finite[i] != 0 && !isfinite(carried[3 * i]));
  for (int i = 0; i < losses; ++i) {
    if (is_spoilt) *from[3 * i] = nanf("");
    for (int k = 0; k < 3; ++k) carried[3 * i + k] = *from[3 * i + k];
    was_finite[i] = isfinite(carried[3 * i]) ? 1 : 0;
  }
}

}  // namespace

void carry_losses(cudaStream_t stream, float* const* from, int losses, float* carried, std::uint32_t* was_finite) {
  carry_losses_kernel<<<1, 1, 0, stream>>>(from, losses, carried, was_finite);
  check_launch("carry_losses");
}

void set_step_values(cudaStream_t stream, const StepValues& values, const StepValues& last, StepValues* to) {
  set_step_values_kernel<<<1, 1, 0, stream>>>(values, last, to);
  check_launch("set_step_values");
}

void report_words(cudaStream_t stream, const StepValues* values, const std::uint32_t* const* from, int count, int slots,
                  std::uint32_t* to) {
  report_words_kernel<<<1, kThreads, 0, stream>>>(values, from, count, slots, to);
  check_launch("report_words");
}

}  // namespace overtake::cuda
