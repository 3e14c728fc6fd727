#include "models/onnx/signature.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"

namespace overtake::onnx {
namespace {

[[noreturn]] void fail_unreadable(std::string_view part, const std::string& path) {
  fail_user(
      "{}: PyTorch's list of the model's parameters ({}) cannot be read at '{}'; export the model again, with another "
      "version of PyTorch",
      path, Signature::kKey, printable_name(part));
}

// What stands between `before` and `after`; empty where there is no such part.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t start = text.find(before);
  if (start == std::string_view::npos) return {};
  text.remove_prefix(start + before.size());
  const std::size_t end = text.find(after);
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

const SignatureTensor* found_in(const std::map<std::string, std::size_t, std::less<>>& places,
                                const std::vector<SignatureTensor>& tensors, std::string_view key) {
  const auto it = places.find(key);
  return it == places.end() ? nullptr : &tensors[it->second];
}

}  // namespace

Signature::Signature(std::string_view text, const std::string& path) {
  if (text.find("# inputs") != std::string_view::npos)
    read_lines(text, path);
  else if (text.starts_with("ExportGraphSignature("))
    read_specs(text, path);
  else
    fail_unreadable(text, path);
}

const SignatureTensor* Signature::of_argument(std::string_view argument) const {
  return found_in(by_argument_, tensors_, argument);
}

const SignatureTensor* Signature::of_name(std::string_view name) const { return found_in(by_name_, tensors_, name); }

bool Signature::is_given(std::string_view argument) const {
  return by_argument_.contains(argument) || inputs_.contains(argument);
}

void Signature::add_input(std::string_view kind, std::string_view argument, std::string_view spec,
                          const std::string& path) {
  using Kind = SignatureTensor::Kind;
  const bool is_buffer = kind == "BUFFER", is_parameter = kind == "PARAMETER";
  if (!is_buffer && !is_parameter && kind != "CONSTANT_TENSOR") {  // the user's inputs, tokens, objects
    inputs_.emplace(argument);
    return;
  }
  SignatureTensor t{.argument = std::string(argument), .name = std::string(between(spec, "target='", "'"))};
  if (t.argument.empty() || t.name.empty()) fail_unreadable(spec, path);
  t.kind = is_parameter ? Kind::parameter : is_buffer ? Kind::buffer : Kind::constant;
  t.is_persistent = is_parameter || (is_buffer && spec.find("persistent=True") != std::string_view::npos);
  if (!by_argument_.emplace(t.argument, tensors_.size()).second || !by_name_.emplace(t.name, tensors_.size()).second)
    fail_unreadable(spec, path);
  tensors_.push_back(std::move(t));
}

void Signature::add_output(std::string_view kind, std::string_view spec) {
  if (kind != "BUFFER_MUTATION") return;
  if (const auto it = by_name_.find(between(spec, "target='", "'")); it != by_name_.end())
    tensors_[it->second].is_updated = true;
}

// Since PyTorch 2.7 a line per tensor, "p_fc_weight: PARAMETER target='fc.weight'", below "# inputs" and "# outputs".
void Signature::read_lines(std::string_view text, const std::string& path) {
  bool are_inputs = true;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with("#")) {
      are_inputs = line == "# inputs";
      continue;
    }
    if (line.empty()) continue;
    const std::size_t colon = line.find(": ");
    if (colon == std::string_view::npos) fail_unreadable(line, path);
    const std::string_view spec = line.substr(colon + 2), kind = spec.substr(0, spec.find(' '));
    if (are_inputs)
      add_input(kind, line.substr(0, colon), spec, path);
    else
      add_output(kind, spec);
  }
}

// Before that "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_fc_weight'), target='fc.weight',
// persistent=None)" and so on, all in one line.
void Signature::read_specs(std::string_view text, const std::string& path) {
  constexpr std::string_view kInput = "InputSpec(", kOutput = "OutputSpec(";
  const auto next = [&] { return std::min(text.find(kInput), text.find(kOutput)); };
  for (std::size_t at = next(); at != std::string_view::npos; at = next()) {
    text.remove_prefix(at);
    const bool is_input = text.starts_with(kInput);
    text.remove_prefix((is_input ? kInput : kOutput).size());
    const std::string_view spec = text.substr(0, next());
    if (is_input)
      add_input(between(spec, "InputKind.", ":"), between(spec, "name='", "'"), spec, path);
    else
      add_output(between(spec, "OutputKind.", ":"), spec);
  }
}

}  // namespace overtake::onnx
