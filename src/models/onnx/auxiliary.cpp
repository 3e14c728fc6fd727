// Inputs beside the one that data feed: what users of Hugging Face's models give beside the tokens, as it is when
// nothing is hidden or special. Where positions start is not in the file, so the user may say it.

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/importer.h"

namespace overtake::onnx {
namespace {

enum class Auxiliary : std::uint8_t { none, ones, zeros, positions };

Auxiliary auxiliary_of(const ValueInfo& input) {
  const auto is_called = [&](std::string_view part) { return input.name.find(part) != std::string::npos; };
  if (is_real(input.type)) return Auxiliary::none;
  if (is_called("attention_mask")) return Auxiliary::ones;
  if (is_called("token_type_ids")) return Auxiliary::zeros;
  return is_called("position_ids") ? Auxiliary::positions : Auxiliary::none;
}

// The one row of a table [rows, width] that is zero, if others follow it.
std::optional<std::int64_t> padding_row(const Constant& table) {
  const std::int64_t rows = table.dims[0], width = table.dims[1];
  std::optional<std::int64_t> found;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = table.reals.begin() + row * width;
    if (!std::all_of(begin, begin + width, [](double x) { return x == 0; })) continue;
    if (found || row + 1 == rows) return {};
    found = row;
  }
  return found;
}

}  // namespace

bool Importer::is_position_input(const std::string& name) const {
  return std::ranges::any_of(file_.inputs, [&](const ValueInfo& input) {
    return input.name == name && auxiliary_of(input) == Auxiliary::positions;
  });
}

bool Importer::give_auxiliary(const ValueInfo& input, const std::vector<std::int64_t>& dims) {
  const Auxiliary auxiliary = auxiliary_of(input);
  if (auxiliary == Auxiliary::none) return false;
  Constant c{.kind = input.type == ElementType::boolean ? Constant::Kind::boolean : Constant::Kind::integer};
  std::int64_t count = 1;
  check_dims(dims);
  for (const std::int64_t d : dims) count *= d;
  budget_.take(count, fmt::format("{}: input '{}'", file_.path, printable_name(input.name)));
  c.dims = dims;
  const std::int64_t length = dims.empty() ? 1 : dims.back();
  const auto given = first_positions_.find(input.name);
  const std::int64_t first = given == first_positions_.end() ? 0 : given->second;
  if (auxiliary == Auxiliary::positions && given == first_positions_.end()) assumed_positions_.insert(input.name);
  for (std::int64_t i = 0; i < count; ++i)
    c.integers.push_back(auxiliary == Auxiliary::positions ? first + i % length : auxiliary == Auxiliary::ones ? 1 : 0);
  give(input.name, std::move(c));
  if (!options_.note) return true;
  const std::string what = auxiliary == Auxiliary::ones ? "all ones"
                           : auxiliary == Auxiliary::zeros
                               ? "all zeros"
                               : fmt::format("{}, {}, {}, ...", first, first + 1, first + 2);
  options_.note(fmt::format("{}: input {} is taken as {}", file_.path, printable_name(input.name), what));
  return true;
}

// RoBERTa's positions, and those of its kin, start behind the row of padding, which PyTorch keeps zero.
void Importer::check_positions(Item& table, const Node& node) {
  if (!assumed_positions_.contains(node.inputs.at(1)) || table.kind != Item::Kind::weight) return;
  const auto values = known_of(table);
  if (values == nullptr || values->dims.size() != 2) return;
  const std::optional<std::int64_t> zero = padding_row(*values);
  if (!zero) return;
  const auto& inputs = file_.inputs;
  const auto input = std::ranges::find_if(inputs, [&](const ValueInfo& x) { return is_position_input(x.name); });
  const std::string name = input == inputs.end() ? "position_ids" : printable_name(input->name);
  fail_user(
      "{}: {}: row {} of its table is zero, as PyTorch keeps the row of padding, so positions may start behind it, as "
      "RoBERTa's do; say where they start: `set {}={}`, or {}=0",
      file_.path, node.label(), *zero, name, *zero + 1, name);
}

}  // namespace overtake::onnx
