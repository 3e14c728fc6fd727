#include "comm/group.h"

#include <algorithm>

namespace overtake {

const char* to_string(TransferKind kind) {
  switch (kind) {
    case TransferKind::all_reduce:
      return "all_reduce";
    case TransferKind::reduce_scatter:
      return "reduce_scatter";
    case TransferKind::all_gather:
      return "all_gather";
    case TransferKind::broadcast:
      return "broadcast";
    case TransferKind::send:
      return "send";
    case TransferKind::recv:
      return "recv";
    case TransferKind::barrier:
      return "barrier";
  }
  return "unknown";
}

PartRange part_of(std::size_t count, int parts, int index) {
  const auto n = static_cast<std::size_t>(parts), i = static_cast<std::size_t>(index);
  const std::size_t even = count / n, longer = count % n;
  const std::size_t begin = i * even + std::min(i, longer);
  return {begin, begin + even + (i < longer ? 1 : 0)};
}

}  // namespace overtake
