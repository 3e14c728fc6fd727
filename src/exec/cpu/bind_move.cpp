// Concat, slice, reshape, transpose, reorder, embedding.

#include <algorithm>
#include <memory>

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/reorder.h"

namespace overtake {
namespace {

BoundTask concat(const TaskView& v) {
  const std::int64_t axis = v.attrs().integer("axis");
  return with_movable_type((v.kind() == Kind::forward ? v.write(0) : v.read(0)).dtype, [&]<class T>(T) -> BoundTask {
    if (v.kind() == Kind::forward) {
      std::vector<const T*> in;
      std::vector<std::int64_t> extents;
      for (std::size_t i = 0; i < v.reads(); ++i) {
        in.push_back(v.in<T>(i));
        extents.push_back(v.read(i).shape[static_cast<std::size_t>(axis)]);
      }
      const AxisView y = along(v.write(0), axis);
      const std::int64_t units = kernels::row_move_units(y.outer, y.axis * y.inner);
      T* out = v.out<T>(0);
      return {over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
        kernels::concat<T>(in, extents, y.inner, out, begin, end);
      })};
    }
    // The gradient of each input is a slice of dy.
    const AxisView whole = along(v.read(0), axis);
    const T* dy = v.in<T>(0);
    const std::vector<std::int64_t>& extents = v.attrs().integers("extents");
    BoundTask task;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < v.writes(); ++i) {
      if (!v.has_write(i)) {
        offset += extents[i];
        continue;
      }
      const AxisView x = along(v.write(i), axis);
      const std::int64_t units = kernels::row_move_units(x.outer, x.axis * x.inner), from = offset;
      T* dx = v.out<T>(i);
      task.push_back(over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
        kernels::slice(dy, dx, whole.axis, from, x.axis, whole.inner, begin, end);
      }));
      offset += x.axis;
    }
    return task;
  });
}

BoundTask slice(const TaskView& v) {
  const bool is_forward = v.kind() == Kind::forward;
  const std::int64_t axis = v.attrs().integer("axis"), from = v.attrs().integer("begin");
  const AxisView whole = along(is_forward ? v.read(0) : v.write(0), axis);
  const AxisView part = along(is_forward ? v.write(0) : v.read(0), axis);
  const AxisView to = is_forward ? part : whole;
  const std::int64_t units = kernels::row_move_units(to.outer, to.axis * to.inner);
  const std::uint32_t parts = parts_for(v, units);
  if (is_forward)
    return with_movable_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
      const T* x = v.in<T>(0);
      T* y = v.out<T>(0);
      return {over_units(parts, units, [=](std::int64_t begin, std::int64_t end) {
        kernels::slice(x, y, whole.axis, from, part.axis, whole.inner, begin, end);
      })};
    });
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* dy = v.in<T>(0);
    T* dx = v.out<T>(0);
    return {over_units(parts, units, [=](std::int64_t begin, std::int64_t end) {
      kernels::slice_backward(dy, dx, whole.axis, from, part.axis, whole.inner, begin, end);
    })};
  });
}

// Nearly always a view: the planner puts both on the same bytes, and there is nothing to do. Not so where the result is
// kept for the host, or where it is of a weight that is updated while the result may still be read.
BoundTask same_bytes(const TaskView& v) {
  const std::byte* x = v.in<std::byte>(0);
  std::byte* y = v.out<std::byte>(0);
  if (x == y) return {};
  const std::int64_t bytes = v.write(0).shape.elements() * bytes_of(v.write(0).dtype),
                     blocks = kernels::blocks_of(bytes);
  return {over_units(parts_for(v, blocks, 32), blocks, [=](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kernels::kBlock, last = std::min(bytes, end * kernels::kBlock);
    std::copy(x + first, x + last, y + first);
  })};
}

BoundTask transpose(const TaskView& v) {
  const kernels::PermutePlan plan = transpose_plan(v);
  return with_movable_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    return {over_units(parts_for(v, plan.units), plan.units,
                       [=](std::int64_t begin, std::int64_t end) { kernels::permute(plan, x, y, begin, end); })};
  });
}

bool is_between_blocked(const TaskView& v) { return v.read(0).layout.blocks != 0 || v.write(0).layout.blocks != 0; }

kernels::WeightReorder weight_reorder(const TaskView& v) {
  return {v.read(0).layout, v.read(0).dtype == DType::bf16, v.write(0).layout, v.write(0).dtype == DType::bf16,
          v.read(0).shape.span()};
}

