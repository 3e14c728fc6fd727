// Transfers between devices that are all in this process: copies, and sums in the order of members.

#include <cstring>

#include "comm/group.h"
#include "exec/cpu/bindings.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/binary.h"

namespace overtake {
namespace {

constexpr std::int64_t kCopiedBytes = 1 << 16;  // by one unit

Phase copy(const TaskView& v, const std::byte* from, std::byte* to, std::int64_t bytes) {
  const std::int64_t units = (bytes + kCopiedBytes - 1) / kCopiedBytes;
  return over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin * kCopiedBytes, from + begin * kCopiedBytes,
                static_cast<std::size_t>(std::min(bytes, end * kCopiedBytes) - begin * kCopiedBytes));
  });
}

// Elements [first, first + count) of the sum of a buffer over all members.
Phase sum_of(const TaskView& v, std::size_t i, std::size_t members, std::size_t first, std::size_t elements) {
  const auto count = static_cast<std::int64_t>(elements);
  const std::int64_t blocks = kernels::blocks_of(count);
  return with_type(v.read(i).dtype, [&]<class T>(T) -> Phase {
    std::vector<const T*> in;
    for (std::size_t m = 0; m < members; ++m) in.push_back(v.in<T>(m * v.writes() + i) + first);
    T* out = v.out<T>(i);
    return over_units(parts_for(v, blocks), blocks,
                      [=](std::int64_t begin, std::int64_t end) { kernels::sum_n<T>(in, out, count, begin, end); });
  });
}

std::size_t elements_of(const Buffer& b) { return static_cast<std::size_t>(padded_elements(b.layout, b.shape.span())); }

BoundTask transfer(const TaskView& v) {
  BoundTask task;
  if (v.kind() == Kind::send) return task;  // the receiver copies
  if (v.kind() == Kind::recv) {
    for (std::size_t i = 0; i < v.writes(); ++i) {
      const auto bytes = static_cast<std::int64_t>(elements_of(v.write(i))) * bytes_of(v.write(i).dtype);
      if (bytes > 0) task.push_back(copy(v, v.in<std::byte>(i + 1), v.out<std::byte>(i), bytes));
    }
    return task;
  }
  const auto members = static_cast<int>(v.attrs().integers("members").size());
  const auto index = static_cast<int>(v.attrs().integer("index"));
  for (std::size_t i = 0; i < v.writes(); ++i) {
    if (v.kind() == Kind::all_gather) {
      const std::size_t whole = elements_of(v.write(i));
      const std::int64_t size = bytes_of(v.write(i).dtype);
      for (int m = 0; m < members; ++m) {
        const PartRange part = part_of(whole, members, m);
        const auto bytes = static_cast<std::int64_t>(part.end - part.begin) * size;
        std::byte* const to = v.out<std::byte>(i) + static_cast<std::int64_t>(part.begin) * size;
        if (bytes > 0)
          task.push_back(copy(v, v.in<std::byte>(static_cast<std::size_t>(m) * v.writes() + i), to, bytes));
      }
      continue;
    }
    const std::size_t whole = elements_of(v.read(i));
    const PartRange part = v.kind() == Kind::all_reduce ? PartRange{0, whole} : part_of(whole, members, index);
    if (part.end > part.begin)
      task.push_back(sum_of(v, i, static_cast<std::size_t>(members), part.begin, part.end - part.begin));
  }
  return task;
}

}  // namespace

CpuBinding bind_transfer() { return {transfer, nullptr}; }

}  // namespace overtake
