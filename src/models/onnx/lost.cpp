#include "models/onnx/lost.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/importer.h"
#include "models/onnx/parameter_names.h"
#include "models/onnx/recorded_call.h"

namespace overtake::onnx {
namespace {

std::string_view module_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::string_view leaf_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// What the calls of the nodes on the way to the output say of the tensors they came from.
class CallsOfFile {
 public:
  CallsOfFile(const File& file, const Signature& list, const std::set<std::string>& needed) : list_(list) {
    for (const Node& node : file.nodes) {
      if (std::ranges::none_of(node.outputs, [&](const std::string& name) { return needed.contains(name); })) continue;
      for (const std::string& output : node.outputs) made_.insert(output);
      const RecordedCall call = recorded_call(node.origin);
      made_.insert(call.result);
      for (const std::string_view reference : call.references) {
        named_.insert(reference);
        if (const SignatureTensor* t = list.of_argument(reference); t != nullptr && module_of(t->name) != node.scope)
          from_elsewhere_.insert(fmt::format("{}.{}", node.scope, leaf_of(t->name)));
      }
    }
  }

  bool name(const SignatureTensor& t) const { return named_.contains(t.argument); }
  // A module that takes its weight from another one is tied to it; the list has both names.
  bool tie(const SignatureTensor& t) const { return from_elsewhere_.contains(t.name); }
  // Whether a call takes what no other one makes: the export has computed that, from parameters perhaps.
  bool have_gaps() const {
    return std::ranges::any_of(
        named_, [&](std::string_view value) { return !made_.contains(value) && !list_.is_given(value); });
  }

 private:
  const Signature& list_;
  std::set<std::string_view> named_, made_;
  std::set<std::string> from_elsewhere_;  // as the module would call it if it were its own
};

}  // namespace

std::string_view lossless_export(bool by_dynamo) {
  return by_dynamo ? "torch.onnx.export(model, args, file, dynamo=True, optimize=False)"
                   : "torch.onnx.export(model, args, file, dynamo=False, training=torch.onnx.TrainingMode.TRAINING, "
                     "do_constant_folding=False)";
}

std::string shortened(std::span<const std::string> names) {
  constexpr std::size_t kMost = 12;
  const std::size_t end = names.size() <= kMost ? 0 : kMost / 2;
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (end == 0 || i < end || i >= names.size() - end) shown.push_back(printable_name(names[i]));
    if (end != 0 && i == end) shown.emplace_back("...");
  }
  return fmt::format("{} ({})", fmt::join(shown, ", "), names.size());
}

// Whether a recorded value is called so because a layer computes it: "linear_1".
bool is_of_layer(std::string_view value) {
  constexpr std::string_view kLayers[] = {"linear", "addmm",  "mm",     "bmm",    "baddbmm",
                                          "matmul", "conv1d", "conv2d", "conv3d", "convolution"};
  const std::size_t bar = value.rfind('_');
  const bool is_numbered = bar != value.npos && value.find_first_not_of("0123456789", bar + 1) == value.npos;
  return std::ranges::find(kLayers, is_numbered ? value.substr(0, bar) : value) != std::end(kLayers);
}

// A layer of values that are known, as of the zeros that a recurrent network starts from: its parameters are in the
// result, whatever else uses them. Likewise those of batch norms in the layers before them.
std::vector<std::string> Importer::folded_layers() const {
  std::vector<std::string> folded;
  if (!file_.signature) return folded;
  const Signature& list = *file_.signature;
  for (const Tensor& t : file_.initializers) {
    if (!is_of_layer(t.name) || list.is_given(t.name) || list.of_name(t.name) != nullptr) continue;
    const auto user = std::ranges::find_if(file_.nodes, [&](const Node& node) {
      return std::ranges::find(node.inputs, t.name) != node.inputs.end() &&
             std::ranges::any_of(node.outputs, [&](const std::string& name) { return needed_.contains(name); });
    });
    if (user == file_.nodes.end()) continue;
    const std::string module = user->scope.empty() ? "" : fmt::format(" of module {}", user->scope);
    folded.push_back(fmt::format("{}{}, which {} takes", t.name, module, user->label()));
  }
  for (const Node& node : file_.nodes)
    if (has_folded_norm(node)) folded.push_back(fmt::format("the batch norm of {}", node.label()));
  return folded;
}

std::vector<std::string> Importer::lost_parameters() const {
  std::vector<std::string> lost;
  if (!file_.signature) return lost;
  const CallsOfFile calls(file_, *file_.signature, needed_);
  const bool have_gaps = calls.have_gaps();
  for (const SignatureTensor& t : file_.signature->tensors()) {
    if (t.kind != SignatureTensor::Kind::parameter || parameters_.contains(t.name)) continue;
    // What no call names was not used by the model either, unless some calls are gone.
    if (calls.name(t) || (have_gaps && !calls.tie(t))) lost.push_back(t.name);
  }
  return lost;
}

void Importer::check_nothing_lost() {
  const std::vector<std::string> lost = lost_parameters();
  const auto report = [&](const std::string& what) {
    if (!options_.accept_folded)
      fail_user("{}: {}; export the model with {}, or train what there is with `accept_folded`", file_.path, what,
                lossless_export(file_.signature.has_value() || has_origins_));
    if (options_.note) options_.note(fmt::format("warning: {}: {}", file_.path, what));
  };
  if (!lost.empty())
    report(fmt::format("its export dropped or folded parameters of the model, which cannot be trained: {}",
                       shortened(lost)));
  if (const std::vector<std::string> folded = folded_layers(); lost.empty() && !folded.empty())
    report(fmt::format("its export folded layers, whose parameters would be trained as others: {}", shortened(folded)));
  if (const std::vector<std::string> doubts(doubts_.begin(), doubts_.end()); !doubts.empty())
    report(fmt::format("its export folded parameters, so that it does not say which ones these are: {}",
                       shortened(doubts)));
}

}  // namespace overtake::onnx