BoundTask reorder(const TaskView& v) {
  const Buffer from = v.read(0), to = v.write(0);
  if (is_between_blocked(v)) {
    const auto kernel = std::make_shared<const kernels::WeightReorder>(weight_reorder(v));
    const std::byte* x = v.in<std::byte>(0);
    std::byte *y = v.out<std::byte>(0), *scratch = v.scratch();
    return {{1, [=](std::uint32_t, const StepArgs&) { kernel->run(x, y, scratch); }}};
  }
  return with_type(from.dtype, [&]<class From>(From) {
    return with_type(to.dtype, [&]<class To>(To) -> BoundTask {
      const From* x = v.in<From>(0);
      To* y = v.out<To>(0);
      if (from.layout == to.layout) {
        const std::int64_t count = from.shape.elements(), blocks = kernels::blocks_of(count);
        return {over_units(parts_for(v, blocks, 8), blocks,
                           [=](std::int64_t begin, std::int64_t end) { kernels::cast(x, y, count, begin, end); })};
      }
      const std::int64_t units = kernels::reorder_units(to.layout, from.shape.span());
      return {over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
        kernels::reorder(x, from.layout, y, to.layout, from.shape.span(), begin, end);
      })};
    });
  });
}

std::int64_t reorder_scratch(const TaskView& v) {
  return is_between_blocked(v) ? static_cast<std::int64_t>(weight_reorder(v).scratch_bytes()) : 0;
}

BoundTask embedding_forward(const TaskView& v) {
  const std::int64_t vocabulary = v.attrs().integer("vocabulary"), width = v.read(1).shape[1],
                     n = v.read(0).shape.elements();
  const auto* tokens = v.in<std::int32_t>(0);
  const std::string layer = v.graph().layer_name(v.task().layer);
  const auto bound = [&]<class W, class T>(W, T) -> BoundTask {
    const W* table = v.in<W>(1);
    T* y = v.out<T>(0);
    return {over_units(parts_for(v, n, 64), n, [=](std::int64_t begin, std::int64_t end) {
      const std::int64_t bad = kernels::embedding_forward(tokens, table, y, vocabulary, width, begin, end);
      if (bad >= 0)
        fail_user("layer '{}': token id {} at position {} is outside the vocabulary of {}; check the data", layer,
                  tokens[bad], bad, vocabulary);
    })};
  };
  if (v.read(1).dtype == DType::bf16) return bound(bf16{}, bf16{});
  return v.write(0).dtype == DType::bf16 ? bound(0.0f, bf16{}) : bound(0.0f, 0.0f);
}

BoundTask embedding(const TaskView& v) {
  if (v.kind() == Kind::forward) return embedding_forward(v);
  const std::int64_t vocabulary = v.write(0).shape[0], width = v.write(0).shape[1], n = v.read(0).shape.elements();
  const auto* tokens = v.in<std::int32_t>(0);
  const std::int32_t padding = padding_row(v);
  auto* offsets = reinterpret_cast<std::int32_t*>(v.scratch());
  std::int32_t* positions = offsets + vocabulary + 1;
  float* dtable = v.out<float>(0);
  const std::int64_t units = kernels::embedding_backward_units(vocabulary, width);
  return with_type(v.read(1).dtype, [&]<class T>(T) -> BoundTask {
    const T* dy = v.in<T>(1);
    return {{1, [=](std::uint32_t,
                    const StepArgs&) { kernels::embedding_index(tokens, n, vocabulary, padding, offsets, positions); }},
            over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
              kernels::embedding_backward(offsets, positions, dy, dtable, vocabulary, width, begin, end);
            })};
  });
}

std::int64_t embedding_scratch(const TaskView& v) {
  if (v.kind() == Kind::forward) return 0;
  return (v.write(0).shape[0] + 1 + v.read(0).shape.elements()) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

}  // namespace

CpuBinding bind_concat() { return {concat, nullptr}; }
CpuBinding bind_slice() { return {slice, nullptr}; }
CpuBinding bind_reshape() { return {same_bytes, nullptr}; }
CpuBinding bind_stop_gradient() { return {same_bytes, nullptr}; }
CpuBinding bind_transpose() { return {transpose, nullptr}; }
CpuBinding bind_reorder() { return {reorder, reorder_scratch}; }
CpuBinding bind_embedding() { return {embedding, embedding_scratch}; }

}  // namespace overtake
