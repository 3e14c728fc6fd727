// Copies and sums of transfers against plain loops, byte for byte, and how long they take.

#include "kernels/cuda/transfer.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>

#include "cuda/against_cpu.h"
#include "exec/cuda/handles.h"

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

// How long the GPU takes, by its own clock: all is enqueued before the first of it begins, so the host has no part in
// it.
double milliseconds_of(const std::function<void(cudaStream_t)>& enqueue) {
  std::atomic<bool> is_held{true};
  const CudaStream stream = make_stream(0);
  const CudaEvent begin = make_event(true), end = make_event(true);
  check_cuda(cudaLaunchHostFunc(
                 stream.get(),
                 [](void* held) {
                   while (*static_cast<std::atomic<bool>*>(held)) std::this_thread::yield();
                 },
                 &is_held),
             "holding a stream");
  check_cuda(cudaEventRecord(begin.get(), stream.get()), "begin");
  enqueue(stream.get());
  check_cuda(cudaEventRecord(end.get(), stream.get()), "end");
  is_held = false;
  check_cuda(cudaStreamSynchronize(stream.get()), "transfer");
  return 1e-6 * static_cast<double>(nanoseconds_between(begin, end));
}

// Never less than its pace, and, where nothing else keeps the GPU, less than what the next slower one takes.
TEST(CudaTransferCopy, TakesTheTimeOfItsLink) {
  OVERTAKE_NEEDS_GPU();
  constexpr std::int64_t kBytes = 50 << 20;
  DeviceArray<unsigned char> from(kBytes), to(kBytes);
  const cuda::Copied copy{from.data(), to.data(), kBytes};
  const std::vector<cuda::CopiedTile> table = cuda::cut_copies(std::span(&copy, 1));
  const DeviceArray<cuda::CopiedTile> tiles(table);
  std::vector<double> fastest;
  const std::vector<std::int64_t> paces = {1'000'000, 2'000'000, 10'000'000};  // 52, 26 and 5 GB/s
  for (const std::int64_t ns : paces) {
    const cuda::Pace pace = cuda::make_pace(ns, 2 * kBytes, 32);
    std::vector<double> times;
    for (int i = 0; i < 10; ++i)
      times.push_back(
          milliseconds_of([&](cudaStream_t s) { cuda::paced_copy(s, tiles.data(), std::ssize(table), pace); }));
    fastest.push_back(*std::ranges::min_element(times));
    EXPECT_GE(fastest.back(), 0.999e-6 * static_cast<double>(ns)) << pace.blocks << " blocks";
  }
  EXPECT_LT(fastest[0], fastest[1]);
  EXPECT_LT(fastest[1], fastest[2]);
  // Nothing to copy still takes a latency.
  EXPECT_GE(milliseconds_of([](cudaStream_t s) { cuda::paced_copy(s, nullptr, 0, {.ns = 3'000'000}); }), 2.9);
}

}  // namespace
}  // namespace overtake
