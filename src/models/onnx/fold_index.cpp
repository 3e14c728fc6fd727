// Ops that find or place elements by indices given as a tensor.

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

using Kind = Constant::Kind;

const Constant& indices_of(const FoldCall& call) {
  const Constant& indices = call.input(1);
  if (indices.kind != Kind::integer) call.fail("its indices are {}", kind_name(indices.kind));
  return indices;
}

// An index that may count from the end, in range.
std::int64_t place_of(const FoldCall& call, std::int64_t index, std::int64_t dim) {
  if (index < -dim || index >= dim) call.fail("index {} of {} elements", index, dim);
  return index < 0 ? index + dim : index;
}

std::int64_t product(std::span<const std::int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// data [a, b, c], indices [i, j], axis 1 -> [a, i, j, c]
std::vector<Constant> fold_gather(const FoldCall& call) {
  const Constant &data = call.input(0), &indices = indices_of(call);
  const std::size_t axis = call.axis(call.node.integer("axis", 0), data.dims.size());
  const std::int64_t dim = data.dims[axis];
  Dims dims(data.dims.begin(), data.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), data.dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, data.dims.end());
  Constant result = call.make(data.kind, std::move(dims));
  for (const std::int64_t index : indices.integers) place_of(call, index, dim);

  const auto inner = static_cast<std::size_t>(product(std::span(data.dims).subspan(axis + 1)));
  const std::size_t row = inner * static_cast<std::size_t>(dim), count = indices.integers.size();
  gather_values(result, data, [&](std::size_t i) {
    const std::int64_t place = place_of(call, indices.integers[i / inner % count], dim);
    return i / inner / count * row + static_cast<std::size_t>(place) * inner + i % inner;
  });
  return only(std::move(result));
}

// Where the elements lie that `indices` name along `axis`, one after another: a walk in `data`, without the axis.
class AxisPlaces {
 public:
  AxisPlaces(const FoldCall& call, const Constant& data, const Constant& indices)
      : call_(call), indices_(indices), walk_({}, {}) {
    const std::size_t axis = call.axis(call.node.integer("axis", 0), data.dims.size());
    if (indices.dims.size() != data.dims.size()) {
      call.fail("indices of shape {} for data of shape {}", shape_text(indices.dims), shape_text(data.dims));
    }
    for (std::size_t d = 0; d < data.dims.size(); ++d) {
      if (d != axis && indices.dims[d] > data.dims[d]) {
        call.fail("indices of shape {} for data of shape {}", shape_text(indices.dims), shape_text(data.dims));
      }
    }
    Dims strides = strides_of(data.dims);
    dim_ = data.dims[axis];
    stride_ = std::exchange(strides[axis], 0);
    walk_ = Walk(indices.dims, std::move(strides));
  }

  // Of the i-th index; to be asked for in order.
  std::size_t next(std::size_t i) {
    const std::int64_t place = place_of(call_, indices_.integers[i], dim_);
    const std::size_t at = walk_.at() + static_cast<std::size_t>(place * stride_);
    walk_.next();
    return at;
  }

 private:
  const FoldCall& call_;
  const Constant& indices_;
  std::int64_t dim_ = 0, stride_ = 0;
  Walk walk_;
};

std::vector<Constant> fold_gather_elements(const FoldCall& call) {
  const Constant &data = call.input(0), &indices = indices_of(call);
  AxisPlaces places(call, data, indices);
  Constant result = call.make(data.kind, indices.dims);
  gather_values(result, data, [&](std::size_t i) { return places.next(i); });
  return only(std::move(result));
}

void check_no_reduction(const FoldCall& call) {
  if (call.node.text("reduction", "none") != "none") call.fail("a reduction is not computed while reading");
}

std::vector<Constant> fold_scatter_elements(const FoldCall& call) {
  check_no_reduction(call);
  const Constant &data = call.input(0), &indices = indices_of(call), &updates = call.input(2);
  if (updates.dims != indices.dims || updates.kind != data.kind) {
    call.fail("updates of shape {} for indices of shape {}", shape_text(updates.dims), shape_text(indices.dims));
  }
  AxisPlaces places(call, data, indices);
  Constant result = call.with_dims(data, data.dims);
  with_values(result, updates, [&](auto& results, const auto& values) {
    for (std::size_t i = 0; i < values.size(); ++i) results[places.next(i)] = values[i];
  });
  return only(std::move(result));
}

