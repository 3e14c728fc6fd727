#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_report.h"

namespace overtake::cuda {

namespace {

constexpr int kThreads = 64;

__global__ void set_step_values_kernel(StepValues values, StepValues* to) { *to = values; }

__global__ void report_words_kernel(const StepValues* values, const std::uint32_t* const* from, int count, int slots,
                                    std::uint32_t* to) {
  std::uint32_t* row = to + static_cast<std::int64_t>(values->report % static_cast<std::uint64_t>(slots)) * count;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) row[i] = *from[i];
}

}  // namespace

void set_step_values(cudaStream_t stream, const StepValues& values, StepValues* to) {
  set_step_values_kernel<<<1, 1, 0, stream>>>(values, to);
  check_launch("set_step_values");
}

void report_words(cudaStream_t stream, const StepValues* values, const std::uint32_t* const* from, int count, int slots,
                  std::uint32_t* to) {
  report_words_kernel<<<1, kThreads, 0, stream>>>(values, from, count, slots, to);
  check_launch("report_words");
}

}  // namespace overtake::cuda
