// How fast the simulator of plans is: a training step of pipelines, 1F1B with the weight gradients last, and an
// all-reduce over the pipelines in every stage, on DGX H100 nodes.
//
//   build/release/bench_plan [--stages 64] [--pipelines 16] [--micro-batches 70] [--layers 1] [--rounds 3]
//
// A stage has a forward, an input gradient and a weight gradient per layer and micro-batch, and a message each way.

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/error.h"
#include "sim/cluster_simulator.h"

namespace {

using namespace overtake;

constexpr std::int64_t kMessageBytes = 2048 * 12288 * 2, kGradientBytes = 300 << 20;

struct Sizes {
  std::uint32_t stages = 64, pipelines = 16, micro_batches = 70, layers = 1;
};

class Builder {
 public:
  explicit Builder(const Sizes& sizes) : s_(sizes) {
    layer_ = plan_.graph.add_layer("layer");
    for (std::uint32_t p = 0; p < s_.pipelines; ++p)
      for (std::uint32_t s = 0; s < s_.stages; ++s) add_lanes(static_cast<std::uint16_t>(p * s_.stages + s));
    for (std::uint32_t p = 0; p < s_.pipelines; ++p) add_pipeline(p * s_.stages);
  }
  Plan plan() { return std::move(plan_); }

 private:
  enum Lanes : std::size_t { work, send_on, recv_on, send_back, recv_back, reduce, lane_count };

  void add_lanes(std::uint16_t device) {
    for (std::size_t l = 0; l < lane_count; ++l)
      plan_.lanes.push_back({.device = device, .tasks = {}, .is_asynchronous = l != work});
  }

  BufferId buffer(std::int64_t bytes) { return plan_.graph.add_buffer("b", {bytes}, DType::u8, Role::activation); }

  TaskId add(std::uint32_t device, Lanes lane, Kind kind, std::span<const BufferId> reads,
             std::span<const BufferId> writes, AttrsId attrs = 0) {
    const Op op = lane == work ? Op::block : Op::transfer;
    const TaskId t = plan_.graph.add_task(kind, op, layer_, attrs, reads, writes);
    plan_.graph.tasks[t].device = static_cast<std::uint16_t>(device);
    plan_.lanes[device * lane_count + lane].tasks.push_back(t);
    return t;
  }

  BufferId send(std::uint32_t from, std::uint32_t to, Lanes out, Lanes in, BufferId x) {
    const BufferId message = buffer(0), y = buffer(kMessageBytes);
    add(from, out, Kind::send, {{x}}, {{message}});
    add(to, in, Kind::recv, {{message}}, {{y}});
    return y;
  }

  // Messages are named before the tasks that write them: all tasks first by buffer, then the lanes in order.
  void add_pipeline(std::uint32_t first) {
    const std::uint32_t m = s_.micro_batches, n = s_.stages;
    std::vector<BufferId> in(m * n, kNone), grad(m * n, kNone), out(m * n), back(m * n);
    for (std::uint32_t b = 0; b < m; ++b) {
      for (std::uint32_t s = 0; s < n; ++s) {
        out[b * n + s] = buffer(kMessageBytes);
        back[b * n + s] = buffer(kMessageBytes);
      }
      for (std::uint32_t s = 0; s + 1 < n; ++s)
        in[b * n + s + 1] = send(first + s, first + s + 1, send_on, recv_on, out[b * n + s]);
      for (std::uint32_t s = n - 1; s > 0; --s)
        grad[b * n + s - 1] = send(first + s, first + s - 1, send_back, recv_back, back[b * n + s]);
    }
    for (std::uint32_t s = 0; s < n; ++s) {
      const std::uint32_t warm_up = std::min(m, n - s);
      std::vector<BufferId> gradients;
      const auto forward = [&](std::uint32_t b) { chain(first + s, Kind::forward, in[b * n + s], out[b * n + s]); };
      const auto backward = [&](std::uint32_t b) {
        const BufferId dy = grad[b * n + s] == kNone ? out[b * n + s] : grad[b * n + s];
        chain(first + s, Kind::input_grad, dy, back[b * n + s]);
        gradients.push_back(buffer(4));
        chain(first + s, Kind::weight_grad, dy, gradients.back());
      };
      for (std::uint32_t b = 0; b < warm_up; ++b) forward(b);
      for (std::uint32_t b = 0; b < m; ++b) {
        backward(b);
        if (b + warm_up < m) forward(b + warm_up);
      }
      const BufferId sum = buffer(kGradientBytes), total = buffer(kGradientBytes);
      add(first + s, work, Kind::weight_grad, gradients, {{sum}});
      add(first + s, reduce, Kind::all_reduce, {{sum}}, {{total}},
          plan_.graph.add_attrs({{"collective", std::int64_t{s}}}));
    }
  }

  void chain(std::uint32_t device, Kind kind, BufferId x, BufferId y) {
    for (std::uint32_t l = 0; l < s_.layers; ++l) {
      const BufferId next = l + 1 == s_.layers ? y : buffer(4);
      const std::vector<BufferId> reads = x == kNone ? std::vector<BufferId>{} : std::vector<BufferId>{x};
      add(device, work, kind, reads, {{next}});
      x = next;
    }
  }

  Sizes s_;
  Plan plan_;
  LayerId layer_ = 0;
};

std::uint32_t option(int argc, char** argv, const char* name, std::uint32_t fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return static_cast<std::uint32_t>(std::max(1, std::atoi(argv[i + 1])));
  return fallback;
}

double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }  // of this process, whatever else runs

}  // namespace

int main(int argc, char** argv) {
  const Sizes sizes{option(argc, argv, "--stages", 64), option(argc, argv, "--pipelines", 16),
                    option(argc, argv, "--micro-batches", 70), option(argc, argv, "--layers", 1)};
  const std::uint32_t rounds = option(argc, argv, "--rounds", 3), devices = sizes.stages * sizes.pipelines;
  const Plan plan = Builder(sizes).plan();
  std::vector<TaskCost> work;
  for (const Task& t : plan.graph.tasks)
    work.push_back(t.op == Op::transfer ? TaskCost{}
                                        : TaskCost{.ns = 4'000'000 / sizes.layers,
                                                   .compute_ns = 4'000'000 / sizes.layers,
                                                   .memory_ns = 1'000'000 / sizes.layers});
  const Cluster cluster = load_cluster(fmt::format("dgx-h100:{}", (devices + 7) / 8));
  const Topology topology = make_topology(cluster);
  ClusterJob job{.plan = &plan, .work = work};
  for (std::uint32_t d = 0; d < devices; ++d) job.devices.push_back(d);
  double best = 1e9;
  JobResult result;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    const double begin = seconds();
    result = simulate(cluster, topology, {&job, 1}, {})[0];
    best = std::min(best, seconds() - begin);
  }
  OVERTAKE_CHECK(result.is_finished, "{}", result.stuck[0].why);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("{} tasks on {} devices: {:.3f} ms simulated in {:.2f} s of CPU time (best of {}), {} MiB at most\n",
             plan.graph.tasks.size(), devices, static_cast<double>(result.makespan_ns) / 1e6, best, rounds,
             usage.ru_maxrss / 1024);
  return 0;
}
