// Plans that have several devices in one: what is sent, received, added and gathered between them is what it should be,
// byte for byte, step after step.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "base/bf16.h"
#include "comm/group.h"
#include "exec/cpu/binding.h"
#include "plan/memory.h"
#include "test_device.h"

namespace overtake {
namespace {

constexpr std::size_t kMembers = 3;

// A plan under construction: for each device a lane for work and one for transfers.
class WholePlan {
 public:
  explicit WholePlan(std::uint16_t devices) {
    plan.schedule = "by hand";
    layer_ = plan.graph.add_layer("layer");
    for (std::uint16_t d = 0; d < devices; ++d) {
      plan.lanes.push_back({.device = d, .tasks = {}, .is_asynchronous = false});
      plan.lanes.push_back({.device = d, .tasks = {}, .is_asynchronous = true});
    }
  }

  BufferId buffer(std::uint16_t device, std::int64_t count, DType dtype, Role role) {
    const BufferId b = plan.graph.add_buffer("b", {count}, dtype, role);
    plan.graph.buffers[b].device = device;
    return b;
  }
  void work(std::uint16_t device, Kind kind, Op op, const std::vector<BufferId>& reads,
            const std::vector<BufferId>& writes) {
    add(device, 0, kind, op, {}, reads, writes);
  }
  void transfer(std::uint16_t device, Kind kind, const std::vector<BufferId>& reads,
                const std::vector<BufferId>& writes, const Attrs& attrs = {}) {
    add(device, 1, kind, Op::transfer, attrs, reads, writes);
  }
  // What lies in the buffers of one device as new ones of another.
  std::vector<BufferId> moved(std::uint16_t from, std::uint16_t to, const std::vector<BufferId>& what) {
    const BufferId token = buffer(from, 0, DType::u8, Role::activation);
    transfer(from, Kind::send, what, {token});
    std::vector<BufferId> reads = {token}, copies;
    for (const BufferId b : what) {
      const Buffer x = plan.graph.buffers[b];
      reads.push_back(b);
      copies.push_back(buffer(to, x.shape.elements(), x.dtype, Role::activation));
    }
    transfer(to, Kind::recv, reads, copies);
    return copies;
  }

  Plan plan;

 private:
  void add(std::uint16_t device, std::size_t lane, Kind kind, Op op, const Attrs& attrs,
           const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
    const TaskId t = plan.graph.add_task(kind, op, layer_, plan.graph.add_attrs(attrs), reads, writes);
    plan.graph.tasks[t].device = device;
    plan.lanes[2u * device + lane].tasks.push_back(t);
  }

  LayerId layer_;
};

// Split: with links of a given speed between devices, as GPUs can have them.
std::unique_ptr<Backend> backend(unsigned devices, bool is_split) {
  BackendOptions options = test_backend_options(Precision::f32, 2);
  if (is_split) {
    options.virtual_gpus = devices;
    options.virtual_link = {.bytes_per_s = 5'000'000'000, .latency_ns = 20'000};
  }
  return open_backend(test_device(), options);
}

std::unique_ptr<Executor> executor_of(Backend& backend, Plan plan) {
  plan = place_memory(std::move(plan));
  verify(plan);
  return backend.make_executor({std::move(plan)});
}

template <class T>
std::vector<T> filled(Executor& executor, BufferId b, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const std::span<std::byte> bytes = executor.bytes(b);
  std::vector<T> x(bytes.size() / sizeof(T));
  for (T& value : x) value = from_float<T>(normal(random));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return x;
}

template <class T>
void expect_values(Executor& executor, BufferId b, const std::vector<T>& want, const std::string& what) {
  const std::span<std::byte> got = executor.bytes(b);
  ASSERT_EQ(got.size(), want.size() * sizeof(T)) << what;
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << what;
}

// Runs some steps: the first of an executor may be another than those that follow. A traced one is among them.
void run_step(Executor& executor, std::uint64_t step) {
  const StepArgs args{.step = step, .seed = 1, .learning_rate = 0};
  if (step != 2) {
    executor.run(0, args);
    return;
  }
  const Trace trace = executor.run_traced(0, args);
  EXPECT_EQ(trace.spans.size(), executor.plan(0).graph.tasks.size());
}

class WholePlanTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (test_device() != "cpu") return;
    if (GetParam()) GTEST_SKIP() << "only GPUs can be split";
    if (cpu_binding(Op::transfer).bind == nullptr) GTEST_SKIP() << "no transfers on this device";
  }
};

