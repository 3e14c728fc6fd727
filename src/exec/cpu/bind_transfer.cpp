// Transfers between devices that are all in this process: copies, and sums in the order of members.

#include <cstring>

#include "exec/cpu/bindings.h"
#include "exec/transfer_view.h"
#include "kernels/cpu/binary.h"
#include "kernels/cpu/block.h"

namespace overtake {
namespace {

constexpr std::int64_t kCopiedBytes = 1 << 16;  // by one unit

Phase copy(const TaskView& v, const CopiedPiece& piece) {
  const std::byte* from = v.in<std::byte>(piece.read) + piece.from_byte;
  std::byte* to = v.out<std::byte>(piece.write) + piece.to_byte;
  const std::int64_t bytes = piece.bytes, units = (bytes + kCopiedBytes - 1) / kCopiedBytes;
  return over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin * kCopiedBytes, from + begin * kCopiedBytes,
                static_cast<std::size_t>(std::min(bytes, end * kCopiedBytes) - begin * kCopiedBytes));
  });
}

Phase sum(const TaskView& v, const SummedPiece& piece) {
  const std::int64_t count = piece.count, blocks = kernels::blocks_of(count);
  return with_type(v.write(piece.write).dtype, [&]<class T>(T) -> Phase {
    std::vector<const T*> in;
    for (const std::size_t read : piece.reads) in.push_back(v.in<T>(read) + piece.first);
    T* out = v.out<T>(piece.write);
    return over_units(parts_for(v, blocks), blocks,
                      [=](std::int64_t begin, std::int64_t end) { kernels::sum_n<T>(in, out, count, begin, end); });
  });
}

BoundTask transfer(const TaskView& v) {
  BoundTask task;
  if (v.kind() == Kind::send) return task;  // the receiver copies
  if (v.kind() == Kind::recv || v.kind() == Kind::all_gather) {
    for (const CopiedPiece& piece : copied_pieces(v))
      if (piece.bytes > 0) task.push_back(copy(v, piece));
    return task;
  }
  for (const SummedPiece& piece : summed_pieces(v))
    if (piece.count > 0) task.push_back(sum(v, piece));
  return task;
}

}  // namespace

CpuBinding bind_transfer() { return {transfer, nullptr}; }

}  // namespace overtake
