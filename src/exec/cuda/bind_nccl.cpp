// Transfers of a plan that is one rank's part: NCCL's calls, all of a task at once.

#include <algorithm>

#include "comm/nccl/nccl_group.h"
#include "exec/cuda/bindings.h"
#include "exec/transfer_calls.h"

namespace overtake::cuda_bindings {
namespace {

using What = NcclCall::What;

// Parts may differ by one element, and then every part is summed, or handed round, for itself.
void add_parts(const TransferCall& call, const MovedBuffer& m, std::byte* whole, std::byte* part, int own, int members,
               std::vector<NcclCall>& calls) {
  const bool is_sum = call.kind == Kind::reduce_scatter;
  const auto count = static_cast<std::size_t>(m.count), size = static_cast<std::size_t>(bytes_of(m.dtype)),
             n = static_cast<std::size_t>(members);
  if (count % n == 0) {
    calls.push_back({.what = is_sum ? What::reduce_scatter : What::all_gather,
                     .from = is_sum ? whole : part,
                     .to = is_sum ? part : whole,
                     .count = count / n,
                     .dtype = m.dtype});
    return;
  }
  for (int member = 0; member < members; ++member) {
    const PartRange range = part_of(count, members, member);
    std::byte* const in_whole = whole + range.begin * size;
    if (range.begin == range.end) continue;
    calls.push_back({.what = is_sum ? What::reduce : What::broadcast,
                     .from = is_sum || member != own ? in_whole : part,
                     .to = is_sum && member == own ? part : in_whole,
                     .count = range.end - range.begin,
                     .dtype = m.dtype,
                     .peer = member});
  }
}

}  // namespace

Launch rank_transfer(const TaskView& v, BoundPlanData& program) {
  const GpuRanks& ranks = program.device().ranks();
  const TransferCall call = transfer_call(v.graph(), v.task(), ranks.own_rank());
  OVERTAKE_CHECK(v.attrs().has("turn"), "{} {} has no turn", to_string(call.kind), call.number);
  // It is connected later, before the first step.
  const std::vector<std::int64_t>& members = call.channel.devices;
  const auto size = static_cast<int>(members.size());
  const auto own = static_cast<int>(std::ranges::find(members, ranks.own_rank()) - members.begin());
  const int receiver = 1, sender = 0;  // of a channel of messages
  std::vector<NcclCall> calls;
  for (std::size_t i = 0; i < call.moved.size(); ++i) {
    const MovedBuffer& m = call.moved[i];
    if (m.count == 0) continue;
    const auto count = static_cast<std::size_t>(m.count);
    std::byte* const data = v.address(m.buffer);
    switch (call.kind) {
      case Kind::send:
        calls.push_back(
            {.what = What::send, .from = data, .to = nullptr, .count = count, .dtype = m.dtype, .peer = receiver});
        break;
      case Kind::recv:
        calls.push_back(
            {.what = What::recv, .from = nullptr, .to = data, .count = count, .dtype = m.dtype, .peer = sender});
        break;
      case Kind::all_reduce:
        calls.push_back(
            {.what = What::all_reduce, .from = v.in<std::byte>(i), .to = data, .count = count, .dtype = m.dtype});
        break;
      case Kind::reduce_scatter:
        add_parts(call, m, data, v.out<std::byte>(i), own, size, calls);
        break;
      default:
        OVERTAKE_CHECK(call.kind == Kind::all_gather, "{} is no transfer", to_string(call.kind));
        add_parts(call, m, data, const_cast<std::byte*>(v.in<std::byte>(i)), own, size, calls);
    }
  }
  if (calls.empty()) return {};
  return [&ranks, channel = call.channel, calls](cudaStream_t stream) { ranks.group(channel).enqueue(stream, calls); };
}

}  // namespace overtake::cuda_bindings
