// Concat, slice, reshape, transpose, reorder, embedding.

#include <algorithm>

#include "exec/cuda/bindings.h"
#include "exec/task_shapes.h"
#include "graph/place.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/move.h"
#include "kernels/cuda/reorder.h"

namespace overtake::cuda_bindings {
namespace {

// What a concat or its gradient still has to move: parts that lie in place, or that nobody wants, are null.
template <class T>
struct ConcatMoves {
  explicit ConcatMoves(const TaskView& v) {
    const BufferId id = concat_whole(v.graph(), v.task());
    const Buffer& buffer = v.graph().buffers[id];
    const std::vector<ConcatPart> all = concat_parts(v.graph(), v.task());
    view = along(buffer, v.attrs().integer("axis"));
    whole = reinterpret_cast<T*>(v.address(id));
    pitches.whole = buffer.layout.pitch;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_moved = all[i].buffer != kNone && !lies_in_place(v.graph(), v.task(), all[i]);
      parts.push_back(is_moved ? reinterpret_cast<T*>(v.address(all[i].buffer)) : nullptr);
      extents.push_back((i + 1 < all.size() ? all[i + 1].first : view.axis) - all[i].first);
      pitches.parts.push_back(is_moved ? v.graph().buffers[all[i].buffer].layout.pitch : 0);
    }
  }

  AxisView view;
  T* whole = nullptr;
  std::vector<T*> parts;
  std::vector<std::int64_t> extents;
  cuda::ConcatPitches pitches;
};

Launch bind_concat(const TaskView& v, BoundPlanData&) {
  const bool is_forward = v.kind() == Kind::forward;
  return with_movable_type((is_forward ? v.write(0) : v.read(0)).dtype, [&]<class T>(T) -> Launch {
    const ConcatMoves<T> m(v);
    if (std::ranges::all_of(m.parts, [](const T* part) { return part == nullptr; })) return {};
    if (is_forward)
      return [m, from = std::vector<const T*>(m.parts.begin(), m.parts.end())](cudaStream_t s) {
        cuda::concat<T>(s, from, m.extents, m.view.inner, m.whole, m.view.outer, m.pitches);
      };
    return
        [m](cudaStream_t s) { cuda::split<T>(s, m.whole, m.parts, m.extents, m.view.inner, m.view.outer, m.pitches); };
  });
}

Launch bind_slice(const TaskView& v, BoundPlanData&) {
  const bool is_forward = v.kind() == Kind::forward;
  const std::int64_t axis = v.attrs().integer("axis"), from = v.attrs().integer("begin");
  const AxisView whole = along(is_forward ? v.read(0) : v.write(0), axis);
  const std::int64_t extent = along(is_forward ? v.write(0) : v.read(0), axis).axis;
  if (is_forward)
    return with_movable_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
      const T* x = v.in<T>(0);
      T* y = v.out<T>(0);
      return [=](cudaStream_t s) { cuda::slice(s, x, y, whole.axis, from, extent, whole.inner, whole.outer); };
    });
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* dy = v.in<T>(0);
    T* dx = v.out<T>(0);
    return [=](cudaStream_t s) { cuda::slice_backward(s, dy, dx, whole.axis, from, extent, whole.inner, whole.outer); };
  });
}

// Nearly always a view: the planner puts both on the same bytes, and there is nothing to do.
Launch same_bytes(const TaskView& v) {
  const std::byte* x = v.in<std::byte>(0);
  std::byte* y = v.out<std::byte>(0);
  if (x == y) return {};
  const std::int64_t bytes = v.write(0).shape.elements() * bytes_of(v.write(0).dtype);
  return [=](cudaStream_t s) { cuda::copy(s, x, y, bytes); };
}

Launch bind_reshape(const TaskView& v, BoundPlanData&) { return same_bytes(v); }
Launch bind_stop_gradient(const TaskView& v, BoundPlanData&) { return same_bytes(v); }

Launch bind_transpose(const TaskView& v, BoundPlanData&) {
  return with_movable_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    return [=, plan = transpose_plan(v)](cudaStream_t s) { cuda::permute(s, plan, x, y); };
  });
}

// To channels-last with 8 channels, the only blocked layout GPUs have.
Launch bind_padding(const TaskView& v) {
  const Buffer &from = v.read(0), &to = v.write(0);
  const bool is_channels_last = from.layout == channels_last_layout();
  OVERTAKE_CHECK((is_channels_last || is_plain(from.layout)) && to.dtype == DType::bf16, "{}: a reorder from {} to {}",
                 v.graph().layer_name(v.task().layer), to_string(from.layout), to_string(to.layout));
  const std::int64_t images = from.shape[0], channels = from.shape[1], pixels = from.shape[2] * from.shape[3];
  return with_type(from.dtype, [&]<class From>(From) -> Launch {
    const From* x = v.in<From>(0);
    bf16* y = v.out<bf16>(0);
    return [=](cudaStream_t s) { cuda::pad_channels(s, x, is_channels_last, images, channels, pixels, y); };
  });
}

