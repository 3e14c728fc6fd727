#include "kernels/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace overtake::kernels {

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine = [] {
    // Debian 12's oneDNN (2.6.3) ends in an illegal instruction in bfloat16 convolutions for AMX: it runs a tile
    // instruction on tiles that it has not configured. Whoever has a better one can allow AMX by oneDNN's own variable.
    if (std::getenv("ONEDNN_MAX_CPU_ISA") == nullptr) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

void require_one_openmp_thread() {
  OVERTAKE_CHECK(omp_get_max_threads() == 1, "oneDNN primitive made on a thread with {} OpenMP threads",
                 omp_get_max_threads());
}

dnnl::memory::data_type onednn_type(bool bf16) {
  return bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc to_onednn(const Layout& layout, std::span<const std::int64_t> dims, bool bf16) {
  const auto padded = padded_dims(layout, dims);
  dnnl_memory_desc_t desc{};
  desc.ndims = layout.rank;
  desc.data_type = dnnl::memory::convert_to_c(onednn_type(bf16));
  desc.format_kind = dnnl_blocked;
  auto& blocking = desc.format_desc.blocking;
  blocking.inner_nblks = layout.blocks;

  std::array<std::int64_t, kMaxLayoutRank> outer = padded;  // in whole blocks
  std::int64_t stride = 1;
  for (std::size_t b = 0; b < layout.blocks; ++b) {
    blocking.inner_blks[b] = layout.block_size[b];
    blocking.inner_idxs[b] = layout.block_dim[b];
    outer[layout.block_dim[b]] /= layout.block_size[b];
    stride *= layout.block_size[b];
  }
  for (std::size_t i = layout.rank; i-- > 0;) {
    const std::size_t d = layout.order[i];
    blocking.strides[d] = stride;
    stride *= outer[d];
  }
  for (std::size_t d = 0; d < layout.rank; ++d) {
    desc.dims[d] = dims[d];
    desc.padded_dims[d] = padded[d];
  }
  return dnnl::memory::desc(desc);
}

Layout from_onednn(const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  const auto& blocking = data.format_desc.blocking;
  OVERTAKE_CHECK(data.format_kind == dnnl_blocked && data.ndims <= kMaxLayoutRank && blocking.inner_nblks <= 3 &&
                     data.extra.flags == 0,
                 "oneDNN chose a layout that Layout cannot express ({} dimensions, {} inner blocks)", data.ndims,
                 blocking.inner_nblks);
  Layout layout = plain_layout(data.ndims);
  layout.blocks = static_cast<std::uint8_t>(blocking.inner_nblks);
  for (std::size_t b = 0; b < layout.blocks; ++b) {
    layout.block_dim[b] = static_cast<std::uint8_t>(blocking.inner_idxs[b]);
    layout.block_size[b] = static_cast<std::uint16_t>(blocking.inner_blks[b]);
  }
  // Of dimensions with equal strides at most one has more than one outer block, so their order does not matter.
  std::stable_sort(layout.order.begin(), layout.order.begin() + layout.rank,
                   [&](std::uint8_t a, std::uint8_t b) { return blocking.strides[a] > blocking.strides[b]; });
  return canonical_layout(layout, std::vector<std::int64_t>(data.dims, data.dims + data.ndims));
}

void OneDnnPrimitive::run(std::initializer_list<Argument> arguments, void* scratch) const {
  const dnnl::engine& engine = onednn_engine();
  std::unordered_map<int, dnnl::memory> bound;
  for (const Argument& argument : arguments) {
    bound.emplace(argument.id, dnnl::memory(argument.desc, engine, const_cast<void*>(argument.data)));
  }
  if (scratch_bytes() > 0) bound.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratch_, engine, scratch));
  dnnl::stream stream(engine);
  primitive_.execute(stream, bound);
  stream.wait();
}

dnnl::primitive_attr caller_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

}  // namespace overtake::kernels
