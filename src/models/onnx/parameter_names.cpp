#include "models/onnx/parameter_names.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>

#include "base/printable.h"
#include "models/onnx/importer.h"
#include "models/onnx/recorded_call.h"

namespace overtake::onnx {
namespace {

// A call may use the weight of a module inside: "qkv_weight" is "qkv.weight", but for the names PyTorch itself writes
// with an underscore.
std::string with_submodule(std::string name) {
  for (const std::string_view role : {"_weight", "_bias"})
    if (name.ends_with(role) && !name.ends_with("in_proj" + std::string(role))) name[name.size() - role.size()] = '.';
  return name;
}

// Whether all elements, of so many bytes each, are the same.
bool is_one_value(std::span<const std::byte> bytes, std::size_t element) {
  for (std::size_t i = element; i < bytes.size(); i += element)
    if (std::memcmp(bytes.data(), bytes.data() + i, element) != 0) return false;
  return true;
}

// Whether two matrices are equal, as they are or one of them transposed.
bool are_twins(const Tensor& a, const Tensor& b) {
  if (a.type != b.type || a.bytes.size() != b.bytes.size() || a.dims.size() != 2 || b.dims.size() != 2) return false;
  if (a.dims == b.dims && std::ranges::equal(a.bytes, b.bytes)) return true;
  const auto rows = static_cast<std::size_t>(a.dims[0]), columns = static_cast<std::size_t>(a.dims[1]);
  if (a.dims[0] != b.dims[1] || a.dims[1] != b.dims[0]) return false;
  const auto element = static_cast<std::size_t>(element_bytes(a.type));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      if (std::memcmp(a.bytes.data() + element * (i * columns + j), b.bytes.data() + element * (j * rows + i),
                      element) != 0)
        return false;
  return true;
}

// Another matrix of the file with the same numbers: perhaps the same parameter, perhaps its copy.
const Tensor* twin_of(const Tensor& t, const File& file) {
  if (t.dims.size() != 2 || is_one_value(t.bytes, static_cast<std::size_t>(element_bytes(t.type)))) return nullptr;
  const auto it =
      std::ranges::find_if(file.initializers, [&](const Tensor& other) { return &other != &t && are_twins(t, other); });
  return it == file.initializers.end() ? nullptr : &*it;
}

// [C, 1, 1]: a vector that the export reshaped.
bool is_stretched(const std::vector<std::int64_t>& dims) {
  return dims.size() > 1 && std::all_of(dims.begin() + 1, dims.end(), [](std::int64_t d) { return d == 1; });
}

}  // namespace

std::string mangled(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '.' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

bool is_lookup(const std::string& name) { return name.starts_with("embedding") || name.starts_with("expand"); }

std::vector<std::string> parameters_of_call(const std::string& origin) {
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = origin.find("%p_", at)) != std::string::npos;) {
    at += 3;
    std::size_t end = at;
    while (end < origin.size() && (std::isalnum(static_cast<unsigned char>(origin[end])) != 0 || origin[end] == '_'))
      ++end;
    names.push_back(origin.substr(at, end - at));
  }
  return names;
}

bool has_folded_norm(const Node& node) {
  const bool has_weights = node.op == "Conv" || node.op == "ConvTranspose" || node.op == "Gemm" || node.op == "MatMul";
  return has_weights && recorded_call(node.origin).op.find("batch_norm") != std::string_view::npos;
}

const SignatureTensor* Importer::listed_tensor(const Item& x, const Node& node, std::string_view role) const {
  if (!file_.signature || x.kind != Item::Kind::weight) return nullptr;
  const Signature& list = *file_.signature;
  const SignatureTensor* own = list.of_name(x.tensor->name);
  const RecordedCall call = recorded_call(node.origin);
  std::vector<const SignatureTensor*> named;
  for (const std::string_view reference : call.references)
    if (const SignatureTensor* t = list.of_argument(reference)) named.push_back(t);
  const bool is_named = own != nullptr && std::ranges::find(named, own) != named.end();
  if (is_named && std::ranges::count(node.inputs, x.tensor->name) < 2) return own;
  // What a batch norm was folded into has the norm's call.
  const bool is_fused = has_folded_norm(node) || (node.op == "Conv" && !call.op.starts_with("conv"));
  if (is_fused) return own;
  if (const auto argument = argument_in_role(call, role)) {
    if (const SignatureTensor* t = list.of_argument(*argument)) return t;
    // What another node made of the tensor, as a transpose: that one's call decides.
    const auto maker = makers_.find(*argument);
    return maker == makers_.end() ? nullptr : listed_tensor(x, *maker->second, "");
  }
  // An equal tensor is stored in its place, if anything of the list is.
  if (is_named || own == nullptr || named.empty()) return own;
  return named.size() == 1 ? named[0] : nullptr;
}

