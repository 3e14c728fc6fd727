#include "train/site.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "train/tags.h"

namespace overtake {
namespace {

// Communication's share of a rank's cores, in the simulator's terms: so many of a thousand.
constexpr std::int32_t kAllCores = 1000;
// What of a transfer is under way and cannot be overtaken any more, as comm/gloo/pace.h has it.
constexpr std::int64_t kChunk = 256 << 10, kLeastChunks = 6, kMostChunks = 24;
constexpr double kUnderWay = 0.012;  // seconds
// Between virtual GPUs that are not slowed down: a copy within a GPU's memory, roughly.
constexpr std::int64_t kCopyBytesPerS = 1'000'000'000'000;
// The first step is another one than those that follow.
constexpr int kStepsInARow = 4;
constexpr std::int64_t kMetricBytes = 16, kUrgentTask = 255;

struct CoresOfRank {
  std::uint64_t host = 0;
  cpu_set_t cores{};
  unsigned threads = 0;
};

// At the end of a step all ranks tell one another their losses, after all transfers that may not go on beside the next.
Plan with_end_of_step(Plan plan) {
  Graph& g = plan.graph;
  std::int64_t collective = 0;
  std::uint32_t devices = 0;
  for (const Task& t : g.tasks) {
    devices = std::max<std::uint32_t>(devices, t.device + 1u);
    if (t.op == Op::transfer && g.attrs_of(t).has("collective"))
      collective = std::max(collective, g.attrs_of(t).integer("collective") + 1);
  }
  const AttrsId attrs = g.add_attrs({{"collective", collective}, {"priority", kUrgentTask}});
  const LayerId layer = g.add_layer("end of step");
  std::vector<TaskId> ends;
  for (std::uint32_t d = 0; d < devices; ++d) {
    Buffer metrics;
    metrics.name = g.intern("metrics");
    metrics.shape = {kMetricBytes};
    metrics.layout = plain_layout(1);
    metrics.dtype = DType::u8;
    metrics.device = static_cast<std::uint16_t>(d);
    g.buffers.insert(g.buffers.end(), 2, metrics);
    const auto written = static_cast<BufferId>(g.buffers.size() - 1);
    ends.push_back(g.add_task(Kind::all_reduce, Op::transfer, layer, attrs, {written - 1}, {written}));
    g.tasks[ends.back()].device = metrics.device;
  }
  for (Lane& lane : plan.lanes) {
    if (!lane.is_asynchronous) {
      lane.tasks.push_back(ends[lane.device]);
      continue;
    }
    for (const TaskId t : lane.tasks)
      if (g.tasks[t].kind != Kind::all_reduce) plan.waits.push_back({t, ends[lane.device]});
  }
  std::ranges::sort(plan.waits);
  return plan;
}

PredictedStep one_after_the_other(const Outline& plan) {
  PredictedStep out;
  out.plan.graph = plan.plan.graph;
  out.plan.schedule = plan.plan.schedule;
  out.plan.lanes.resize(1);
  for (TaskId t = 0; t < plan.work.size(); ++t) {
    const std::int64_t begin = out.trace.step_ns;
    out.trace.step_ns += plan.work[t].ns;  // of transfers none
    out.plan.graph.tasks[t].device = 0;
    out.plan.lanes[0].tasks.push_back(t);
    out.trace.spans.push_back({t, 0, begin, out.trace.step_ns});
  }
  return out;
}

}  // namespace

std::vector<double> core_shares(Group& world, unsigned threads) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  Hash64 host;
  host.add(std::string(name.data()));
  CoresOfRank mine{.host = host.value(), .threads = threads};
  sched_getaffinity(0, sizeof mine.cores, &mine.cores);
  std::vector<CoresOfRank> all(static_cast<std::size_t>(world.size()));
  all[static_cast<std::size_t>(world.rank())] = mine;
  world.wait(world.all_gather(all.data(), all.size() * sizeof mine, DType::u8, {.tag = kSiteTag}));
  const auto cores_of = [](const CoresOfRank& r) { return std::max(1, CPU_COUNT(&r.cores)); };
  std::vector<double> shares;
  for (const CoresOfRank& r : all) {
    double sum = 0;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &r.cores)) continue;
      double wanted = 0;  // threads that would like to be here
      for (const CoresOfRank& other : all)
        if (other.host == r.host && CPU_ISSET(core, &other.cores))
          wanted += static_cast<double>(other.threads) / cores_of(other);
      sum += 1 / std::max(1.0, wanted);
    }
    shares.push_back(sum / cores_of(r));
  }
  return shares;
}

