#pragma once
// Tensors whose values are known while a model is read, and what can be computed with them: shapes, masks, positions.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/onnx/proto.h"

namespace overtake::onnx {

struct Constant {
  enum class Kind : std::uint8_t { real, integer, boolean };
  Kind kind = Kind::integer;
  std::vector<std::int64_t> dims = {};      // empty: one number
  std::vector<double> reals = {};           // kind real: one per element, row-major
  std::vector<std::int64_t> integers = {};  // otherwise; booleans are 0 and 1

  std::int64_t elements() const;
  double real_at(std::size_t i) const { return kind == Kind::real ? reals[i] : static_cast<double>(integers[i]); }
};

Constant integer_constant(std::vector<std::int64_t> values);  // one dimension
Constant scalar_constant(std::int64_t value);

// How many elements all constants of a file together may have, so that a small file cannot ask for much memory: four
// per byte of the file, and `base`, which is room for the masks of long sequences.
class Budget {
 public:
  static constexpr std::int64_t kBase = std::int64_t{1} << 26;
  explicit Budget(std::int64_t file_bytes, std::int64_t base = kBase) : left_(base + 4 * file_bytes) {}
  // A user error that names `where` when nothing is left.
  void take(std::int64_t elements, const std::string& where);

 private:
  std::int64_t left_;
};

// The values of a tensor of the file. A user error for text.
Constant read_constant(const Tensor& tensor, Budget& budget, const std::string& where);

// Whether fold() knows the op (it does not look at the attributes).
bool is_foldable(const Node& node);

// The results of a node whose inputs are all known (null where absent). Broadcasting, negative axes and defaults are as
// ONNX says for opsets 13 to 20, whether axes come as attribute or as input. A user error that names the node for
// inputs that do not fit, an integer division by zero, indices out of range, or a budget overrun.
std::vector<Constant> fold(const Node& node, std::span<const Constant* const> inputs, std::int64_t opset,
                           Budget& budget);

}  // namespace overtake::onnx
