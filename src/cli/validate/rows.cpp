#include "cli/validate/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/validate/exchange_rows.h"
#include "cli/validate/nccl_rows.h"
#include "cli/validate/single_device.h"
#include "machine/kernel_times/kernel_table.h"
#include "machine/kernel_times/product.h"

namespace overtake {
namespace {

constexpr std::string_view kThroughput = "Zero Bubble, table 4", kMemory = "Zero Bubble, table 4, memory",
                           kBubbles = "Zero Bubble, tables 5 and 6", kBarrier = "Zero Bubble, table 7",
                           kDataParallel = "OOO backprop, data parallel", kPipeline = "OOO backprop, pipeline",
                           kKernels = "a product beside NCCL", kOverlap = "overlap survey", kKlenk = "Klenk et al.",
                           kNvls = "NVLS";

// What was found where a figure does not fit, one assumption changed at a time; docs/validation.md has more.
constexpr const char* kRateNote =
    "By the A100's table products take less of a step than the authors' did; what else was not fused there is not "
    "told.";
constexpr const char* kSplitNote =
    "Weight gradients take longer beside forwards here than in table 6 (0.50 to 0.74 of them): bubbles of F + B - W "
    "come out too short. With the times of table 6 the schedules fit to 0.4 %.";
constexpr const char* kChunkNote =
    "Transfers, of which 1F1B-I has as many times more as chunks, run beside computation here; Megatron waited for "
    "them.";
constexpr const char* kHeadNote =
    "The output layer over 50304 words is a chunk of its own here; the vocabulary is not told.";
constexpr const char* kMemoryNote =
    "Not found. Attention keeps its probabilities here (plain_attention=1), as Megatron did without flash attention; "
    "without them memory is 39 % too low on average.";
constexpr const char* kBarrierNote = "Not found; an output layer of 8192 words instead of 50304 leaves it at 1.06.";
constexpr const char* kDataParallelNote =
    "At 15.7 TFLOP/s all reductions hide behind computation already. With float16 on tensor cores and a barrier "
    "after every step of the baseline ResNet-50 gains 1.16 (16 GPUs) and 1.15 (32); with one of the two, 1.00.";
constexpr const char* kPipelineNote =
    "GPipe computes forwards once here. If it computes them again, as the GPipe paper does, fast-forwarding is 1.47 "
    "to 1.82, with modulo allocation 1.38 to 2.16.";
constexpr const char* kKernelNote = "A ring holds 24 of 108 SMs, and the products are of very many tiles here.";
constexpr const char* kWaveNote =
    "Two whole waves here. There the second had few blocks, which have the memory to themselves.";
constexpr const char* kShareNote =
    "Gradients of data parallel training are under way for a small part of the step here; one sample per GPU "
    "instead of four: 1.07 (A100). How the survey spread its models its abstract does not tell.";
constexpr const char* kLargeNote =
    "A ring of 16 sends 1.875 times the bytes; 0.8 of the bandwidth is payload there, 0.82 in the switch.";
constexpr const char* kSmallNote =
    "What the switch needs before it begins is not told, and 0 here; 0.4 us make it 18, 1 us 12. Against a ring alone "
    "it is 41.";

// Tables 3, 4, 6 and 7 of Zero Bubble.
struct ZeroBubbleModel {
  const char* name;
  std::uint32_t layers, heads, width, devices, micro_batch, chunks;  // chunks: of 1F1B-I, a layer each
  std::array<double, 4> memory;                                      // GB: ZB-2p, ZB-1p, 1F1B, 1F1B-I
  double with_barrier;                                               // samples/GPU/s of ZB-2p, least micro-batches
  struct Run {
    std::uint32_t micro_batches;
    std::array<double, 4> throughput;  // samples/GPU/s: ZB-2p, ZB-1p, 1F1B, 1F1B-I
    StageTimes times;                  // profiled
    std::array<double, 4> bubbles;     // 1F1B, 1F1B-I, ZB-H1, ZB-H2
  };
  std::array<Run, 3> runs;
};
const std::array<ZeroBubbleModel, 4> kZeroBubble = {{
    {"1.5B",
     22,
     24,
     2304,
     8,
     6,
     3,
     {59, 32, 30, 40},
     13.11,
     {{{24, {14.5, 12.9, 11.8, 13.1}, {18.522, 18.086, 9.337, 0.601}, {0.2431, 0.1055, 0.1585, 0.1083}},
       {32, {14.8, 13.4, 12.5, 13.4}, {18.513, 18.086, 9.331, 0.626}, {0.1985, 0.0818, 0.1242, 0.0837}},
       {64, {14.9, 14.2, 13.6, 13.9}, {18.546, 18.097, 9.321, 0.762}, {0.1240, 0.0443, 0.0674, 0.0444}}}}},
    {"6.2B",
     30,
     32,
     4096,
     8,
     3,
     4,
     {70, 42, 39, 48},
     4.00,
     {{{24, {4.32, 3.88, 3.50, 4.01}, {29.718, 29.444, 19.927, 0.527}, {0.2347, 0.0808, 0.1323, 0.0698}},
       {32, {4.35, 4.00, 3.70, 4.08}, {29.802, 29.428, 19.530, 0.577}, {0.1898, 0.0628, 0.1045, 0.0559}},
       {64, {4.39, 4.20, 4.03, 4.19}, {29.935, 29.621, 19.388, 0.535}, {0.1091, 0.0320, 0.0554, 0.0294}}}}},
    {"14.6B",
     46,
     40,
     5120,
     16,
     1,
     3,
     {51, 33, 32, 39},
     1.68,
     {{{48, {1.81, 1.61, 1.40, 1.54}, {11.347, 11.248, 8.132, 0.377}, {0.2552, 0.1104, 0.1397, 0.0672}},
       {64, {1.83, 1.67, 1.49, 1.59}, {11.307, 11.254, 8.101, 0.379}, {0.2082, 0.0852, 0.1088, 0.0516}},
       {128, {1.85, 1.76, 1.64, 1.66}, {11.325, 11.308, 8.109, 0.378}, {0.1251, 0.0445, 0.0576, 0.0266}}}}},
    {"28.3B",
     62,
     48,
     6144,
     32,
     1,
     2,
     {74, 44, 43, 58},
     0.91,
     {{{96, {0.99, 0.87, 0.76, 0.82}, {10.419, 10.207, 7.715, 0.408}, {0.2646, 0.1493, 0.1421, 0.0641}},
       {128, {1.00, 0.90, 0.80, 0.85}, {10.408, 10.204, 7.703, 0.408}, {0.2168, 0.1164, 0.1106, 0.0490}},
       {256, {1.00, 0.96, 0.88, 0.90}, {10.402, 10.248, 7.698, 0.460}, {0.1352, 0.0624, 0.0594, 0.0257}}}}},
}};

// Their searched schedules stand beside the ones by hand they start from.
struct Named {
  const char *published, *ours;
};
constexpr std::array<Named, 4> kOfTable4 = {
    {{"ZB-2p", "zb-h2"}, {"ZB-1p", "zb-h1"}, {"1F1B", "1f1b"}, {"1F1B-I", "interleaved"}}};
constexpr std::array<Named, 4> kOfTable5 = {
    {{"1F1B", "1f1b"}, {"1F1B-I", "interleaved"}, {"ZB-H1", "zb-h1"}, {"ZB-H2", "zb-h2"}}};
constexpr std::size_t kBaseline = 2;  // 1F1B in table 4

constexpr int kPaperSteps = 4;  // one behind the other

RunSpec mixed_precision(const char* model, const std::string& machine) {
  RunSpec spec;
  spec.model = model;
  spec.machine = machine;
  spec.precision = "bf16";
  spec.optimizer = "adamw";
  return spec;
}

Setting zero_bubble(const ZeroBubbleModel& m, std::uint32_t micro_batches, const char* schedule,
                    int steps = kPaperSteps) {
  Setting s{.spec = mixed_precision("gpt2", fmt::format("dgx-a100:{}", (m.devices + 7) / 8)), .steps = steps};
  s.spec.settings =
      fmt::format("layers={},width={},heads={},sequence=1024,positions=1024,vocabulary=50304,tied=0,plain_attention=1",
                  m.layers, m.width, m.heads);
  s.spec.batch = std::int64_t{m.micro_batch} * micro_batches;
  s.spec.stages = m.devices;
  s.spec.micro_batches = micro_batches;
  s.spec.pipeline = schedule;
  s.spec.chunks = m.chunks;
  return s;
}

std::string described(const ZeroBubbleModel& m, std::uint32_t micro_batches) {
  return fmt::format("{}, {} GPUs, {} micro-batches", m.name, m.devices, micro_batches);
}

void add_zero_bubble(std::vector<PublishedFigure>& all) {
  for (const ZeroBubbleModel& m : kZeroBubble) {
    for (const ZeroBubbleModel::Run& r : m.runs) {
      const Setting base = zero_bubble(m, r.micro_batches, kOfTable4[kBaseline].ours);
      const double published = r.throughput[kBaseline];
      all.push_back({std::string(kThroughput), described(m, r.micro_batches) + ": 1F1B", "samples/GPU/s", published,
                     published, [=](Laboratory& lab) { return lab.run(base).samples_per_s / m.devices; }, kRateNote});
      for (std::size_t i = 0; i < kOfTable4.size(); ++i) {
        if (i == kBaseline) continue;
        const Setting other = zero_bubble(m, r.micro_batches, kOfTable4[i].ours);
        const double ratio = r.throughput[i] / published;
        const bool is_interleaved = kOfTable4[i].ours == std::string_view("interleaved");
        // A layer's products are 12 width^2.
        const bool is_wide = 50304 > 12 * m.width * 3 / 2;
        all.push_back({std::string(kThroughput),
                       fmt::format("{}: {} / 1F1B", described(m, r.micro_batches), kOfTable4[i].published), "x", ratio,
                       ratio, [=](Laboratory& lab) { return lab.run(base).step_ms / lab.run(other).step_ms; },
                       !is_interleaved ? kSplitNote
                       : is_wide       ? kHeadNote
                                       : kChunkNote});
      }
    }
  }
  for (const ZeroBubbleModel& m : kZeroBubble) {
    for (std::size_t i = 0; i < kOfTable4.size(); ++i) {
      const Setting s = zero_bubble(m, m.runs[0].micro_batches, kOfTable4[i].ours);
      all.push_back({std::string(kMemory), fmt::format("{}: {}", m.name, kOfTable4[i].published), "GB", m.memory[i],
                     m.memory[i], [=](Laboratory& lab) { return lab.run(s).peak_bytes * 1e-9; }, kMemoryNote});
    }
  }
  for (const ZeroBubbleModel& m : kZeroBubble) {
    for (const ZeroBubbleModel::Run& r : m.runs) {
      for (std::size_t i = 0; i < kOfTable5.size(); ++i) {
        const double cost = 1 / (1 - r.bubbles[i]);
        all.push_back({std::string(kBubbles),
                       fmt::format("{}: {}, step / work", described(m, r.micro_batches), kOfTable5[i].published), "x",
                       cost, cost, [=](Laboratory& lab) {
                         return lab.cost_of_pipeline(r.times, m.devices, r.micro_batches, kOfTable5[i].ours, m.chunks);
                       }});
      }
    }
  }
  for (const ZeroBubbleModel& m : kZeroBubble) {
    const std::uint32_t n = m.runs[0].micro_batches;
    const double ratio = m.runs[0].throughput[0] / m.with_barrier;
    all.push_back({std::string(kBarrier), described(m, n) + ": ZB-2p without / with a barrier", "x", ratio, ratio,
                   [=](Laboratory& lab) {
                     return lab.run(zero_bubble(m, n, "zb-h2", 1)).step_ms /
                            lab.run(zero_bubble(m, n, "zb-h2")).step_ms;
                   },
                   kBarrierNote});
  }
}

void add_out_of_order(std::vector<PublishedFigure>& all) {
  struct Net {
    const char* model;
    std::int64_t batch;  // of a GPU
  };
  for (const Net& net : {Net{"resnet-50", 128}, Net{"resnet-101", 96}}) {
    for (const std::uint32_t gpus : {4u, 16u, 32u, 48u}) {
      Setting base{.spec = {}, .steps = kPaperSteps};
      base.spec.model = net.model;
      base.spec.machine = fmt::format("p3.8xlarge:{}", gpus / 4);
      base.spec.precision = "f32";
      base.spec.batch = net.batch * gpus;
      base.spec.blocks = 80;
      base.spec.replicas = gpus;
      base.spec.reduce = "by-layer";
      Setting ours = base;
      ours.spec.reduce = "first-k";
      all.push_back({std::string(kDataParallel),
                     fmt::format("{}, {} V100: reverse first-k / priorities", net.model, gpus), "x", 1.10, 1.27,
                     [=](Laboratory& lab) { return lab.run(base).step_ms / lab.run(ours).step_ms; },
                     kDataParallelNote});
    }
  }
  struct Pipe {
    const char *model, *cluster;
    std::uint32_t layers, gpus, micro_batches;
    std::int64_t batch;
    std::uint32_t words;  // of the output: a classifier, or a word for 20 of 128 places
  };
  for (const Pipe& pipe :
       {Pipe{"bert-24", "p3.8xlarge", 24, 4, 4, 96, 2}, Pipe{"bert-12", "p3.16xlarge", 12, 8, 30, 480, 4769},
        Pipe{"bert-24", "p3.16xlarge:2", 24, 16, 32, 320, 4769},
        Pipe{"bert-36", "p3.16xlarge:3", 36, 24, 38, 380, 4769},
        Pipe{"bert-48", "p3.16xlarge:4", 48, 32, 40, 320, 4769}}) {
    const auto setting = [&](const char* schedule) {
      Setting s{.spec = mixed_precision(pipe.model, pipe.cluster), .steps = kPaperSteps};
      s.spec.settings = fmt::format("vocabulary={}", pipe.words);
      s.spec.precision = "f32";
      s.spec.batch = pipe.batch;
      s.spec.blocks = pipe.layers + 2;
      s.spec.stages = pipe.gpus;
      s.spec.micro_batches = pipe.micro_batches;
      s.spec.pipeline = schedule;
      return s;
    };
    for (const auto& [ours, name] :
         {std::pair{"fast-forward", "fast-forwarding"}, std::pair{"modulo", "fast-forwarding, modulo allocation"}})
      all.push_back(
          {std::string(kPipeline),
           fmt::format("{}, {} V100, {} micro-batches: {} / GPipe", pipe.model, pipe.gpus, pipe.micro_batches, name),
           "x", 1.41, 1.99,
           [base = setting("gpipe"), other = setting(ours)](Laboratory& lab) {
             return lab.run(base).step_ms / lab.run(other).step_ms;
           },
           kPipelineNote});
  }
}

void add_overlap(std::vector<PublishedFigure>& all) {
  // It has as many tiles as there are SMs, so that it takes a second wave where a collective holds some of them.
  const DeviceType h100 = load_cluster("dgx-h100").devices[0];
  constexpr std::int64_t kAlone = 1'000'000;
  const TaskCost product{
      .ns = kAlone,
      .compute_ns = kAlone,
      .beside_ns = static_cast<std::int64_t>(static_cast<double>(kAlone) * more_waves(h100.sms, h100))};
  all.push_back({std::string(kKernels), "H100: a product of 132 blocks beside a collective / alone", "x", 80.0 / 47,
                 80.0 / 47, [=](Laboratory&) { return slowdown_beside_ring("dgx-h100", 8, product); }, kWaveNote});
  all.push_back({std::string(kOverlap), "4 A100: products that always run beside communication / alone, at most", "x",
                 1.40, 1.40, [](Laboratory&) { return slowdown_beside_ring("dgx-a100", 4, {.ns = 1'000'000}); },
                 kKernelNote});
  for (const auto& [cluster, gpu] : {std::pair{"dgx-a100", "A100"}, std::pair{"dgx-h100", "H100"}}) {
    Setting s{.spec = mixed_precision("gpt3-medium", cluster), .steps = kPaperSteps};
    s.spec.batch = 16;
    s.spec.replicas = 4;
    Setting apart = s;
    apart.overlap_slows = false;
    all.push_back({std::string(kOverlap),
                   fmt::format("gpt3-medium, 4 {}: computation beside communication / alone", gpu), "x", 1.189, 1.189,
                   [=](Laboratory& lab) { return lab.run(s).busy_ms / lab.run(apart).busy_ms; }, kShareNote});
  }
}

void add_in_network(std::vector<PublishedFigure>& all) {
  // 16 GPUs with 150 GB/s each way to one switch, as in a DGX-2. What the switch can do is not told: no more than the
  // links, no fixed cost, and as much of the bandwidth is payload as of NCCL's rings.
  const std::string cluster =
      R"([device.v100]
f32 = "15.7 TFLOP/s"
memory = [{ name = "HBM2", capacity = "32 GB", bandwidth = "900 GB/s" }]
sms = 80
[node.dgx2]
devices = { v100 = 16 }
[node.dgx2.switch.nvswitch]
reduction = "push"
table = 65536
entry = "128 B"
round_trip = "1 us"
fixed_cost = "0 ns"
efficiency = 0.82
[[link]]
between = ["dgx2/v100", "dgx2/nvswitch"]
kind = "NVLink"
bandwidth = "150 GB/s"
latency = "300 ns"
)";
  // Software takes a ring or a tree, whichever is faster, as NCCL would.
  const auto gain = [=](std::int64_t bytes) {
    const double ring = all_reduce_ms(cluster, 16, bytes, Algorithm::ring);
    const double tree = all_reduce_ms(cluster, 16, bytes, Algorithm::tree);
    return std::min(ring, tree) / all_reduce_ms(cluster, 16, bytes, Algorithm::in_network);
  };
  all.push_back({std::string(kKlenk), "16 GPUs, 1 GiB: in the network / software", "x", 2, 2,
                 [=](Laboratory&) { return gain(std::int64_t{1} << 30); }, kLargeNote});
  all.push_back({std::string(kKlenk), "16 GPUs, 1 KiB to 1 MiB, at best: in the network / software", "x", 18, 18,
                 [=](Laboratory&) {
                   double best = 0;
                   for (std::int64_t bytes = 1 << 10; bytes <= 1 << 20; bytes *= 2) best = std::max(best, gain(bytes));
                   return best;
                 },
                 kSmallNote});
  all.push_back({std::string(kNvls), "8 H100, 1 GiB: NVLS / ring", "x", 1.3, 1.3, [](Laboratory&) {
                   const std::int64_t bytes = std::int64_t{1} << 30;
                   return all_reduce_ms("dgx-h100", 8, bytes, Algorithm::ring) /
                          all_reduce_ms("dgx-h100", 8, bytes, Algorithm::in_network);
                 }});
}

std::vector<PublishedSource> sources_of_papers() {
  constexpr std::string_view kZeroBubblePaper = "https://arxiv.org/abs/2401.10241",
                             kOutOfOrderPaper = "https://arxiv.org/abs/2110.00929";
  return {
      {kThroughput, "Qi et al., Zero Bubble Pipeline Parallelism, tables 3 and 4", kZeroBubblePaper, Area::pipelines},
      {kMemory, "Zero Bubble, table 4", kZeroBubblePaper, Area::memory},
      {kBubbles, "Zero Bubble, bubble rates r of table 5 as 1 / (1 - r), for the profiled times of table 6",
       kZeroBubblePaper, Area::pipelines, true},
      {kBarrier, "Zero Bubble, tables 4 and 7", kZeroBubblePaper, Area::pipelines},
      {kDataParallel, "Oh et al., Out-of-order backprop, EuroSys'22: 1.10-1.27x over BytePS", kOutOfOrderPaper,
       Area::data_parallel},
      {kPipeline, "Out-of-order backprop: 1.41-1.99x over GPipe; batches of github.com/mlsys-seo/ooo-backprop",
       kOutOfOrderPaper, Area::pipelines},
      {kKernels, "as many blocks as SMs beside an all-gather of 24 blocks: 80 % of the peak, then 47 %",
       "https://forums.developer.nvidia.com/t/337991", Area::kernels},
      {kOverlap, "computation 18.9 % slower on average, 40 % at most, over 4 GPUs", "https://arxiv.org/abs/2507.03114",
       Area::kernels},
      {kKlenk, "Klenk et al., An In-Network Architecture for Accelerating Collectives, ISCA'20, abstract",
       "https://doi.org/10.1109/ISCA45697.2020.00085", Area::collectives},
      {kNvls, "NCCL's developers: 370 GB/s of bus bandwidth by a ring, 480 by NVLS, on 8 H100",
       "https://github.com/NVIDIA/nccl-tests/issues/212", Area::collectives}};
}

}  // namespace

std::vector<PublishedSource> published_sources() {
  std::vector<PublishedSource> all = sources_of_papers();
  add_nccl_sources(all);
  for (const PublishedSource& source : exchange_sources()) all.push_back(source);
  for (const PublishedSource& source : single_device_sources()) all.push_back(source);
  return all;
}

std::vector<PublishedFigure> published_figures() {
  std::vector<PublishedFigure> all;
  add_zero_bubble(all);
  add_out_of_order(all);
  add_overlap(all);
  add_in_network(all);
  add_exchanges(all);
  add_nccl_figures(all);
  for (PublishedFigure& figure : single_device_figures()) all.push_back(std::move(figure));
  return all;
}

}  // namespace overtake
