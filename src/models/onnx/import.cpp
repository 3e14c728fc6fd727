#include "models/onnx/import.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/dims.h"
#include "models/onnx/importer.h"

namespace overtake {
namespace onnx {
namespace {

constexpr std::int64_t kDefaultBatch = 16;
constexpr int kMostSteps = 200;  // back from a value to the weights it was made from

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace

bool is_real(ElementType type) {
  return type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16 || type == ElementType::f64;
}

void check_dims(std::span<const std::int64_t> dims) {
  if (dims.size() > Shape::kMaxRank)
    fail_unsupported_node("a tensor of {} dimensions; at most {} are possible", dims.size(), Shape::kMaxRank);
  if (count_elements(dims).value_or(0) < 1) fail_unsupported_node("a tensor of shape {}", shape_text(dims));
}

Shape shape_of(std::span<const std::int64_t> dims) {
  check_dims(dims);
  return dims.empty() ? Shape{1} : Shape(dims);
}

Importer::Importer(const File& file, const ImportOptions& options, BatchPlaces& places, std::int64_t probe)
    : file_(file),
      options_(options),
      places_(places),
      probe_(probe),
      budget_(file.bytes, options.most_constants),
      model_(file_name(file.path), 1) {
  look_at_uses();
}

// The batch and the symbolic dimensions. The first dimension of the first input is the batch.
void Importer::read_settings() {
  if (file_.inputs.empty()) fail_user("{}: the model has no input; export it with one", file_.path);
  std::string batch_symbol;
  for (const ValueInfo& input : file_.inputs) {
    if (!input.has_shape)
      fail_user("{}: input '{}' has no shape; export it with one (dynamic_axes may name dimensions)", file_.path,
                printable_name(input.name));
    for (const Dimension& d : input.dims)
      if (d.value < 0 && !d.symbol.empty()) symbols_[d.symbol] = 0;
  }
  if (const auto& dims = file_.inputs[0].dims; !dims.empty()) {
    exported_batch_ = std::max<std::int64_t>(0, dims[0].value);
    if (dims[0].value < 0) batch_symbol = dims[0].symbol;
  }
  batch_ = exported_batch_ > 0 ? exported_batch_ : kDefaultBatch;
  bool is_batch_given = false;
  for (const auto& [name, value] : options_.settings.all()) {
    const auto number = static_cast<std::int64_t>(value);
    if (is_position_input(name) && value >= 0 && value < static_cast<double>(kMostDim) &&
        static_cast<double>(number) == value) {
      first_positions_[name] = number;
      continue;
    }
    if (!(value >= 1 && value <= static_cast<double>(kMostDim)) || static_cast<double>(number) != value)
      fail_user("{}: {} = {}; dimensions are whole numbers of at least 1 and below 2^31", file_.path, name, value);
    if (name == "batch" || name == batch_symbol) {
      batch_ = number;
      is_batch_given = true;
    } else if (symbols_.contains(name)) {
      symbols_[name] = number;
    } else {
      std::vector<std::string> known = {"batch"};
      for (const auto& [symbol, unused] : symbols_)
        if (symbol != batch_symbol) known.push_back(symbol);
      fail_user("{}: it has no setting '{}'; it has {}", file_.path, name, fmt::join(known, ", "));
    }
  }
  batch_ = probe_ > 0 ? probe_ : samples_of_a_piece(batch_, options_.pieces, is_batch_given);
  if (!batch_symbol.empty()) symbols_[batch_symbol] = batch_;
  model_ = Model(file_name(file_.path), batch_);
}

void Importer::add_inputs() {
  bool has_primary = false;
  for (const ValueInfo& input : file_.inputs) {
    std::vector<std::int64_t> dims;
    for (std::size_t i = 0; i < input.dims.size(); ++i) {
      const Dimension& d = input.dims[i];
      std::int64_t size = d.value >= 0 ? d.value : d.symbol.empty() ? 0 : symbols_[d.symbol];
      if (i == 0 && (d.value < 0 || d.value == exported_batch_)) size = batch_;
      if (size == 0 && !d.symbol.empty())
        fail_user("{}: dimension '{}' of input '{}' is not known; give it with `set {}=N`", file_.path,
                  printable_name(d.symbol), printable_name(input.name), printable_name(d.symbol));
      if (size < 1 || size > kMostDim)
        fail_user("{}: dimension {} of input '{}' is not known; export it with a size or a name", file_.path, i,
                  printable_name(input.name));
      dims.push_back(size);
    }
    const std::vector<std::int64_t> sample(dims.begin() + (dims.empty() ? 0 : 1), dims.end());
    if (give_auxiliary(input, dims)) continue;
    if (has_primary)
      fail_user(
          "{}: input '{}' is a second one; data sources feed one input (besides attention_mask, token_type_ids "
          "and position_ids), so export the model with a single one",
          file_.path, printable_name(input.name));
    has_primary = true;
    if (dims.empty())
      fail_user("{}: input '{}' has no dimensions; the first must be the batch", file_.path,
                printable_name(input.name));
    check_dims(dims);
    if (is_real(input.type))
      give(input.name, model_.input(sample));
    else if (input.type == ElementType::i64 || input.type == ElementType::i32)
      give(input.name, model_.tokens(sample));
    else
      fail_user("{}: input '{}' is of type {}; it must be float or integer", file_.path, printable_name(input.name),
                to_string(input.type));
  }
  if (!has_primary) fail_user("{}: no input for data was found among its inputs", file_.path);
}

void Importer::add_initializers() {
  for (const Tensor& t : file_.initializers) {
    Item& x = items_[t.name];
    const bool has_values = std::ranges::all_of(t.dims, [](std::int64_t d) { return d > 0; });
    if (is_real(t.type) && has_values && !is_number(t)) {
      x.kind = Item::Kind::weight;
      x.tensor = &t;
    } else if (needed_.contains(t.name) && t.type != ElementType::text) {
      x.kind = Item::Kind::known;
      x.known = std::make_shared<const Constant>(
          read_constant(t, budget_, fmt::format("{}: initializer '{}'", file_.path, t.name)));
    }
  }
}

// The values on the way to the output.
void Importer::find_needed() {
  if (file_.outputs.empty()) fail_user("{}: the model has no output; export it with one", file_.path);
  output_ = options_.output.empty() ? file_.outputs[0].name : options_.output;
  std::vector<std::string> names;
  for (const ValueInfo& out : file_.outputs) names.push_back(out.name);
  if (std::ranges::find(names, output_) == names.end())
    fail_user("{}: it has no output '{}'; it has {}", file_.path, printable_name(output_), fmt::join(names, ", "));
  needed_.insert(output_);
  for (std::size_t i = file_.nodes.size(); i-- > 0;) {
    const Node& node = file_.nodes[i];
    if (std::ranges::any_of(node.outputs, [&](const std::string& name) { return needed_.contains(name); }))
      needed_.insert(node.inputs.begin(), node.inputs.end());
    needed_.erase("");  // an input that is absent
  }
}

// Whether a node's input has its value now and for ever. A weight that is only turned or renamed stays one.
bool Importer::is_known(const Item& x, const Node& node, std::size_t place) {
  if (x.kind != Item::Kind::weight) return x.kind == Item::Kind::known;
  const auto status = status_of(x, node, place);
  if (status == TrainingFacts::Status::untrained) return node.op != "Transpose" && node.op != "Identity";
  return status == TrainingFacts::Status::constant;
}

std::vector<Constant> Importer::computed(const Node& node, std::span<const Constant* const> inputs) {
  try {
    return fold(node, inputs, file_.opset, budget_);
  } catch (const UserError& e) {
    fail_user("{}: {}{}", file_.path, e.what(), changes_batch() ? ", " + with_dynamic_batch() : "");
  }
}

std::string Importer::with_dynamic_batch() const {
  const std::string name = file_.inputs.empty() ? "input" : printable_name(file_.inputs[0].name);
  return fmt::format(
      "with a dynamic batch: torch.onnx.export(..., dynamic_axes={{\"{}\": {{0: \"batch\"}}}}, dynamo=False), or "
      "torch.onnx.export(..., dynamic_shapes=({{0: torch.export.Dim.DYNAMIC}},), dynamo=True)",
      name);
}

void Importer::process(const Node& node) {
  std::vector<std::shared_ptr<const Constant>> known(node.inputs.size());
  bool all_known = true, all_from_weights = true, is_broken = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].empty()) continue;
    const Item& x = item(node.inputs[i]);
    is_broken = is_broken || x.kind == Item::Kind::broken;
    const bool is_weight = x.kind == Item::Kind::weight;
    all_known = all_known && is_known(x, node, i);
    all_from_weights = all_from_weights && (x.kind == Item::Kind::known || is_weight || x.producer != nullptr);
  }
  const Lower lower = lowering_of(node.domain.empty() ? node.op : node.domain + "." + node.op);
  const bool can_fold = node.domain.empty() && is_foldable(node);
  if (is_broken) return pass_over(node, lower != nullptr, can_fold);
  if (all_known && can_fold) {
    std::vector<const Constant*> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].empty()) known[i] = known_of(item(node.inputs[i]));
      inputs.push_back(known[i].get());
    }
    if (node.op == "Expand" && changes_batch() && inputs.size() == 2 && known[0] != nullptr) {
      known[0] = std::make_shared<const Constant>(without_equal_rows(*known[0]));
      inputs[0] = known[0].get();
    }
    std::vector<Constant> results = computed(node, inputs);
    for (std::size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i)
      if (!node.outputs[i].empty()) give(node.outputs[i], std::move(results[i]));
    if (std::ranges::any_of(node.inputs, [&](const std::string& name) { return assumed_positions_.contains(name); }))
      assumed_positions_.insert(node.outputs.begin(), node.outputs.end());
    return;
  }
  if (lower == nullptr) return refuse_op(node, can_fold);
  try {
    Call call(*this, node);
    lower(call);
  } catch (const Unsupported& e) {
    return refuse(node, e.what());
  } catch (const UserError&) {
    // Behind a node that cannot be trained, it may come from what stands in for that.
    if (unsupported_.empty()) throw;
    for (const std::string& name : node.outputs) items_[name] = {};
    return;
  }
  inherit_outer(node);
  if (all_from_weights)
    for (const std::string& name : node.outputs)
      if (const auto it = items_.find(name); it != items_.end() && it->second.kind == Item::Kind::runtime)
        it->second.producer = &node;
}

