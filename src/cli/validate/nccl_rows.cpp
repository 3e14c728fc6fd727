// Whole tables of nccl-tests, every eighth-fold size from 8 B on, by the rule of docs/validation-method.md. Where a
// table has both, figures are of the in-place columns: the other comes first, and has the first use of every algorithm
// in it.

#include "cli/validate/nccl_rows.h"

#include <fmt/format.h>

#include <array>

#include "base/units.h"

namespace overtake {
namespace {

constexpr std::int64_t kKi = 1 << 10, kMi = 1 << 20, kGi = std::int64_t{1} << 30;
constexpr std::array<std::int64_t, 11> kSizes = {8,       64,       512,       4 * kKi, 32 * kKi, 256 * kKi,
                                                 2 * kMi, 16 * kMi, 128 * kMi, kGi,     8 * kGi};

// Those that constants were calibrated on have it in their name.
constexpr std::string_view kHgx = "NCCL: 16 and 32 H100 (calibration)", kH200 = "NCCL: 8 H200 (calibration)",
                           kFour = "NCCL: 4 H100, one process (calibration)",
                           kLatency = "NCCL: 2 to 8 A100, one process (calibration)",
                           kA100 = "NCCL: 8 A100 (calibration)", kCluster = "NCCL: 16 to 64 H100",
                           kNodes = "NCCL: 4 and 8 H100, four operations", kOci = "NCCL: 16 A100",
                           kOneProcess = "NCCL: 8 H100, one process", kForced = "NCCL: rings and NVLS, 2 to 8 H100";

constexpr const char* kMiddle =
    "Messages of a few KiB to a few MiB: NCCL's own estimate, which this follows, is too short there, and where it "
    "goes from LL to LL128 and to Simple differs by version.";
constexpr const char* kClusterNote =
    "The same hardware as the 32 H100 of the calibration, 12 % slower on large messages; with NCCL_MIN_CTAS=24 and two "
    "queue pairs per connection its owner measured 391 GB/s on 64 GPUs. At 2 MiB NCCL takes NVLSTree there, and LL128 "
    "by its estimate here.";
constexpr const char* kOciNote =
    "Small messages: that cluster's RoCE takes about 5 us more for each way between nodes than NCCL counts on. Large "
    "ones: it takes a tree there, and a ring or a tree with less of the network here.";
constexpr const char* kFillNote =
    "How pipelines fill is one constant for each algorithm; it is the same for all-gather and reduce-scatter here.";
constexpr const char* kProcessNote =
    "What a process needs to launch a kernel on each of its devices depends on its CPU: 4 us for each and 2 us (A100) "
    "or 8 us (H100) more here.";

struct NcclTable {
  std::string_view source;
  const char *what, *machine;
  std::uint32_t devices;
  Operation operation;
  std::size_t first;                 // of kSizes
  std::vector<double> microseconds;  // from there on
  const char* note;
  std::uint32_t devices_per_process = 1;
  Algorithm algorithm = Algorithm::automatic;
};

const NcclTable kTables[] = {
    {kHgx,
     "16 H100",
     "dgx-h100:2",
     16,
     Operation::all_reduce,
     0,
     {24.70, 25.21, 26.31, 29.72, 33.47, 46.79, 76.62, 183.8, 749.2, 4470.2, 34365},
     kMiddle},
    {kHgx,
     "32 H100",
     "dgx-h100:4",
     32,
     Operation::all_reduce,
     0,
     {34.75, 34.92, 36.72, 41.42, 46.79, 66.86, 132.2, 258.3, 1013.1, 5802.8, 45573},
     kMiddle},
    {kFour,
     "4 H100",
     "dgx-h100",
     4,
     Operation::all_reduce,
     0,
     {24.37, 23.91, 23.52, 28.19, 23.62, 26.37, 32.07, 101.9, 615.8, 4557.5},
     kProcessNote,
     4},
    {kA100, "8 A100", "dgx-a100", 8, Operation::all_reduce, 8, {1149.8, 8109.7}, kFillNote},
    {kCluster,
     "16 H100",
     "dgx-h100:2",
     16,
     Operation::all_reduce,
     6,
     {93.52, 202.7, 751.2, 4503.5, 34514},
     kClusterNote},
    {kCluster,
     "32 H100",
     "dgx-h100:4",
     32,
     Operation::all_reduce,
     6,
     {156.4, 286.3, 1043.6, 6532.2, 51350},
     kClusterNote},
    {kCluster,
     "64 H100",
     "dgx-h100:8",
     64,
     Operation::all_reduce,
     6,
     {143.3, 373.5, 1149.5, 7414.5, 52754},
     kClusterNote},
    {kNodes, "8 H100", "dgx-h100", 8, Operation::all_reduce, 8, {563.93, 4000.05, 31184.2}, kFillNote},
    {kNodes, "8 H100", "dgx-h100", 8, Operation::all_gather, 8, {377.96, 2696.90, 20679.1}, kFillNote},
    {kNodes, "8 H100", "dgx-h100", 8, Operation::reduce_scatter, 8, {377.62, 2733.92, 20792.7}, kFillNote},
    {kNodes, "8 H100", "dgx-h100", 8, Operation::send_recv, 8, {829.02, 2984.98, 23432.0}, kFillNote},
    {kNodes, "4 H100", "dgx-h100", 4, Operation::all_reduce, 8, {612.01, 4506.86, 35150.1}, kFillNote},
    {kNodes, "4 H100", "dgx-h100", 4, Operation::all_gather, 8, {344.24, 2424.06, 18050.0}, kFillNote},
    {kNodes, "4 H100", "dgx-h100", 4, Operation::reduce_scatter, 8, {352.20, 2524.86, 18414.9}, kFillNote},
    {kNodes, "4 H100", "dgx-h100", 4, Operation::send_recv, 8, {827.14, 2981.44, 23456.6}, kFillNote},
    {kOci,
     "16 A100",
     "dgx-a100:2",
     16,
     Operation::all_reduce,
     0,
     {34.74, 37.05, 39.35, 43.36, 49.17, 65.81, 100.1, 265.9, 1546.1, 9073.4, 67811},
     kOciNote},
    {kOneProcess, "8 H100", "dgx-h100", 8, Operation::all_reduce, 8, {614.3, 4043.6}, kFillNote, 8},
};

// Bus bandwidths of 8 H200, from 32 KiB on.
constexpr std::size_t kH200First = 4;
constexpr double kH200Bus[] = {3.20, 24.63, 91.48, 242.45, 411.21, 464.00, 475.16};

// Microseconds of 8 B on 2 to 8 devices.
constexpr double kRingLatencies[] = {10, 13.76, 16.88, 20.8, 25.2, 29.5, 33.7};

// Bus bandwidths of 4 GiB, as the post rounds them.
struct Forced {
  std::uint32_t devices;
  Algorithm algorithm;
  double low, high;
};
constexpr Forced kForcedBus[] = {{2, Algorithm::ring, 365, 370},       {4, Algorithm::ring, 365, 370},
                                 {8, Algorithm::ring, 365, 370},       {4, Algorithm::in_network, 365, 370},
                                 {5, Algorithm::in_network, 420, 420}, {6, Algorithm::in_network, 440, 440},
                                 {7, Algorithm::in_network, 460, 460}, {8, Algorithm::in_network, 480, 480}};

std::string size_text(std::int64_t bytes) { return print_quantity(bytes, Measure::bytes); }

}  // namespace

void add_nccl_sources(std::vector<PublishedSource>& sources) {
  for (const PublishedSource& s : {
           PublishedSource{kHgx, "tables of qoofyk (Dell XE9680, 8 x NDR)",
                           "https://github.com/NVIDIA/nccl-tests/issues/309", Area::collectives},
           PublishedSource{kFour, "all_reduce_perf -g 4",
                           "https://dudeperf3ct.github.io/posts/distributed_communication_part1", Area::collectives},
           PublishedSource{kA100, "test_check_nccl.py, sample_single_success_output",
                           "https://github.com/facebookresearch/gcm", Area::collectives},
           PublishedSource{kCluster, "tables of gj-aion with NCCL's defaults",
                           "https://github.com/NVIDIA/nccl-tests/issues/309", Area::collectives},
           PublishedSource{kNodes, "benchmarks/example-cluster02/single-node/runs/20260128-010837, cnode3-002",
                           "https://github.com/xxrjun/nccl-tests-cluster", Area::collectives},
           PublishedSource{kOci, "README.md of 2024 (BM.GPU4.8)", "https://github.com/oracle-quickstart/oci-hpc-oke",
                           Area::collectives},
           PublishedSource{kOneProcess, "single node, -g 8", "https://github.com/NVIDIA/nccl-tests/issues/290",
                           Area::collectives},
           PublishedSource{kH200, "network/benchmarks/README.md, column nccl-tests",
                           "https://github.com/stas00/ml-engineering", Area::collectives},
           PublishedSource{kLatency, "rings, 8 to 128 B", "https://github.com/NVIDIA/nccl-tests/issues/123",
                           Area::collectives},
           PublishedSource{kForced, "NCCL_ALGO=RING and NVLS", "https://github.com/NVIDIA/nccl/issues/1455",
                           Area::collectives},
       })
    sources.push_back(s);
}

void add_nccl_figures(std::vector<PublishedFigure>& figures) {
  for (const NcclTable& t : kTables)
    for (std::size_t i = 0; i < t.microseconds.size(); ++i) {
      const CollectiveCase what{t.operation, kSizes[t.first + i], t.devices_per_process};
      figures.push_back({std::string(t.source),
                         fmt::format("{}: {} of {}", t.what, to_string(t.operation), size_text(what.bytes)), "us",
                         t.microseconds[i], t.microseconds[i],
                         [&t, what](Laboratory&) {
                           return static_cast<double>(timed(t.machine, t.devices, what, t.algorithm).ns) * 1e-3;
                         },
                         t.note});
    }
  for (std::size_t i = 0; i < std::size(kH200Bus); ++i) {
    const CollectiveCase what{Operation::all_reduce, kSizes[kH200First + i], 1};
    figures.push_back({std::string(kH200), fmt::format("8 H200: all-reduce of {}", size_text(what.bytes)),
                       "GB/s bus bandwidth", kH200Bus[i], kH200Bus[i],
                       [what](Laboratory&) { return timed("dgx-h200", 8, what, Algorithm::automatic).busbw_gbs; },
                       kMiddle});
  }
  for (std::uint32_t n = 2; n <= 8; ++n) {
    const CollectiveCase what{Operation::all_reduce, 8, n};
    figures.push_back(
        {std::string(kLatency), fmt::format("{} A100: ring of 8 B", n), "us", kRingLatencies[n - 2],
         kRingLatencies[n - 2],
         [n, what](Laboratory&) { return static_cast<double>(timed("dgx-a100", n, what, Algorithm::ring).ns) * 1e-3; },
         kProcessNote});
  }
  for (const Forced& f : kForcedBus)
    figures.push_back({std::string(kForced), fmt::format("{} H100: {} of 4 GiB", f.devices, to_string(f.algorithm)),
                       "GB/s bus bandwidth", f.low, f.high,
                       [f](Laboratory&) {
                         const CollectiveCase what{Operation::all_reduce, 4 * kGi, f.devices};
                         return timed("dgx-h100", f.devices, what, f.algorithm).busbw_gbs;
                       },
                       kFillNote});
}

}  // namespace overtake