Launch bind_reorder(const TaskView& v, BoundPlanData&) {
  const Buffer from = v.read(0), to = v.write(0);
  if (to.layout.blocks != 0) return bind_padding(v);
  return with_type(from.dtype, [&]<class From>(From) {
    return with_type(to.dtype, [&]<class To>(To) -> Launch {
      const From* x = v.in<From>(0);
      To* y = v.out<To>(0);
      const std::int64_t count = from.shape.elements();
      if (from.layout == to.layout) return [=](cudaStream_t s) { cuda::cast(s, x, y, count); };
      return [=](cudaStream_t s) { cuda::reorder(s, x, from.layout, y, to.layout, from.shape.span()); };
    });
  });
}

Launch embedding_forward(const TaskView& v, BoundPlanData& program) {
  const std::int64_t vocabulary = v.attrs().integer("vocabulary"), width = v.read(1).shape[1],
                     n = v.read(0).shape.elements();
  const auto* tokens = v.in<std::int32_t>(0);
  std::int64_t* bad = program.add_check([vocabulary, layer = v.graph().layer_name(v.task().layer)](std::int64_t at) {
    fail_user("layer '{}': the token id at position {} is outside the vocabulary of {}; check the data", layer, at,
              vocabulary);
  });
  const auto bound = [&]<class W, class T>(W, T) -> Launch {
    const W* table = v.in<W>(1);
    T* y = v.out<T>(0);
    return [=](cudaStream_t s) { cuda::embedding_forward(s, tokens, table, y, vocabulary, width, n, bad); };
  };
  if (v.read(1).dtype == DType::bf16) return bound(bf16{}, bf16{});
  return v.write(0).dtype == DType::bf16 ? bound(0.0f, bf16{}) : bound(0.0f, 0.0f);
}

// Scratch of the gradient: offsets, positions, then what both phases need in turn.
struct EmbeddingScratch {
  explicit EmbeddingScratch(const TaskView& v)
      : vocabulary(v.write(0).shape[0]), width(v.write(0).shape[1]), n(v.read(0).shape.elements()) {
    offsets_bytes = cuda_piece((vocabulary + 1) * 4);
    positions_bytes = cuda_piece(n * 4);
    rest = static_cast<std::int64_t>(
        std::max(cuda::embedding_index_scratch_bytes(n, vocabulary), cuda::embedding_backward_scratch_bytes(n, width)));
  }
  std::int64_t vocabulary, width, n, offsets_bytes, positions_bytes, rest;
};

Launch bind_embedding(const TaskView& v, BoundPlanData& program) {
  if (v.kind() == Kind::forward) return embedding_forward(v, program);
  const EmbeddingScratch e(v);
  const auto* tokens = v.in<std::int32_t>(0);
  const std::int32_t padding = padding_row(v);
  auto* offsets = reinterpret_cast<std::int32_t*>(v.scratch());
  auto* positions = reinterpret_cast<std::int32_t*>(v.scratch() + e.offsets_bytes);
  std::byte* rest = v.scratch() + e.offsets_bytes + e.positions_bytes;
  float* dtable = v.out<float>(0);
  return with_type(v.read(1).dtype, [&]<class T>(T) -> Launch {
    const T* dy = v.in<T>(1);
    return [=](cudaStream_t s) {
      cuda::embedding_index(s, tokens, e.n, e.vocabulary, padding, offsets, positions, rest);
      cuda::embedding_backward(s, offsets, positions, dy, dtable, e.vocabulary, e.width, e.n, rest);
    };
  });
}

std::int64_t embedding_scratch(const TaskView& v, CudaDevice&) {
  if (v.kind() == Kind::forward) return 0;
  const EmbeddingScratch e(v);
  return e.offsets_bytes + e.positions_bytes + e.rest;
}

}  // namespace

CudaBinding concat() { return {bind_concat, nullptr}; }
CudaBinding slice() { return {bind_slice, nullptr}; }
CudaBinding reshape() { return {bind_reshape, nullptr}; }
CudaBinding stop_gradient() { return {bind_stop_gradient, nullptr}; }
CudaBinding transpose() { return {bind_transpose, nullptr}; }
CudaBinding reorder() { return {bind_reorder, nullptr}; }
CudaBinding embedding() { return {bind_embedding, embedding_scratch}; }

}  // namespace overtake::cuda_bindings
