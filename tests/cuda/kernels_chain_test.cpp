#include "kernels/cuda/chain.h"

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"

namespace overtake {
namespace {

using kernels::Activation;
using kernels::ChainOp;
using kernels::ChainProgram;

const std::vector<std::int64_t> kCounts = {1, 7, 1023, 4096, 8192, 100003};

// Two results of two arrays and one that repeats: r3 = a + c, r4 = f(r3), r5 = r4 * b, r6 = f'(r3) * r5; r5 and r6.
ChainProgram program_of(Activation function, kernels::ChainOperand repeats) {
  ChainProgram p;
  p.operands = 3, p.steps = 4, p.results = 2, p.slots = 5;
  p.operand[2] = repeats;
  const kernels::ActivationFunction f{function, -0.7f, 1.1f};
  p.step[0] = {ChainOp::add, 0, 2, 2, {}};
  p.step[1] = {ChainOp::function, 2, 0, 3, f};
  p.step[2] = {ChainOp::mul, 3, 1, 4, {}};
  p.step[3] = {ChainOp::slope, 2, 4, 2, f};
  p.result[0] = 4, p.result[1] = 2;
  return p;
}

template <class T>
class CudaChain : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaChain, Types);

TYPED_TEST(CudaChain, IsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (int kind = 0; kind <= static_cast<int>(Activation::clip); ++kind) {
    for (const std::int64_t count : kCounts) {
      for (const kernels::ChainOperand repeats : {kernels::ChainOperand{1, 1}, {1, 13}, {9, 5}, {1, 0}}) {
        const std::string what = "kind " + std::to_string(kind) + ", " + std::to_string(count);
        const ChainProgram program = program_of(static_cast<Activation>(kind), repeats);
        // Positive, for logarithms and roots.
        const auto positive = [](std::vector<T> x) {
          for (T& value : x) value = from_float<T>(0.25f + std::fabs(to_float(value)));
          return x;
        };
        const std::vector<T> a = positive(random_values<T>(count, 1)), b = random_values<T>(count, 2);
        const std::vector<T> c = positive(random_values<T>(repeats.extent == 0 ? count : repeats.extent, 3));
        std::vector<T> first(a.size()), second(a.size());
        const T* const in[] = {a.data(), b.data(), c.data()};
        T* const out[] = {first.data(), second.data()};
        kernels::chain<T>(program, in, out, count, 0, kernels::blocks_of(count));

        DeviceArray<T> gpu_a(a), gpu_b(b), gpu_c(c), gpu_first(a.size()), gpu_second(a.size());
        const T* const gpu_in[] = {gpu_a.data(), gpu_b.data(), gpu_c.data()};
        T* const gpu_out[] = {gpu_first.data(), gpu_second.data()};
        cuda::chain<T>(nullptr, program, gpu_in, gpu_out, count);
        expect_close(gpu_first.download(), first, kBound<T>, what + ", first");
        expect_close(gpu_second.download(), second, kBound<T>, what + ", second");
        T* const in_place[] = {gpu_b.data(), gpu_a.data()};
        cuda::chain<T>(nullptr, program, gpu_in, in_place, count);
        expect_same_bytes(gpu_first.download(), gpu_b.download(), what + ", first in place");
        expect_same_bytes(gpu_second.download(), gpu_a.download(), what + ", second in place");
      }
    }
  }
}

}  // namespace
}  // namespace overtake
