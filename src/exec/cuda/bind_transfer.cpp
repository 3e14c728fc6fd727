// Transfers between the devices of a plan that has all of them in one: copies and sums in the memory of one GPU, which
// take as long as its virtual links say.

#include "exec/cuda/bindings.h"
#include "exec/transfer_view.h"
#include "kernels/cuda/move.h"
#include "kernels/cuda/transfer.h"

namespace overtake::cuda_bindings {
namespace {

Launch copies(const TaskView& v, BoundPlanData& program, std::int64_t ns) {
  std::vector<cuda::Copied> moved;
  std::int64_t touched = 0;
  for (const CopiedPiece& p : copied_pieces(v)) {
    if (p.bytes > 0)
      moved.push_back({v.in<std::byte>(p.read) + p.from_byte, v.out<std::byte>(p.write) + p.to_byte, p.bytes});
    touched += 2 * p.bytes;
  }
  if (ns == 0)
    return [moved](cudaStream_t s) {
      for (const cuda::Copied& c : moved) cuda::copy(s, c.from, c.to, c.bytes);
    };
  const std::vector<cuda::CopiedTile> tiles = cuda::cut_copies(moved);
  const cuda::Pace pace = cuda::make_pace(ns, touched, program.device().multiprocessors());
  return [=, table = program.upload(std::span(tiles)), count = std::ssize(tiles)](cudaStream_t s) {
    cuda::paced_copy(s, table, count, pace);
  };
}

Launch sums(const TaskView& v, BoundPlanData& program, std::int64_t ns) {
  std::vector<cuda::Summed> all;
  std::int64_t touched = 0;
  for (const SummedPiece& p : summed_pieces(v)) {
    const DType dtype = v.write(p.write).dtype;
    OVERTAKE_CHECK(dtype == DType::f32 || dtype == DType::bf16, "no sums of elements of type {}", to_string(dtype));
    const std::int64_t size = bytes_of(dtype);
    cuda::Summed sum{.from = {}, .to = v.out<std::byte>(p.write), .count = p.count, .is_bf16 = dtype == DType::bf16};
    for (const std::size_t read : p.reads) sum.from.push_back(v.in<std::byte>(read) + p.first * size);
    touched += p.count * size * (std::ssize(p.reads) + 1);
    all.push_back(std::move(sum));
  }
  const cuda::SumTables tables = cuda::cut_sums(all);
  const cuda::Pace pace = cuda::make_pace(ns, touched, program.device().multiprocessors());
  return [=, tiles = program.upload(std::span(tables.tiles)), sources = program.upload(std::span(tables.sources)),
          count = std::ssize(tables.tiles),
          members = tables.members](cudaStream_t s) { cuda::paced_sum(s, tiles, count, sources, members, pace); };
}

Launch bind(const TaskView& v, BoundPlanData& program) {
  if (program.device().ranks().are_there()) return rank_transfer(v, program);
  if (v.kind() == Kind::send) return {};
  const std::int64_t members = v.kind() == Kind::recv ? 2 : members_of(v.task());
  const std::int64_t ns = transfer_ns(program.device().virtual_link(), v.kind(), transferred_bytes(v), members);
  if (v.kind() == Kind::recv || v.kind() == Kind::all_gather) return copies(v, program, ns);
  return sums(v, program, ns);
}

}  // namespace

CudaBinding transfer() { return {.bind = bind}; }

}  // namespace overtake::cuda_bindings
