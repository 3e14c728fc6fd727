#include "cli/validate/exchange_rows.h"

#include <fmt/format.h>

namespace overtake {
namespace {

constexpr std::string_view kExchange = "NCCL, all-to-all", kRack = "GB200 NVL72, all-reduce";

constexpr const char* kLinkNote = "0.82 of an NVLink is payload here, what NCCL counts on; measured is 0.74.";
constexpr const char* kNodesNote =
    "The rule leaves out the piece that a rank keeps: of 16 pieces it sends 15, 8 of them to the other node, which is "
    "1.875; among 48 ranks it is 47/40. Of a network card 0.96 is payload here.";
constexpr const char* kRackNote =
    "The switch adds at 0.74 of what NCCL counts on for Blackwell's NVLinks here, as NCCL's cost model has it; "
    "measured "
    "is 0.59 at 8 GiB. Why, and why less for smaller messages, was not found.";

double bus_gb_per_s(const std::string& machine, std::uint32_t devices, std::int64_t bytes, Operation operation) {
  return timed(machine, devices, {operation, bytes, 1}, Algorithm::automatic).busbw_gbs;
}

}  // namespace

std::vector<PublishedSource> exchange_sources() {
  return {{kExchange,
           "alltoall_perf of 4 H100 with Simple and rings; of nodes, N/(N-1) of a GPU's network "
           "(github.com/NVIDIA/nccl-tests/issues/130)",
           "https://github.com/NVIDIA/nccl/issues/2169", Area::collectives},
          {kRack, "all_reduce_perf of 72 GB200 in one rack, out of place",
           "https://github.com/coreweave/nccl-tests/pull/43", Area::collectives}};
}

void add_exchanges(std::vector<PublishedFigure>& all) {
  all.push_back({std::string(kExchange), "4 H100, 524 MB: bus bandwidth", "GB/s", 334.9, 334.9,
                 [](Laboratory&) { return bus_gb_per_s("dgx-h100", 4, 524'288'000, Operation::all_to_all); },
                 kLinkNote});
  for (const std::uint32_t nodes : {2u, 6u}) {
    const double published = nodes / (nodes - 1.0);
    all.push_back({std::string(kExchange), fmt::format("{} nodes of 8 H100, 1 GiB: bus bandwidth / a card's", nodes),
                   "x", published, published,
                   [nodes](Laboratory&) {
                     return bus_gb_per_s(fmt::format("dgx-h100:{}", nodes), 8 * nodes, std::int64_t{1} << 30,
                                         Operation::all_to_all) /
                            50;
                   },
                   kNodesNote});
  }
  for (const auto& [gib, published] : {std::pair{1, 681.17}, {8, 834.57}})
    all.push_back(
        {std::string(kRack), fmt::format("72 GPUs, {} GiB: bus bandwidth", gib), "GB/s", published, published,
         [gib](Laboratory&) { return bus_gb_per_s("gb200-nvl72", 72, std::int64_t{gib} << 30, Operation::all_reduce); },
         kRackNote});
}

}  // namespace overtake
