// Which tensors of a file PyTorch trains.
//
// A file of Overtake's export function says it, one of the dynamo exporter tells parameters from buffers. All others
// have nothing but names: a layer's weight or bias is trained, and of what else may be a parameter or a buffer the user
// is asked.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/importer.h"
#include "models/onnx/lost.h"
#include "models/onnx/parameter_names.h"
#include "models/onnx/recorded_call.h"

namespace overtake::onnx {
namespace {

using Status = TrainingFacts::Status;

constexpr std::string_view kAll = "*";  // of `train_tensors`: whatever the file does not tell of

bool has_prefix(const std::vector<std::string>& prefixes, const std::string& name) {
  return std::ranges::any_of(prefixes, [&](const std::string& p) { return !p.empty() && name.starts_with(p); });
}

// As PyTorch's modules call their parameters: "weight", "in_proj_bias", "weight_hh_l0".
bool is_called_like_a_weight(std::string_view name) {
  const std::string_view leaf = name.substr(name.rfind('.') + 1);
  return leaf.find("weight") != std::string_view::npos || leaf.find("bias") != std::string_view::npos;
}

// Masks are of infinities or of large numbers. Those that have a parameter's place but not its name are known by less
// than those that might have been trained.
constexpr double kLargestWeight = 1e4, kBeyondOptimizers = 1e30;

bool is_below(const Constant& values, double bound) {
  return std::ranges::all_of(values.reals, [&](double x) { return std::fabs(x) < bound; });
}

// Where a weight of the file is one by its place, whatever it is called.
bool is_weight_place(const Node& node, std::size_t place) {
  const std::string& op = node.op;
  if (op == "Conv" || op == "Gemm" || op == "LayerNormalization" || op == "GroupNormalization")
    return place == 1 || place == 2;
  if (op == "MatMul") return place == 1;
  if (op == "BatchNormalization") return place >= 1;
  if (op == "LSTM" || op == "GRU") return place >= 1 && place <= 3;
  if (op == "Gather") return place == 0;
  return false;
}

// Whether the dynamo exporter, which marks parameters in the calls it records, wrote down that this is one.
bool is_parameter_of_call(const Node& node, const std::string& name) {
  const std::vector<std::string> named = parameters_of_call(node.origin);
  return std::ranges::find(named, mangled(name)) != named.end();
}

bool is_running_statistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") || name.ends_with("num_batches_tracked");
}

// Whether the dynamo exporter recorded a detach() whose node its optimisation took out.
bool has_lost_detach(const File& file, const std::set<std::string>& needed) {
  const auto is_of_detach = [](std::string_view value) {
    constexpr std::string_view kDetach = "detach";
    if (!value.starts_with(kDetach)) return false;
    value.remove_prefix(kDetach.size());
    const bool is_first = value.empty();
    if (!is_first) value.remove_prefix(value.starts_with('_') ? 1 : 0);
    return is_first || (!value.empty() && value.find_first_not_of("0123456789") == value.npos);
  };
  std::set<std::string_view> made, read;
  for (const Node& node : file.nodes) {
    if (std::ranges::none_of(node.outputs, [&](const std::string& name) { return needed.contains(name); })) continue;
    const RecordedCall call = recorded_call(node.origin);
    made.insert(call.result);
    read.insert(call.references.begin(), call.references.end());
  }
  return std::ranges::any_of(read, [&](std::string_view v) { return is_of_detach(v) && !made.contains(v); });
}

// Embeddings start with zeros in the row that is their padding_idx, and no row else.
std::optional<std::size_t> row_of_zeros(const Tensor& table) {
  const auto rows = static_cast<std::size_t>(table.dims[0]), width = table.bytes.size() / rows;
  std::optional<std::size_t> found;
  for (std::size_t row = 0; row < rows; ++row) {
    if (std::ranges::any_of(table.bytes.subspan(row * width, width), [](std::byte b) { return b != std::byte{0}; }))
      continue;
    if (found) return std::nullopt;
    found = row;
  }
  return found;
}

}  // namespace

bool is_training_norm(const Node& node) {
  const std::string_view recorded = recorded_call(node.origin).op;
  if (recorded.find("batch_norm") != recorded.npos) return recorded.find("no_training") == recorded.npos;
  return node.integer("training_mode", 0) != 0;
}

Status Importer::status_of(const Item& x, const Node& node, std::size_t place) {
  const std::string& name = x.alias.empty() ? x.tensor->name : x.alias;
  if (file_.facts) {
    const SignatureTensor* listed = listed_tensor(x, node, "");
    return file_.facts->of(listed != nullptr ? listed->name : name);
  }
  if (file_.signature) return listed_status(x, node, place);
  if (is_generated_name(name)) return is_weight_of_its_node(x, node, place) ? Status::trained : Status::constant;
  return guessed_status(x, node, place);
}

Status Importer::listed_status(const Item& x, const Node& node, std::size_t place) {
  using Kind = SignatureTensor::Kind;
  // Equal tensors are stored once, so the call decides which one this is; what was computed has a name of its own.
  const SignatureTensor* own = file_.signature->of_name(x.tensor->name);
  const SignatureTensor* meant = nullptr;
  for (const std::string_view reference : recorded_call(node.origin).references) {
    const SignatureTensor* named = file_.signature->of_argument(reference);
    if (named == nullptr) continue;
    if (meant == nullptr || named == own || (meant != own && named->kind == Kind::parameter)) meant = named;
  }
  if (meant == nullptr) meant = own;
  if (meant == nullptr) return is_weight_of_its_node(x, node, place) ? Status::trained : Status::constant;
  if (meant->kind == Kind::parameter) return Status::trained;
  return meant->is_persistent ? Status::untrained : Status::constant;
}