Site site_of_ranks(const LinkTimes& link, const std::vector<double>& shares, unsigned threads) {
  const auto busy = static_cast<std::int32_t>(std::lround(kAllCores * link.busy_cores / std::max(1u, threads)));
  Site site;
  site.kind = Site::Kind::ranks;
  site.cluster.name = "ranks";
  site.cluster.devices.push_back(
      {.name = "cpu", .sms = kAllCores, .communication = {.sms = busy, .in_network_sms = busy, .memory_factor = 0}});
  site.cluster.nodes.push_back(
      {.name = "rank", .count = static_cast<std::int32_t>(shares.size()), .devices = {{.device = "cpu", .count = 1}}});
  site.cluster.switches.push_back({.node = "", .name = "network"});
  site.cluster.links.push_back({.from = {.node = "rank", .name = "cpu"},
                                .to = {.node = "", .name = "network"},
                                .bandwidth = link.bytes_per_s,
                                .latency_ns = link.latency_ns / 2});
  site.topology = make_topology(site.cluster);
  const double under_way = kUnderWay * static_cast<double>(link.bytes_per_s) / kChunk;
  site.options.speeds = shares;
  site.options.algorithm = Algorithm::ring;
  site.options.protocol = Protocol::ideal;
  site.options.chunk_bytes =
      kChunk * std::clamp<std::int64_t>(std::llround(std::min(under_way, 1e6)), kLeastChunks, kMostChunks);
  site.text = fmt::format("the link moves {}/s each way, {:.3f} ms late, and keeps {:.0f} % of a rank's cores busy",
                          format_bytes(link.bytes_per_s), static_cast<double>(link.latency_ns) * 1e-6,
                          100.0 * std::min(busy, kAllCores) / kAllCores);
  return site;
}

// A link for each pair of them, and nothing that forwards: so nodes of their own.
Site site_of_virtual_gpus(std::uint32_t gpus, const VirtualLink& link) {
  Site site;
  site.kind = Site::Kind::virtual_gpus;
  site.cluster.name = "virtual GPUs";
  site.cluster.devices.push_back({.name = "part"});
  const auto node = [](std::uint32_t i) { return fmt::format("gpu{}", i); };
  for (std::uint32_t i = 0; i < gpus; ++i) {
    site.cluster.nodes.push_back({.name = node(i), .count = 1, .devices = {{.device = "part", .count = 1}}});
    for (std::uint32_t j = 0; j < i; ++j)
      site.cluster.links.push_back({.from = {.node = node(j), .name = "part"},
                                    .to = {.node = node(i), .name = "part"},
                                    .kind = LinkKind::nvlink,
                                    .bandwidth = link.bytes_per_s > 0 ? link.bytes_per_s : kCopyBytesPerS,
                                    .latency_ns = link.latency_ns});
  }
  site.topology = make_topology(site.cluster);
  site.options.algorithm = Algorithm::ring;
  site.options.protocol = Protocol::ideal;
  site.options.overlap_slows = false;
  return site;
}

PredictedStep predict_step(const Outline& plan, const Site& site) {
  if (!site.has_devices()) return one_after_the_other(plan);
  const bool has_ranks = site.kind == Site::Kind::ranks;
  PredictedStep out;
  out.plan = has_ranks ? with_end_of_step(plan.plan) : plan.plan;
  std::vector<TaskCost> work = plan.work;
  work.resize(out.plan.graph.tasks.size());
  ClusterJob job{.plan = &out.plan, .work = work, .steps = has_ranks ? kStepsInARow : 1};
  job.devices.resize(site.topology.device_count);
  std::iota(job.devices.begin(), job.devices.end(), 0u);
  JobResult result = simulate(site.cluster, site.topology, {&job, 1}, site.options)[0];
  OVERTAKE_CHECK(result.is_finished, "a plan that does not end: {}", result.stuck.empty() ? "" : result.stuck[0].why);
  out.trace = std::move(result.trace);
  return out;
}

}  // namespace overtake
