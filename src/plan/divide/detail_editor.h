#pragma once
// Adds tasks and collectives to a plan that has all devices in one.

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "overtake/target.h"
#include "plan/divide/detail.h"

namespace overtake {

class DetailEditor {
 public:
  // Keeps both.
  DetailEditor(Detail& plan, const Target& target);

  Graph& graph() { return plan_.plan.graph; }
  std::uint32_t devices() const { return devices_; }
  // The tasks that a device computes, in their order.
  std::vector<TaskId>& lane(std::uint32_t device);

  // Numbers that are kept as bytes: doubles.
  BufferId add_doubles(std::string_view name, std::uint32_t device, std::int64_t count, Role role);
  BufferId add_like(BufferId other);
  // With the scratch it needs; it is on no lane yet.
  TaskId add_task(std::uint32_t device, std::uint32_t micro_batch, Kind kind, Op op, LayerId layer, const Attrs& attrs,
                  const std::vector<BufferId>& reads, const std::vector<BufferId>& writes);

  // Of the member devices, each with equally many operands. Whoever reads the results waits for them: on each device,
  // collectives start in the order in which they are added, on a lane of their own.
  void add_all_reduce(const std::vector<std::uint32_t>& members, LayerId layer, std::uint32_t micro_batch,
                      const std::vector<std::vector<BufferId>>& operands,
                      const std::vector<std::vector<BufferId>>& sums);
  // parts: equally many bytes of each member. What each has in the end: all of them, one after the other.
  std::vector<BufferId> add_all_gather(const std::vector<std::uint32_t>& members, LayerId layer,
                                       std::uint32_t micro_batch, const std::vector<BufferId>& parts);

 private:
  void add_collective(Kind kind, const std::vector<std::uint32_t>& members, LayerId layer, std::uint32_t micro_batch,
                      const std::vector<std::vector<BufferId>>& operands,
                      const std::vector<std::vector<BufferId>>& results);

  Detail& plan_;
  const Target& target_;
  std::uint32_t devices_ = 0;
  std::int64_t collectives_ = 0;
  std::map<std::uint32_t, std::size_t> transfers_;  // by device: the lane of those added here
};

}  // namespace overtake
