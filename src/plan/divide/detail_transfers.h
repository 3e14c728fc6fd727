#pragma once
// The transfers of a task-by-task plan: messages and collectives, which read what they need on whatever device it is.

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/divide/detail_step.h"

namespace overtake {

class DetailTransfers {
 public:
  // All must outlive this.
  DetailTransfers(const Graph& step, const Outline& cluster, DetailStep& to);

  // A send comes before its recv.
  void add_send(TaskId t);
  void add_recv(TaskId t);
  void add_collective(TaskId t);

 private:
  struct Message {
    TaskId send = kNone, recv = kNone;
    BufferId token = kNone;
  };

  BufferId add_flat(std::string_view name, std::uint32_t device, std::int64_t elements, DType dtype, Role role);
  const std::vector<TaskId>& members_of(TaskId collective) const;  // by device
  std::vector<BufferId> instances(std::span<const BufferId> of_cluster);
  std::vector<BufferId> parts_of(TaskId member, std::span<const BufferId> of_cluster);
  AttrsId message_attrs(TaskId sender, std::uint32_t peer);

  const Graph& step_;
  const Graph& in_;  // the cluster's
  DetailStep& to_;
  std::map<BufferId, Message> messages_;  // by the cluster's buffer
  std::map<std::pair<Kind, std::int64_t>, std::vector<TaskId>> collectives_;
  std::map<std::pair<BufferId, BufferId>, BufferId> parts_;
};

}  // namespace overtake