Importer::ParameterName Importer::parameter_name(const Item& x, const Node& node, const std::string& role) {
  const std::string& base = x.alias.empty() ? x.tensor->name : x.alias;
  if (file_.signature) {
    if (const SignatureTensor* listed = listed_tensor(x, node, role)) return {listed->name, base};
    doubts_.insert(fmt::format("'{}' of {} was computed by the export", printable_name(base), node.label()));
    return {base, base};
  }
  const std::vector<std::string> called = parameters_of_call(node.origin);
  const bool is_shared = uses_.at(x.tensor->name) > 1;  // perhaps by modules that have equal ones
  if (!is_generated_name(base) && (!is_shared || std::ranges::find(called, mangled(base)) != called.end()))
    return {base, base};
  // The module's own parameter of that role.
  const std::string prefix = node.scope.empty() ? "" : mangled(node.scope) + "_";
  std::vector<std::string> own;
  for (const std::string& name : called)
    if (name.starts_with(prefix)) own.push_back(name.substr(prefix.size()));
  const std::string scope = node.scope.empty() ? "" : node.scope + ".";
  for (const std::string& rest : own)
    if (rest.ends_with(role)) return {scope + with_submodule(rest), base};
  if (own.size() == 1) return {scope + with_submodule(own[0]), base};
  if (!is_generated_name(base) || !node.origin.empty()) return {base, base};
  return guessed_name(x, node, role);
}

// The older exporter leaves a folded tensor without the parameter's name. A matrix that was transposed is its module's
// weight, a vector that was reshaped its scale; of all else nobody can say what it was made of.
Importer::ParameterName Importer::guessed_name(const Item& x, const Node& node, const std::string& role) {
  const std::string& base = x.alias.empty() ? x.tensor->name : x.alias;
  const std::vector<std::int64_t>& dims = x.tensor->dims;
  const bool is_product = (node.op == "MatMul" || node.op == "Gemm") && dims.size() == 2;
  const auto doubt = [&](std::string_view why) {
    doubts_.insert(fmt::format("'{}' of {} {}", printable_name(base), node.label(), why));
  };
  ParameterName name{.text = base, .stored = base, .is_guess = true};
  if (const Tensor* twin = twin_of(*x.tensor, file_)) {
    doubt(fmt::format("is equal to '{}': the same parameter, or a copy", printable_name(twin->name)));
    if (!is_generated_name(twin->name)) name.text = twin->name;
    return name;
  }
  if (!x.alias.empty())
    doubt(fmt::format("is equal to '{}': the same parameter, or another", printable_name(x.tensor->name)));
  else if (node.scope.empty())
    doubt("belongs to no module");
  else if (!is_product && !is_stretched(dims))
    doubt("was computed by the export");
  if (node.scope.empty()) return name;
  // PyTorch's attention keeps the weight of all three projections itself.
  const std::string joined = "in_proj_";
  name.text = node.scope + "." + (items_.contains(node.scope + "." + joined + "bias") ? joined + role : role);
  return name;
}

// The name itself, or one of its own where another tensor has it and nobody can say that they are the same.
std::string Importer::claimed_name(const ParameterName& name, const NamedTensor& values) {
  std::string unique = name.text;
  for (int i = 1;; ++i) {
    const auto it = parameters_.find(unique);
    if (it == parameters_.end()) return unique;
    const Made& known = it->second;
    const bool is_equal = !known.is_state && std::ranges::equal(values_[known.values].bytes, values.bytes);
    const bool is_guess = name.is_guess || known.is_guess;
    const bool both_guesses = name.is_guess && known.is_guess;
    if (is_equal &&
        (known.stored == name.stored || !is_guess || (!both_guesses && !is_one_value(values.bytes, sizeof(float)))))
      return unique;
    if (i == 1 && known.stored != name.stored)
      doubts_.insert(fmt::format("'{}' and '{}' would both be {}", printable_name(known.stored),
                                 printable_name(name.stored), printable_name(name.text)));
    unique = fmt::format("{}.{}", name.text, i);
  }
}

}  // namespace overtake::onnx