// Two devices in turn: 0 doubles x, 1 adds its own y, 0 adds x to what comes back.
TEST_P(WholePlanTest, WhatIsSentArrives) {
  WholePlan p(2);
  constexpr std::int64_t kCount = 5003;
  const auto add = [&](std::uint16_t device, BufferId a, BufferId b, Role role) {
    const BufferId sum = p.buffer(device, kCount, DType::f32, role);
    p.work(device, Kind::forward, Op::add, {a, b}, {sum});
    return sum;
  };
  std::vector<BufferId> xs, ys, results;
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
    const BufferId x = p.buffer(0, kCount, DType::f32, Role::input), y = p.buffer(1, kCount, DType::f32, Role::input);
    const BufferId twice = add(0, x, x, Role::activation);
    const std::vector<BufferId> there = p.moved(0, 1, {twice, x});
    const BufferId sum = add(1, add(1, there[0], y, Role::activation), there[1], Role::activation);
    results.push_back(add(0, p.moved(1, 0, {sum})[0], x, Role::output));
    xs.push_back(x);
    ys.push_back(y);
  }
  const auto device = backend(2, GetParam());
  const auto executor = executor_of(*device, p.plan);
  std::mt19937 random(3);
  for (std::uint64_t step = 0; step < 4; ++step) {
    std::vector<std::vector<float>> want;
    for (std::size_t m = 0; m < xs.size(); ++m) {
      want.push_back(filled<float>(*executor, xs[m], random));
      const std::vector<float> y = filled<float>(*executor, ys[m], random);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const float x = want[m][i];
        want[m][i] = (((x + x) + y[i]) + x) + x;
      }
    }
    run_step(*executor, step);
    for (std::size_t m = 0; m < xs.size(); ++m) expect_values(*executor, results[m], want[m], "result");
  }
}

template <class T>
std::vector<T> sum_of(const std::vector<std::vector<T>>& members) {
  std::vector<T> sum;
  for (std::size_t i = 0; i < members[0].size(); ++i) {
    float x = to_float(members[0][i]);
    for (std::size_t m = 1; m < members.size(); ++m) x += to_float(members[m][i]);
    sum.push_back(from_float<T>(x));
  }
  return sum;
}

// Three devices with two buffers each, in float32 and bfloat16. All get the sums, by an all_reduce and by a
// reduce_scatter with an all_gather of its parts.
struct SumsPlan {
  explicit SumsPlan(std::int64_t f32_count) : count{f32_count, f32_count + 5} {
    for (std::uint16_t d = 0; d < kMembers; ++d)
      for (const auto& [n, dtype] : kinds()) inputs.push_back(p.buffer(d, n, dtype, Role::input));
    for (std::uint16_t d = 0; d < kMembers; ++d) {
      const Attrs attrs = {{"index", std::int64_t{d}}};
      p.transfer(d, Kind::all_reduce, inputs, results(d, sums), attrs);
      std::vector<BufferId> own;
      for (const auto& [n, dtype] : kinds()) {
        const PartRange range = part_of(static_cast<std::size_t>(n), kMembers, d);
        own.push_back(p.buffer(d, static_cast<std::int64_t>(range.end - range.begin), dtype, Role::gradient));
      }
      p.transfer(d, Kind::reduce_scatter, inputs, own, attrs);
      parts.insert(parts.end(), own.begin(), own.end());
    }
    for (std::uint16_t d = 0; d < kMembers; ++d) p.transfer(d, Kind::all_gather, parts, results(d, gathered));
  }

  std::array<std::pair<std::int64_t, DType>, 2> kinds() const {
    return {{{count[0], DType::f32}, {count[1], DType::bf16}}};
  }
  std::vector<BufferId> results(std::uint16_t device, std::vector<BufferId>& all) {
    std::vector<BufferId> own;
    for (const auto& [n, dtype] : kinds()) own.push_back(p.buffer(device, n, dtype, Role::output));
    all.insert(all.end(), own.begin(), own.end());
    return own;
  }

  std::int64_t count[2];
  WholePlan p{kMembers};
  std::vector<BufferId> inputs, parts, sums, gathered;  // two of each device
};

TEST_P(WholePlanTest, SumsOverMembersAreTheSameOnAll) {
  for (const std::int64_t count : {1, 1000, 30011}) {
    SumsPlan plan(count);
    const auto device = backend(kMembers, GetParam());
    const auto executor = executor_of(*device, plan.p.plan);
    std::mt19937 random(5);
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<std::vector<float>> x;
      std::vector<std::vector<bf16>> y;
      for (std::size_t d = 0; d < kMembers; ++d) {
        x.push_back(filled<float>(*executor, plan.inputs[2 * d], random));
        y.push_back(filled<bf16>(*executor, plan.inputs[2 * d + 1], random));
      }
      run_step(*executor, step);
      for (std::size_t d = 0; d < kMembers; ++d) {
        const std::string where = std::to_string(count) + " on device " + std::to_string(d);
        for (const auto* results : {&plan.sums, &plan.gathered}) {
          expect_values(*executor, (*results)[2 * d], sum_of(x), where + ", f32");
          expect_values(*executor, (*results)[2 * d + 1], sum_of(y), where + ", bf16");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, WholePlanTest, ::testing::Bool(),
                         [](const auto& is_split) { return is_split.param ? "Split" : "Shared"; });

}  // namespace
}  // namespace overtake
