#pragma once
// The operator call that a node comes from, as PyTorch's dynamo exporter writes it down (Node::origin):
//
//   %linear_1 : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight, ...

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace overtake::onnx {

// Views of the text it was read from. Empty parts where the text has none.
struct RecordedCall {
  std::string_view result = {};                   // "linear_1"
  std::string_view op = {};                       // "linear", of PyTorch's own operators
  std::vector<std::string_view> arguments = {};   // as they stand there: "%x", "[2, 3]", "0.125"
  std::vector<std::string_view> references = {};  // every value that is named, also inside lists: "x"
};
RecordedCall recorded_call(std::string_view origin);

// The value that the operator takes as its weight, bias, running_mean or running_var; nothing for operators without
// such a place, "" where something else than a single value stands there.
std::optional<std::string_view> argument_in_role(const RecordedCall& call, std::string_view role);

}  // namespace overtake::onnx
