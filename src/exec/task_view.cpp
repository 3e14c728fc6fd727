#include "exec/task_view.h"

namespace overtake {

bool has_mixed_types(const TaskView& v) {
  const DType result = v.write(0).dtype;
  for (std::size_t i = 0; i < v.reads(); ++i) {
    if (v.read(i).dtype == result) continue;
    OVERTAKE_CHECK(v.reads() == 2 && v.read(1).dtype == DType::bf16, "a sum of {} operands, of {}, {} and other types",
                   v.reads(), to_string(v.read(0).dtype), to_string(result));
    return true;
  }
  return false;
}

std::vector<std::int64_t> physical_dims(const Buffer& b) {
  OVERTAKE_CHECK(b.layout.blocks == 0, "a blocked layout has no simple order of dimensions");
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < b.shape.rank; ++i) dims.push_back(b.shape[b.layout.order[i]]);
  return dims;
}

std::size_t physical_axis(const Buffer& b, std::int64_t axis) {
  for (std::size_t i = 0; i < b.shape.rank; ++i)
    if (b.layout.order[i] == axis) return i;
  OVERTAKE_CHECK(false, "axis {} of a buffer {}", axis, to_string(b.shape));
}

}  // namespace overtake
