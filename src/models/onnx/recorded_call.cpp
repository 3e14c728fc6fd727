#include "models/onnx/recorded_call.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace overtake::onnx {
namespace {

// The name at the beginning of a text.
std::string_view leading_name(std::string_view text) {
  const auto end =
      std::ranges::find_if(text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_'; });
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

// "torch.ops.aten.linear.default" -> "linear"
std::string_view op_of(std::string_view origin) {
  constexpr std::string_view kBefore = "target=torch.ops.aten.";
  const std::size_t at = origin.find(kBefore);
  return at == std::string_view::npos ? std::string_view() : leading_name(origin.substr(at + kBefore.size()));
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// The parts between commas of a list whose opening bracket was taken; lists inside stay whole.
std::vector<std::string_view> parts_of_list(std::string_view list) {
  std::vector<std::string_view> parts;
  std::size_t start = 0, depth = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    const bool closes = c == ')' || c == ']' || c == '}';
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ',' && depth == 0) || (closes && depth == 0)) {
      if (const std::string_view part = trimmed(list.substr(start, i - start)); !part.empty()) parts.push_back(part);
      start = i + 1;
    }
    if (closes && depth-- == 0) break;
  }
  return parts;
}

// Where PyTorch's operators take what modules keep; -1: not at all.
struct OperatorRow {
  std::string_view op;
  int weight, bias, running_mean = -1, running_var = -1;
};
constexpr OperatorRow kOperators[] = {{"linear", 1, 2},
                                      {"addmm", 2, 0},
                                      {"conv1d", 1, 2},
                                      {"conv2d", 1, 2},
                                      {"conv3d", 1, 2},
                                      {"convolution", 1, 2},
                                      {"conv_transpose1d", 1, 2},
                                      {"conv_transpose2d", 1, 2},
                                      {"conv_transpose3d", 1, 2},
                                      {"layer_norm", 2, 3},
                                      {"native_layer_norm", 2, 3},
                                      {"rms_norm", 2, -1},
                                      {"group_norm", 2, 3},
                                      {"native_group_norm", 1, 2},
                                      {"instance_norm", 1, 2, 3, 4},
                                      {"batch_norm", 1, 2, 3, 4},
                                      {"native_batch_norm", 1, 2, 3, 4},
                                      {"_native_batch_norm_legit", 1, 2, 3, 4},
                                      {"_native_batch_norm_legit_functional", 1, 2, 3, 4},
                                      {"_native_batch_norm_legit_no_training", 1, 2, 3, 4},
                                      {"embedding", 0, -1},
                                      {"embedding_bag", 0, -1},
                                      {"prelu", 1, -1}};

int place_of(const OperatorRow& row, std::string_view role) {
  if (role == "weight") return row.weight;
  if (role == "bias") return row.bias;
  if (role == "running_mean") return row.running_mean;
  return role == "running_var" ? row.running_var : -1;
}

}  // namespace

RecordedCall recorded_call(std::string_view origin) {
  constexpr std::string_view kArguments = "args = (";
  RecordedCall call{.op = op_of(origin)};
  if (origin.starts_with('%')) call.result = leading_name(origin.substr(1));
  const std::size_t at = origin.find(kArguments);
  if (at == std::string_view::npos) return call;
  const std::string_view rest = origin.substr(at + kArguments.size());
  call.arguments = parts_of_list(rest);
  for (std::size_t i = 0; (i = rest.find('%', i)) != std::string_view::npos; ++i)
    call.references.push_back(leading_name(rest.substr(i + 1)));
  return call;
}

std::optional<std::string_view> argument_in_role(const RecordedCall& call, std::string_view role) {
  const auto row = std::ranges::find(kOperators, call.op, &OperatorRow::op);
  if (row == std::end(kOperators)) return std::nullopt;
  const int place = place_of(*row, role);
  if (place < 0) return std::nullopt;
  const auto i = static_cast<std::size_t>(place);
  if (i >= call.arguments.size() || !call.arguments[i].starts_with('%')) return "";
  return call.arguments[i].substr(1);
}

}  // namespace overtake::onnx