// Whether a tensor that lost its name was a parameter, as far as its place tells.
bool Importer::is_weight_of_its_node(const Item& x, const Node& node, std::size_t place) {
  if (is_weight_place(node, place)) return true;
  const std::string& name = x.tensor->name;
  if (node.origin.find("%p_") == std::string::npos && !is_lookup(name) && !name.starts_with("onnx::")) return false;
  return is_below(values_of(*x.tensor), kLargestWeight);
}

Status Importer::guessed_status(const Item& x, const Node& node, std::size_t place) {
  const std::string& name = x.alias.empty() ? x.tensor->name : x.alias;
  const auto [known, is_new] = guesses_.try_emplace(name, Status::trained);
  if (!is_new) return known->second;
  if (has_prefix(options_.train_tensors, name)) {
    used_train_tensors_.insert(name);
    return known->second;
  }
  if (has_prefix(options_.freeze, name)) return known->second;  // a weight of the model, for freeze()
  if (has_origins_ && is_parameter_of_call(node, name)) return known->second;
  if (!is_called_like_a_weight(name)) {
    if (!is_below(values_of(*x.tensor), kBeyondOptimizers)) return known->second = Status::constant;
    ask(printable_name(name));
  } else if (const bool is_table = node.op == "Gather" && place == 0 && x.tensor->dims.size() == 2; is_table) {
    if (const auto row = row_of_zeros(*x.tensor))
      ask(fmt::format("{} (row {} may be its padding_idx)", printable_name(name), *row));
  }
  return known->second;
}

void Importer::ask(std::string tensor) {
  if (std::ranges::find(options_.train_tensors, kAll) == options_.train_tensors.end())
    unsaid_.push_back(std::move(tensor));
}

Constant Importer::values_of(const Tensor& t) {
  return read_constant(t, budget_, fmt::format("{}: weight '{}'", file_.path, printable_name(t.name)));
}

// Every parameter that gets a gradient from the only output must be in the model.
void Importer::check_all_are_trained() const {
  if (file_.outputs.size() > 1) return;
  std::set<std::string> made;
  for (const auto& [name, unused] : parameters_) made.insert(file_.facts->first_name(name));
  std::vector<std::string> lost;
  std::ranges::copy_if(file_.facts->trained(), std::back_inserter(lost),
                       [&](const std::string& name) { return !made.contains(name); });
  if (!lost.empty())
    fail_user(
        "{}: parameters that PyTorch trains are not in its network: {}; export the model with "
        "python/overtake_export.py, with dynamo=True or without",
        file_.path, shortened(lost));
}

void Importer::check_trained_is_said() {
  for (const std::string& prefix : options_.train_tensors)
    if (prefix != kAll &&
        std::ranges::none_of(used_train_tensors_, [&](const std::string& n) { return n.starts_with(prefix); }))
      fail_user("`train_tensors {}`: {} has no tensor that begins so and of which it is not known", prefix, file_.path);
  if (has_lost_detach(file_, needed_))
    fail_user(
        "{}: its export took out a detach(), so that gradients would flow where PyTorch has none; export the model "
        "with {}",
        file_.path, lossless_export(true));
  if (file_.facts) return check_all_are_trained();
  if (!unsaid_.empty())
    fail_user(
        "{}: it does not say whether PyTorch trains these tensors: {}; export the model with "
        "python/overtake_export.py, "
        "which writes it into the file, or name them (or how they begin) in `train_tensors` or `freeze`",
        file_.path, shortened(unsaid_));
  for (const SignatureTensor& t : file_.signature ? file_.signature->tensors() : std::vector<SignatureTensor>())
    if (t.is_updated && !is_running_statistic(t.name))
      fail_user("{}: buffer {} is changed by every forward pass, which Overtake cannot do; take that out of the model",
                file_.path, printable_name(t.name));
  if (!options_.note) return;
  if (has_evaluated_norm_ && !has_training_norm_)
    options_.note(
        fmt::format("{}: its batch norms, exported in evaluation mode, are trained in training mode", file_.path));
  options_.note(fmt::format(
      "{} does not say all that PyTorch trains: every {} is, {}; python/overtake_export.py exports what is missing",
      file_.path, file_.signature ? "parameter" : "weight of its layers",
      file_.signature
          ? "frozen ones (requires_grad=False) and those under torch.no_grad() too"
          : "frozen ones (requires_grad=False) too, and detach(), torch.no_grad() and padding_idx are lost"));
}

void Importer::freeze_untrained(Graph& g) const {
  for (Parameter& p : g.parameters) {
    if (g.buffers[p.buffer].role != Role::weight) continue;
    const std::string name = g.buffer_name(p.buffer);
    if (file_.facts) {
      p.is_frozen = file_.facts->of(name) != Status::trained;
    } else if (file_.signature) {
      const SignatureTensor* listed = file_.signature->of_name(name);
      p.is_frozen = listed != nullptr && listed->kind != SignatureTensor::Kind::parameter;
    }
  }
}

}  // namespace overtake::onnx
