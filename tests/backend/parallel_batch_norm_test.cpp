// Batch norm over all replicas: what one device makes of their samples together.

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "parallel_case.h"

namespace overtake {
namespace {

// Norms with and without a residual and a function.
Case small_resnet(std::int64_t micro_batch) {
  return {"resnet-18", {{"image", 32}, {"classes", 5}, {"width", 8}}, micro_batch, {.momentum = 0.5}};
}

std::vector<float> floats_of(const NamedTensor& t) {
  std::vector<float> values(t.bytes.size() / sizeof(float));
  std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  return values;
}

double size_of(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

// All tensors: weights, running statistics and the optimizer's.
void expect_close(const Outcome& want, const Outcome& got, double tolerance) {
  ASSERT_EQ(want.tensors.size(), got.tensors.size());
  for (std::size_t i = 0; i < want.tensors.size(); ++i) {
    ASSERT_EQ(want.tensors[i].name, got.tensors[i].name);
    const std::vector<float> a = floats_of(want.tensors[i]), b = floats_of(got.tensors[i]);
    std::vector<float> difference;
    for (std::size_t k = 0; k < a.size(); ++k) difference.push_back(a[k] - b[k]);
    EXPECT_LE(size_of(difference), tolerance * (size_of(a) + 0.01)) << want.tensors[i].name;
  }
}

TEST(SyncBatchNorm, AgreesWithOneBatch) {
  Case whole = small_cnn(), part = small_cnn();
  whole.micro_batch = 8;
  part.micro_batch = 4;
  const ParallelOptions local{.replicas = 2}, joint{.replicas = 2, .sync_batch_norm = true};
  const Outcome one = in_one_process(whole, {}), two = in_one_process(part, joint), apart = in_one_process(part, local);
  for (std::size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(one.losses[i], two.losses[i], 2e-4f * one.losses[i]) << i;
  EXPECT_NEAR(one.evaluated, two.evaluated, 2e-4f * one.evaluated);
  EXPECT_GT(std::abs(one.losses[0] - apart.losses[0]), 5e-4f * one.losses[0]);
  expect_close(one, two, 1e-3);
}

// Of a deep network, in the first step, as long as nothing has drifted apart.
TEST(SyncBatchNorm, TheFirstStepAgreesClosely) {
  const auto one_step = [](TrainingRun& s) { return train(s, sample_form_of(graph_of(small_resnet(4))), 1); };
  TrainingRun one = run_of(graph_of(small_resnet(8)), options_of(small_resnet(8), {}));
  TrainingRun two =
      run_of(graph_of(small_resnet(4)), options_of(small_resnet(4), {.replicas = 2, .sync_batch_norm = true}));
  const Outcome want = one_step(one), got = one_step(two);
  EXPECT_NEAR(want.losses[0], got.losses[0], 2e-6f * want.losses[0]);
  expect_close(want, got, 2e-5);
}

// The running statistics of a process.
std::vector<std::byte> states_of(TrainingRun& s) {
  std::vector<std::byte> all;
  for (const Parameter& p : s.graph().parameters) {
    const Buffer& b = s.graph().buffers[p.buffer];
    if (b.role != Role::state) continue;
    std::vector<std::byte> values(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
    s.executor().read_plain(p.buffer, values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(SyncBatchNorm, ProcessesDoAsOneDoes) {
  for (const Case& c : {small_resnet(2), small_cnn()})
    for (const char* reduce : {"buckets", "by-layer", "scatter-gather", "first-k"}) {
      SCOPED_TRACE(c.model + " " + reduce);
      const ParallelOptions parallel{
          .replicas = 3, .micro_batches = 2, .reduce = reduce, .first_k = FirstK{2}, .sync_batch_norm = true};
      const Outcome here = in_one_process(c, parallel);
      std::vector<std::vector<std::byte>> states(3);
      const auto ranks = on_all_ranks(graph_of(c), options_of(c, parallel), [&](TrainingRun& s) {
        Outcome out = train(s, sample_form_of(graph_of(c)));
        states[static_cast<std::size_t>(s.first_sample() / s.own_samples())] = states_of(s);
        return out;
      });
      expect_same(here, ranks[0]);
      EXPECT_FALSE(states[0].empty());
      EXPECT_EQ(states[0], states[1]);
      EXPECT_EQ(states[0], states[2]);
    }
}

TEST(SyncBatchNorm, InPipelines) {
  const Case c = small_resnet(2);
  for (const char* schedule : {"1f1b", "interleaved", "zb-h1"}) {
    SCOPED_TRACE(schedule);
    ParallelOptions parallel{.replicas = 2, .micro_batches = 4, .pipeline = schedule, .sync_batch_norm = true};
    const Outcome one = in_one_process(c, parallel);
    parallel.stages = 2;
    EXPECT_EQ(one.hash, in_one_process(c, parallel).hash);
    expect_same(one, on_ranks(c, parallel));
    parallel.lanes = "ooo";
    expect_same(one, on_ranks(c, parallel));
  }
}

TEST(SyncBatchNorm, WithClipping) {
  Case c = small_cnn();
  c.optimizer.clip_norm = 0.3;
  ParallelOptions parallel{.replicas = 2, .micro_batches = 2, .sync_batch_norm = true};
  const Outcome one = in_one_process(c, parallel);
  parallel.stages = 2;
  parallel.reduce = "scatter-gather";
  EXPECT_EQ(one.hash, in_one_process(c, parallel).hash);
  EXPECT_EQ(one.hash, on_ranks(c, parallel).hash);
}

TEST(SyncBatchNorm, NeedsReplicasAndNorms) {
  EXPECT_THROW(check(ParallelOptions{.micro_batches = 2, .sync_batch_norm = true}), UserError);
  EXPECT_THROW(in_one_process(small_gpt(), {.replicas = 2, .sync_batch_norm = true}), UserError);
}

}  // namespace
}  // namespace overtake