Item& Importer::item(const std::string& name) {
  const auto it = items_.find(name);
  if (it == items_.end()) fail_user("{}: value '{}' is used but nothing makes it", file_.path, printable_name(name));
  return it->second;
}

std::vector<std::int64_t> Importer::dims_of(const Item& x) const {
  switch (x.kind) {
    case Item::Kind::known:
      return x.known->dims;
    case Item::Kind::weight: {
      std::vector<std::int64_t> dims = x.tensor->dims;
      if (x.is_transposed) std::swap(dims[0], dims[1]);
      return dims;
    }
    default: {
      const Shape& s = model_.shape(x.value);
      return {s.span().begin(), s.span().end()};
    }
  }
}

void Importer::give(const std::string& name, Value value) {
  const Shape& s = model_.shape(value);
  check_dims(s.span());
  items_[name] = {.kind = Item::Kind::runtime, .value = value};
}

void Importer::give(const std::string& name, Constant constant) {
  items_[name] = {.kind = Item::Kind::known, .known = std::make_shared<const Constant>(std::move(constant))};
}

std::shared_ptr<const Constant> Importer::known_of(Item& x, int depth) {
  if (x.kind == Item::Kind::known) return x.known;
  if (x.kind == Item::Kind::weight) {
    Constant c = read_constant(*x.tensor, budget_, fmt::format("{}: weight '{}'", file_.path, x.tensor->name));
    if (!x.is_transposed) return std::make_shared<const Constant>(std::move(c));
    const Node transpose{.op = "Transpose", .inputs = {""}, .outputs = {""}};
    const Constant* input = &c;
    return std::make_shared<const Constant>(std::move(fold(transpose, {&input, 1}, file_.opset, budget_)[0]));
  }
  if (x.known != nullptr || x.producer == nullptr || !is_foldable(*x.producer) || depth == kMostSteps) return x.known;
  const Node& node = *x.producer;
  std::vector<std::shared_ptr<const Constant>> held;
  std::vector<const Constant*> inputs;
  for (const std::string& name : node.inputs) {
    held.push_back(name.empty() ? nullptr : known_of(item(name), depth + 1));
    if (!name.empty() && held.back() == nullptr) return nullptr;
    inputs.push_back(held.back().get());
  }
  std::vector<Constant> results = computed(node, inputs);
  for (std::size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i)
    if (const auto it = items_.find(node.outputs[i]); it != items_.end())
      it->second.known = std::make_shared<const Constant>(std::move(results[i]));
  return x.known;
}

