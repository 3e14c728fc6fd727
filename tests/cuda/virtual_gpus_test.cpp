// Steps on partitions of a GPU: the bits of the whole one, and links that take their time.

#include <gtest/gtest.h>

#include <cmath>

#include "cuda/device_array.h"
#include "exec/backend.h"
#include "overtake/zoo.h"
#include "plan/memory.h"
#include "run_setup.h"

namespace overtake {
namespace {

BackendOptions split_into(unsigned gpus, const VirtualLink& link = {}) {
  return {.precision = Precision::bf16,
          .tune = false,
          .tuning_file = "",
          .virtual_gpus = gpus,
          .virtual_link = link,
          .note = {}};
}

TrainingRun run_on(unsigned gpus, const std::string& model, const std::string& settings) {
  RunSetup options;
  use_gpu(options);
  options.spec.virtual_gpus = gpus;
  options.spec.schedule = "in-order";
  set_optimizer(options.spec, {.momentum = 0.9});
  return run_of(build_model(model, ModelSettings::parse(settings)), options);
}

TEST(VirtualGpus, AStepOnOneOfThemHasTheBitsOfTheWhole) {
  OVERTAKE_NEEDS_GPU();
  const std::string settings = "batch=4,layers=2,width=64,heads=4,sequence=32,dropout=0.1";
  std::vector<std::uint64_t> hashes;
  for (const unsigned gpus : {0u, 1u, 4u}) {
    TrainingRun training = run_on(gpus, "transformer", settings);
    training.fill_inputs(1);
    for (int i = 0; i < 4; ++i) training.step(0.05f);
    hashes.push_back(training.weights_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

// What needs all devices at once: the norm of all gradients, and the statistics of all replicas.
TEST(VirtualGpus, ClippingAndSynchronisedNorms) {
  OVERTAKE_NEEDS_GPU();
  const ParallelOptions layouts[] = {
      {.stages = 2, .micro_batches = 2},
      {.replicas = 2, .micro_batches = 2, .reduce = "by-layer", .sync_batch_norm = true},
      {.replicas = 2, .stages = 2, .micro_batches = 2, .reduce = "scatter-gather", .sync_batch_norm = true}};
  for (const ParallelOptions& parallel : layouts) {
    SCOPED_TRACE(testing::Message() << parallel.replicas << " x " << parallel.stages);
    std::vector<float> losses;
    for (const unsigned gpus : {0u, parallel.devices()}) {  // all on one GPU, and each on its part
      RunSetup options;
      use_gpu(options);
      options.spec.virtual_gpus = gpus;
      set_optimizer(options.spec, {.momentum = 0.9, .clip_norm = 0.3});
      set_layout(options.spec, parallel);
      TrainingRun training = run_of(build_model("cnn", ModelSettings::parse("batch=4,width=16")), options);
      training.fill_inputs(1);
      for (int i = 0; i < 4; ++i) training.step(0.05f);
      losses.push_back(training.step(0.05f).loss);
      EXPECT_TRUE(std::isfinite(losses.back()));
    }
    EXPECT_NEAR(losses[0], losses[1], 0.02f * losses[0]);
  }
}

// The cooperative kernel of a recurrence must fit the SMs of its partition.
TEST(VirtualGpus, RecurrencesFitThePartition) {
  OVERTAKE_NEEDS_GPU();
  const std::string settings = "batch=32,sequence=12,vocabulary=64,width=256,hidden=512,layers=1";
  std::vector<float> losses;
  for (const unsigned gpus : {0u, 8u}) {
    TrainingRun training = run_on(gpus, "lstm", settings);
    training.fill_inputs(1);
    for (int i = 0; i < 3; ++i) training.step(0.05f);
    losses.push_back(training.step(0.05f).loss);
    EXPECT_TRUE(std::isfinite(losses.back()));
  }
  EXPECT_NEAR(losses[0], losses[1], 0.02f * losses[0]);
}

// Device 0 sends two buffers to device 1, one after the other, and one to device 2.
struct SendingPlan {
  static constexpr std::int64_t kCount = 250'000;

  SendingPlan() {
    plan.schedule = "by hand";
    const LayerId layer = plan.graph.add_layer("layer");
    for (std::uint16_t d = 0; d < 3; ++d) plan.lanes.push_back({.device = d, .tasks = {}, .is_asynchronous = true});
    for (const std::uint16_t to : std::initializer_list<std::uint16_t>{1, 1, 2}) {
      const auto buffer = [&](std::uint16_t device, std::int64_t count, DType dtype, Role role) {
        const BufferId b = plan.graph.add_buffer("b", {count}, dtype, role);
        plan.graph.buffers[b].device = device;
        return b;
      };
      const BufferId x = buffer(0, kCount, DType::f32, Role::input), y = buffer(to, kCount, DType::f32, Role::output),
                     token = buffer(0, 0, DType::u8, Role::activation);
      const auto add = [&](std::uint16_t device, Kind kind, std::initializer_list<BufferId> reads, BufferId written) {
        const TaskId t = plan.graph.add_task(kind, Op::transfer, layer, 0, reads, {written});
        plan.graph.tasks[t].device = device;
        plan.lanes[device].tasks.push_back(t);
        return t;
      };
      add(0, Kind::send, {x}, token);
      receipts.push_back(add(to, Kind::recv, {token, x}, y));
    }
    plan = place_memory(std::move(plan));
    verify(plan);
  }

  Plan plan;
  std::vector<TaskId> receipts;
};

// By the GPU's own clock no transfer takes less than its link says, and those over one link come one after the other,
// however busy this machine is. That the other link is free meanwhile shows in one of several steps, at the latest.
TEST(VirtualGpus, ALinkIsForOneTransferAtATime) {
  OVERTAKE_NEEDS_GPU();
  const SendingPlan sending;
  const VirtualLink link = {.bytes_per_s = 1'000'000'000, .latency_ns = 1'000'000};
  const std::int64_t each = transfer_ns(link, Kind::recv, 4 * SendingPlan::kCount, 2);
  EXPECT_EQ(each, 2'000'000);
  const auto backend = open_backend("cuda", split_into(3, link));
  const auto executor = backend->make_executor({sending.plan});
  executor->run(0, {});  // the first goes task by task
  executor->run_traced(0, {});
  bool has_overlapped = false;
  for (int step = 0; step < 20; ++step) {
    const Trace trace = executor->run_traced(0, {});
    std::vector<Span> spans;
    for (const TaskId t : sending.receipts)
      for (const Span& s : trace.spans)
        if (s.task == t) spans.push_back(s);
    ASSERT_EQ(spans.size(), 3u);
    for (const Span& s : spans) EXPECT_GE(s.end_ns - s.begin_ns, each - 20'000);  // how fine the clock is
    EXPECT_GE(spans[1].begin_ns, spans[0].end_ns) << "both come over the link from 0 to 1";
    has_overlapped = has_overlapped || spans[2].begin_ns < spans[0].end_ns;
  }
  EXPECT_TRUE(has_overlapped) << "the third has a link of its own";
}

TEST(VirtualGpus, APlanOfMoreDevicesIsRefused) {
  OVERTAKE_NEEDS_GPU();
  const SendingPlan sending;
  const auto backend = open_backend("cuda", split_into(2));
  EXPECT_ANY_THROW(backend->make_executor({sending.plan}));
}

}  // namespace
}  // namespace overtake
