// Copies and sums of transfers against plain loops, byte for byte, and how long they take.

#include "kernels/cuda/transfer.h"

#include <chrono>
#include <functional>
#include <memory>
#include <type_traits>

#include "cuda/against_cpu.h"

namespace overtake {
namespace {

template <class T>
class CudaTransfer : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaTransfer, Types);

template <class T>
std::vector<T> sum_of(const std::vector<std::vector<T>>& members, std::size_t first, std::size_t count) {
  std::vector<T> sum(count);
  for (std::size_t i = 0; i < count; ++i) {
    float x = to_float(members[0][first + i]);
    for (std::size_t m = 1; m < members.size(); ++m) x += to_float(members[m][first + i]);
    sum[i] = from_float<T>(x);
  }
  return sum;
}

template <class T>
std::vector<T> summed_on_gpu(const std::vector<std::vector<T>>& members, std::size_t first, std::size_t count,
                             const cuda::Pace& pace) {
  std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
  DeviceArray<T> to(count);
  cuda::Summed sum{
      .from = {}, .to = to.data(), .count = static_cast<std::int64_t>(count), .is_bf16 = std::is_same_v<T, bf16>};
  for (const auto& m : members) {
    arrays.push_back(std::make_unique<DeviceArray<T>>(m));
    sum.from.push_back(arrays.back()->data() + first);
  }
  const cuda::SumTables tables = cuda::cut_sums(std::span(&sum, 1));
  const DeviceArray<cuda::SummedTile> tiles(tables.tiles);
  const DeviceArray<const void*> sources(tables.sources);
  cuda::paced_sum(nullptr, tiles.data(), std::ssize(tables.tiles), sources.data(), tables.members, pace);
  return to.download();
}

TYPED_TEST(CudaTransfer, SumsAreThoseOfTheCpuInTheOrderOfMembers) {
  OVERTAKE_NEEDS_GPU();
  for (const std::size_t count : {1u, 7u, 4096u, 20003u, 300000u}) {
    for (const std::size_t members : {1u, 2u, 3u, 8u}) {
      for (const std::size_t first : {0u, 1u, 8u}) {
        std::vector<std::vector<TypeParam>> x;
        for (std::size_t m = 0; m < members; ++m)
          x.push_back(random_values<TypeParam>(static_cast<std::int64_t>(first + count), 10 * unsigned(m) + 1));
        const std::vector<TypeParam> want = sum_of(x, first, count);
        for (const int blocks : {1, 3, 64})
          expect_same_bytes(summed_on_gpu(x, first, count, {.ns = 0, .blocks = blocks}), want,
                            std::to_string(count) + " of " + std::to_string(members));
      }
    }
  }
}

// Of pieces of all alignments, beside neighbours that must not be touched.
TEST(CudaTransferCopy, CopiesAreExactWhereverTheyLie) {
  OVERTAKE_NEEDS_GPU();
  std::vector<unsigned char> x(200'000);
  std::mt19937 random(5);
  for (unsigned char& byte : x) byte = static_cast<unsigned char>(random());
  const DeviceArray<unsigned char> from(x);
  for (const std::int64_t ns : {0, 20'000}) {
    DeviceArray<unsigned char> to(x.size());
    std::vector<unsigned char> want(x.size(), 0xff);
    std::vector<cuda::Copied> copies;
    std::size_t at = 0;
    for (const std::size_t bytes : {0u, 1u, 2u, 15u, 16u, 4000u, 32768u, 32769u, 100000u}) {
      const std::size_t source = random() % 16, place = at + random() % 16;
      copies.push_back({from.data() + source, to.data() + place, static_cast<std::int64_t>(bytes)});
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(source), bytes,
                  want.begin() + static_cast<std::ptrdiff_t>(place));
      at = place + bytes + 1;
    }
    const std::vector<cuda::CopiedTile> table = cuda::cut_copies(copies);
    const DeviceArray<cuda::CopiedTile> tiles(table);
    cuda::paced_copy(nullptr, tiles.data(), std::ssize(table), {.ns = ns, .blocks = 4});
    expect_same_bytes(to.download(), want, "copies");
  }
}

double seconds_of(const std::function<void()>& enqueue) {
  check_cuda(cudaDeviceSynchronize(), "before");
  const auto start = std::chrono::steady_clock::now();
  enqueue();
  check_cuda(cudaDeviceSynchronize(), "transfer");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(CudaTransferCopy, TakesTheTimeOfItsLink) {
  OVERTAKE_NEEDS_GPU();
  constexpr std::int64_t kBytes = 50 << 20;
  DeviceArray<unsigned char> from(kBytes), to(kBytes);
  const cuda::Copied copy{from.data(), to.data(), kBytes};
  const std::vector<cuda::CopiedTile> table = cuda::cut_copies(std::span(&copy, 1));
  const DeviceArray<cuda::CopiedTile> tiles(table);
  for (const std::int64_t ns : {1'000'000, 2'000'000, 10'000'000}) {  // 52, 26 and 5 GB/s
    const cuda::Pace pace = cuda::make_pace(ns, 2 * kBytes, 32);
    const auto run = [&] { cuda::paced_copy(nullptr, tiles.data(), std::ssize(table), pace); };
    run();
    const double seconds = seconds_of(run), want = 1e-9 * static_cast<double>(ns);
    EXPECT_GE(seconds, 0.999 * want);
    EXPECT_LE(seconds, 1.05 * want + 100e-6) << pace.blocks << " blocks";
  }
  // Nothing to copy still takes a latency.
  const double idle = seconds_of([] { cuda::paced_copy(nullptr, nullptr, 0, {.ns = 3'000'000}); });
  EXPECT_GE(idle, 2.9e-3);
}

}  // namespace
}  // namespace overtake