std::vector<const Tensor*> Importer::roots(const Item& x) const {
  std::vector<const Tensor*> found;
  std::set<const Item*> seen = {&x};
  std::vector<const Item*> open = {&x};
  while (!open.empty() && seen.size() < kMostSteps) {
    const Item& at = *open.back();
    open.pop_back();
    if (at.kind == Item::Kind::weight) found.push_back(at.tensor);
    if (at.kind == Item::Kind::weight || at.producer == nullptr) continue;
    for (const std::string& name : at.producer->inputs)
      if (const auto it = items_.find(name); it != items_.end() && seen.insert(&it->second).second)
        open.push_back(&it->second);
  }
  return found;
}

void Importer::add_loss(Value output) {
  const Shape s = model_.shape(output);
  if (s[0] != batch_)
    fail_user("{}: output '{}' is {}, but the batch is {}; export the model {}", file_.path, printable_name(output_),
              to_string(s), batch_, with_dynamic_batch());
  if (options_.loss == "mse") {
    model_.mean_squared_error(output);
  } else if (options_.loss != "cross-entropy") {
    fail_user("`loss {}`: no such loss; choose cross-entropy or mse", options_.loss);
  } else if (s.rank < 2) {
    fail_user("{}: output '{}' is {}; cross-entropy needs scores per class: use `loss mse`, or choose another `output`",
              file_.path, printable_name(output_), to_string(s));
  } else {
    // Maps of classes are [N, C, H, W] in PyTorch, volumes [N, C, D, H, W]; scores of positions have their classes
    // last.
    std::vector<std::int64_t> classes_last = {0, 2, 3, 4, 5, 1};
    classes_last.erase(classes_last.begin() + s.rank - 1, classes_last.end() - 1);
    model_.cross_entropy(s.rank > 3 ? model_.transpose(output, classes_last) : output);
  }
}