// Slices of `data` that the last dimension of `indices` names, `batch` leading dimensions aside.
// data [n, a, b, c], indices [n, i, 2], batch 1 -> slices of c elements, [n, i] of them.
struct Slices {
  std::size_t count = 0, size = 0;
  Dims inner_dims = {};  // of one slice
  std::vector<std::size_t> starts = {};
};

Slices slices_of(const FoldCall& call, const Constant& data, const Constant& indices, std::size_t batch) {
  if (indices.dims.empty() || batch >= indices.dims.size() || batch > data.dims.size()) {
    call.fail("indices of shape {} for data of shape {}", shape_text(indices.dims), shape_text(data.dims));
  }
  const std::int64_t depth = indices.dims.back();
  const std::span<const std::int64_t> rest = std::span(data.dims).subspan(batch);
  const bool fits = depth <= std::ssize(rest) && std::equal(rest.data() - batch, rest.data(), indices.dims.begin());
  if (!fits) call.fail("indices of shape {} for data of shape {}", shape_text(indices.dims), shape_text(data.dims));

  Slices slices;
  slices.inner_dims.assign(rest.begin() + depth, rest.end());
  slices.size = static_cast<std::size_t>(product(slices.inner_dims));
  slices.count = static_cast<std::size_t>(product(std::span(indices.dims).first(indices.dims.size() - 1)));
  const auto per_batch =
      static_cast<std::size_t>(product(std::span(indices.dims).subspan(batch, indices.dims.size() - 1 - batch)));
  call.pay(static_cast<std::int64_t>(slices.count));
  const Dims strides = strides_of(rest);
  const auto batch_stride = static_cast<std::size_t>(product(rest));
  slices.starts.reserve(slices.count);
  for (std::size_t i = 0; i < slices.count; ++i) {
    std::size_t start = i / per_batch * batch_stride;
    for (std::size_t d = 0; d < static_cast<std::size_t>(depth); ++d) {
      const std::int64_t index = indices.integers[i * static_cast<std::size_t>(depth) + d];
      start += static_cast<std::size_t>(place_of(call, index, rest[d]) * strides[d]);
    }
    slices.starts.push_back(start);
  }
  return slices;
}

// The dimensions of all slices together.
Dims joined_dims(const Constant& indices, const Slices& slices) {
  Dims dims(indices.dims.begin(), indices.dims.end() - 1);
  dims.insert(dims.end(), slices.inner_dims.begin(), slices.inner_dims.end());
  return dims;
}

std::vector<Constant> fold_gather_nd(const FoldCall& call) {
  const Constant &data = call.input(0), &indices = indices_of(call);
  const std::int64_t batch = call.node.integer("batch_dims", 0);
  if (batch < 0) call.fail("batch_dims is {}", batch);
  const Slices slices = slices_of(call, data, indices, static_cast<std::size_t>(batch));
  Constant result = call.make(data.kind, joined_dims(indices, slices));
  gather_values(result, data, [&](std::size_t i) { return slices.starts[i / slices.size] + i % slices.size; });
  return only(std::move(result));
}

std::vector<Constant> fold_scatter_nd(const FoldCall& call) {
  check_no_reduction(call);
  const Constant &data = call.input(0), &indices = indices_of(call), &updates = call.input(2);
  const Slices slices = slices_of(call, data, indices, 0);
  if (updates.kind != data.kind || updates.dims != joined_dims(indices, slices)) {
    call.fail("updates of shape {} for indices of shape {} and data of shape {}", shape_text(updates.dims),
              shape_text(indices.dims), shape_text(data.dims));
  }
  Constant result = call.with_dims(data, data.dims);
  with_values(result, updates, [&](auto& results, const auto& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      results[slices.starts[i / slices.size] + i % slices.size] = values[i];
  });
  return only(std::move(result));
}

constexpr FoldRow kIndexingFolds[] = {
    {"Gather", fold_gather},        {"GatherElements", fold_gather_elements},
    {"GatherND", fold_gather_nd},   {"ScatterElements", fold_scatter_elements},
    {"ScatterND", fold_scatter_nd},
};

}  // namespace

std::span<const FoldRow> indexing_folds() { return kIndexingFolds; }

}  // namespace overtake::onnx
