#include "kernels/cuda/reorder.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/move.h"
#include "kernels/cuda/permute.cuh"

namespace overtake::cuda {

template <class From, class To>
void reorder(cudaStream_t stream, const From* from, const Layout& from_layout, To* to, const Layout& to_layout,
             std::span<const std::int64_t> dims) {
  const bool unblocked = from_layout.blocks == 0 && to_layout.blocks == 0;
  access::require(unblocked && from_layout.rank == to_layout.rank, "reorder: blocked layouts, or of different rank");
  const std::size_t rank = from_layout.rank;
  std::array<std::int64_t, kMaxLayoutRank> from_dims{};  // in the order of memory
  std::array<int, kMaxLayoutRank> permutation{};         // dim i of `to`'s memory is dim permutation[i] of `from`'s
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    from_dims[d] = dims[from_layout.order[d]];
    elements *= from_dims[d];
    const auto* begin = from_layout.order.begin();
    permutation[d] = static_cast<int>(std::find(begin, begin + rank, to_layout.order[d]) - begin);
  }
  if (from_layout == to_layout) {
    cast(stream, from, to, elements);
    return;
  }
  const kernels::PermutePlan plan =
      kernels::make_permute_plan(std::span(from_dims).first(rank), std::span(permutation).first(rank));
  access::launch_permute(stream, "reorder", plan, from, to);
}

template void reorder(cudaStream_t, const float*, const Layout&, float*, const Layout&, std::span<const std::int64_t>);
template void reorder(cudaStream_t, const float*, const Layout&, bf16*, const Layout&, std::span<const std::int64_t>);
template void reorder(cudaStream_t, const bf16*, const Layout&, float*, const Layout&, std::span<const std::int64_t>);
template void reorder(cudaStream_t, const bf16*, const Layout&, bf16*, const Layout&, std::span<const std::int64_t>);

}  // namespace overtake::cuda