Network Importer::run() {
  read_settings();
  find_needed();
  try {
    add_inputs();
  } catch (const Unsupported& e) {
    fail_user("{}: an input: {}; lower the dimensions", file_.path, e.what());
  }
  add_initializers();
  for (const Node& node : file_.nodes)
    if (std::ranges::any_of(node.outputs, [&](const std::string& name) { return needed_.contains(name); }))
      process(node);
  if (!unsupported_.empty()) fail_unsupported();
  check_nothing_lost();
  check_trained_is_said();
  Item& out = item(output_);
  if (out.kind != Item::Kind::runtime)
    fail_user("{}: output '{}' does not depend on the input, so there is nothing to train", file_.path,
              printable_name(output_));
  add_loss(out.value);
  Network network{std::move(model_).finish(), std::move(values_)};
  if (probe_ > 0) look_across_samples(network.graph);
  freeze_untrained(network.graph);
  if (file_.signature)
    for (const SignatureTensor& t : file_.signature->tensors()) network.listed.push_back(t.name);
  return network;
}

}  // namespace onnx

namespace {

// A copy for another look at a file, of which the user hears nothing.
ImportOptions quiet(ImportOptions options) {
  options.note = {};
  return options;
}

// What the loss reads of one sample.
std::vector<std::int64_t> scores_of_sample(const Graph& g) {
  const Shape& s = g.buffers[g.reads(g.tasks.back())[0]].shape;
  return {s.span().begin() + 1, s.span().end()};
}

// A loss over the samples of a batch, as contrastive ones are, has labels or targets that say where in the batch
// another sample is. Samples are shuffled, so what data would say of that is wrong.
void check_labels(const onnx::File& file, const ImportOptions& options, onnx::BatchPlaces& places, const Graph& g) {
  const std::vector<std::int64_t> scores = scores_of_sample(g);
  const std::int64_t batch = g.buffers[g.reads(g.tasks.back())[0]].shape[0];
  if (batch == 1 || std::ranges::none_of(scores, [&](std::int64_t d) { return d % batch == 0; })) return;
  ImportOptions other = quiet(options);
  other.settings.set("batch", static_cast<double>((batch + 1) * options.pieces));
  std::vector<std::int64_t> others;
  try {
    others = scores_of_sample(onnx::Importer(file, other, places, 0).run().graph);
  } catch (const UserError&) {
    return;  // it is made for one batch, so these dimensions are its own
  }
  if (others != scores)
    fail_user(
        "{}: the output that is trained is [{}, {}] with a batch of {}, but [{}, {}] with {}: its labels would say "
        "which samples of a batch belong together, and samples are shuffled; have the model give one number per sample "
        "and train that with `loss mse`",
        file.path, batch, fmt::join(scores, ", "), batch, batch + 1, fmt::join(others, ", "), batch + 1);
}

// Imports the file with another batch than any of its own: where it counts samples, and whether it can do that.
std::string probed(const onnx::File& file, const ImportOptions& options, onnx::BatchPlaces& places) {
  const ImportOptions unheard = quiet(options);
  onnx::Importer probe(file, unheard, places, onnx::probe_batch(file));
  try {
    probe.run();
  } catch (const UserError& e) {
    if (probe.exported_batch() > 0 && probe.batch_is_fixed_by().empty()) return e.what();
  }
  return probe.batch_is_fixed_by();
}

Network import_file(onnx::File file, const ImportOptions& options) {
  resolve_scopes(file);
  onnx::BatchPlaces places;
  // Overtake's export function and the dynamo exporter make sure that a dynamic batch is one.
  const bool is_sure = file.facts || file.signature;
  const bool is_static = !file.inputs.empty() && !file.inputs[0].dims.empty() && file.inputs[0].dims[0].value > 0;
  const std::string fixed_by = is_static || !is_sure ? probed(file, options, places) : "";
  onnx::Importer importer(file, options, places, 0);
  Network network = importer.run();
  if (!fixed_by.empty() && (importer.changes_batch() || !is_static))
    fail_user(
        "{}: it can only be trained with the batch of its export{}: {}; export the model with a dynamic batch, as "
        "python/overtake_export.py does",
        file.path, is_static ? fmt::format(", {}", importer.exported_batch()) : "", fixed_by);
  if (is_static && importer.changes_batch() && options.note)
    options.note(fmt::format(
        "{}: it was exported for a batch of {} alone, so numbers that the model computes from the batch stay those of "
        "that; python/overtake_export.py exports models for any batch",
        file.path, importer.exported_batch()));
  check_labels(file, options, places, network.graph);
  return network;
}

}  // namespace

Network import_onnx(const std::filesystem::path& path, const ImportOptions& options) {
  return import_file(onnx::read_file(path), options);
}

Network import_onnx(std::shared_ptr<const std::string> content, const std::filesystem::path& path,
                    const ImportOptions& options) {
  return import_file(onnx::parse_file(std::move(content), path), options);
}

}  // namespace overtake
