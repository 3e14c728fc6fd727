#pragma once
// The importer's state while it walks over a file's nodes. Every value of the file is one of: known now (shapes, masks,
// positions), a weight of the file, or a tensor of the model being built.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "models/network.h"
#include "models/onnx/constant.h"
#include "overtake/model.h"

namespace overtake::onnx {

// A node that cannot be trained; the importer collects them all before it gives up.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Item {
  enum class Kind : std::uint8_t { known, weight, runtime, nan_test, random, broken };
  Kind kind = Kind::broken;
  std::shared_ptr<const Constant> known = nullptr;  // known; of others, once it was asked for
  const Tensor* tensor = nullptr;                   // weight
  bool is_transposed = false;                       // weight: seen with its two dimensions swapped
  std::string alias = {};                           // weight: another name it goes by
  Value value = {};                // runtime; of nan_test what is tested; of the others once it is made
  const Node* producer = nullptr;  // runtime: where it could be computed now, from weights alone
  bool depends_on_data = false;    // broken
};

// A file exported for one batch has that number inside shapes. Where it stands for the batch is found by importing the
// file once with a batch that no dimension of its own is a multiple of. Per value of the file: its shape at the export,
// and which of its dimensions counts samples.
struct BatchPlace {
  std::vector<std::int64_t> baked;
  std::size_t dimension;
};
using BatchPlaces = std::unordered_map<std::string, BatchPlace>;
std::int64_t probe_batch(const File& file);

class Importer {
 public:
  // With a `probe`, that is the batch and places are found; else (0) those given are used.
  Importer(const File& file, const ImportOptions& options, BatchPlaces& places, std::int64_t probe);

  Network run();

  // For the lowering of nodes.
  Model& model() { return model_; }
  const File& file() const { return file_; }
  std::int64_t batch() const { return batch_; }
  std::int64_t exported_batch() const { return exported_batch_; }  // 0: symbolic
  Budget& budget() { return budget_; }
  // Whether the file was exported in training mode, so that batch norms that are in evaluation mode stay in it.
  bool is_of_training() const { return file_.facts || has_training_norm_; }
  // While probing: a tensor of `from` takes the baked shape `to` (one entry may be -1) and is called `name`.
  void find_batch(const Node& node, const std::vector<std::int64_t>& from, std::vector<std::int64_t> to);
  // The shape of a value that was found so, at the batch of this run.
  std::optional<std::vector<std::int64_t>> rebatched(const std::string& name) const;
  // How to export a model for any batch, for errors: "with ...".
  std::string with_dynamic_batch() const;
  // After a probe: why only the batch of the export is right; empty where any is.
  const std::string& batch_is_fixed_by() const { return batch_is_fixed_by_; }
  bool changes_batch() const { return exported_batch_ > 0 && exported_batch_ != batch_; }

  Item& item(const std::string& name);
  std::vector<std::int64_t> dims_of(const Item& item) const;
  // A tensor of the model for an operand of `node`: weights that train become parameters, what is known a constant.
  Value value_of(Item& item, const Node& node, const char* role);
  // As int32, for embeddings of so many rows; known ones are checked.
  Value indices_of(Item& item, const Node& node, std::int64_t rows);
  // Values that are known, or can be computed from the file's weights; null if not.
  std::shared_ptr<const Constant> known_of(Item& item) { return known_of(item, 0); }

  // What a parameter is called, and how that is known.
  struct ParameterName {
    std::string text;
    std::string stored;     // the file's own name of the tensor
    bool is_guess = false;  // by the module of a node: the file has lost the parameter's own name
  };
  // A parameter of the model, made at its first use; `values` are in stored form.
  Value parameter(const ParameterName& name, const Shape& shape, NamedTensor values);
  // A parameter, or its transpose where it was first used the other way round.
  struct Placed {
    Value value;
    bool is_turned;
  };
  // A weight of the file as the [out, in] of a linear layer; it comes as [in, out] where `is_in_out`.
  Placed linear_weight(Item& item, const Node& node, bool is_in_out);
  // A weight of the file as a parameter of `shape` at its place in a layer; a user error where its elements do not fit.
  Value weight(Item& item, const Node& node, const char* role, const Shape& shape);
  // A weight of the file as the table of an embedding.
  Value table(Item& item, const Node& node);
  // A user error where rows are looked up by positions that were assumed to start at 0 and the table says otherwise.
  void check_positions(Item& table, const Node& node);
  // A state (running statistics) likewise.
  Value state(Item& item, const Node& node, const char* role, const Shape& shape);
  // How PyTorch calls the parameter that a weight of the file is at a node, as its `role` ("weight", "bias").
  ParameterName parameter_name(const Item& item, const Node& node, const std::string& role);
  // The tensor of PyTorch's list that a weight of the file stands for at a node; null where there is no list, and for
  // what the export computed. Equal tensors are stored once, so the recorded call decides, not the stored name.
  const SignatureTensor* listed_tensor(const Item& item, const Node& node, std::string_view role) const;
  // Whether input `place` of a node is a tensor of the state_dict, trained or not.
  bool is_parameter(const Item& item, const Node& node, std::size_t place) {
    return item.kind == Item::Kind::weight && status_of(item, node, place) != TrainingFacts::Status::constant;
  }
  // The weights of the file that a value was made from.
  std::vector<const Tensor*> roots(const Item& item) const;
  // Names that exporters give to results of theirs instead of to a module's tensors.
  bool is_generated_name(const std::string& name) const;
  // Which layer of a recurrent module with several this is: counts from 0 per scope.
  std::int64_t next_layer_of(const std::string& scope) { return layers_of_scope_[scope]++; }
  std::string layer_name(const Node& node) const;

  void give(const std::string& name, Value value);
  void give(const std::string& name, Constant constant);
  void give(const std::string& name, Item item) { items_[name] = std::move(item); }

 private:
  std::shared_ptr<const Constant> known_of(Item& item, int depth);
  void read_settings();
  void add_inputs();
  // Whether an input is one of these, and it was given values.
  bool give_auxiliary(const ValueInfo& input, const std::vector<std::int64_t>& dims);
  bool is_position_input(const std::string& name) const;
  void add_initializers();
  void find_needed();
  std::vector<Constant> computed(const Node& node, std::span<const Constant* const> inputs);
  void process(const Node& node);
  void inherit_outer(const Node& node);
  void look_across_samples(const Graph& graph);
  // Of a weight of the file that is input `place` of a node.
  TrainingFacts::Status status_of(const Item& item, const Node& node, std::size_t place);
  TrainingFacts::Status listed_status(const Item& item, const Node& node, std::size_t place);
  TrainingFacts::Status guessed_status(const Item& item, const Node& node, std::size_t place);
  // The user says whether it is trained.
  void ask(std::string tensor);
  bool is_weight_of_its_node(const Item& item, const Node& node, std::size_t place);
  // A user error that names the tensors of which nobody said whether they are trained; a note of what is assumed.
  void check_trained_is_said();
  void check_all_are_trained() const;
  // Weights of the model that PyTorch does not train.
  void freeze_untrained(Graph& graph) const;
  Constant values_of(const Tensor& tensor);
  bool is_known(const Item& item, const Node& node, std::size_t place);
  Placed place(const ParameterName& name, const Shape& shape, NamedTensor values, bool stored_transposed);
  std::string claimed_name(const ParameterName& name, const NamedTensor& values);
  ParameterName guessed_name(const Item& item, const Node& node, const std::string& role);
  // Parameters of PyTorch's list that the model has not.
  std::vector<std::string> lost_parameters() const;
  // Layers that the export computed, so that their parameters would be trained as something else.
  std::vector<std::string> folded_layers() const;
  // A user error that names what the file has lost, or cannot tell from something else; a note if that is accepted.
  void check_nothing_lost();
  void look_at_uses();
  bool is_number(const Tensor& tensor) const;
  Value constant_value(const Constant& constant, const std::string& name);
  Constant without_equal_rows(const Constant& constant) const;
  NamedTensor without_repeats(NamedTensor tensor) const;
  const NamedTensor& transposed_of(const Tensor& tensor, const NamedTensor& stored);
  void add_loss(Value output);
  void refuse(const Node& node, std::string reason);
  void refuse_op(const Node& node, bool can_fold);  // which nothing here computes in a run
  // A node behind one that was refused.
  void pass_over(const Node& node, bool can_lower, bool can_fold);
  void stand_in(const std::string& name);
  [[noreturn]] void fail_unsupported() const;

  const File& file_;
  const ImportOptions& options_;
  BatchPlaces& places_;
  std::int64_t probe_;
  std::string batch_is_fixed_by_ = {};
  // While probing: where samples are counted by a dimension that was merged from several, how many there are around
  // them.
  std::unordered_map<std::string, std::int64_t> outer_;
  Budget budget_;
  std::int64_t batch_ = 0, exported_batch_ = 0;
  std::map<std::string, std::int64_t> symbols_;
  std::map<std::string, std::int64_t> first_positions_;  // by input, where the user says them
  std::set<std::string> assumed_positions_;              // values made from those that the user said nothing of
  Model model_;
  std::unordered_map<std::string, Item> items_;
  struct Made {
    Value value;
    std::string stored = {};  // ParameterName::stored at its first use
    std::size_t values = 0;   // place in values_
    bool stored_transposed = false;
    bool is_guess = false;
    bool is_state = false;  // written by its layer, so no one else's weight
  };
  std::unordered_map<std::string, Made> parameters_;  // and states
  std::vector<NamedTensor> values_;
  std::unordered_map<const Tensor*, NamedTensor> transposed_;
  std::unordered_map<std::string, int> copies_;                     // of a state's name, so that each layer has its own
  std::unordered_map<std::string, TrainingFacts::Status> guesses_;  // by name, where there are no facts
  std::vector<std::string> unsaid_;                                 // of what the file does not say, for an error
  std::set<std::string> used_train_tensors_;
  std::unordered_map<std::string, std::int64_t> layers_of_scope_;
  std::set<std::string> needed_;
  std::string output_;
  // A kind of node that cannot be trained.
  struct Refusal {
    std::string op, reason, torch_name;
    std::string first;  // for people
    std::size_t nodes = 0;
  };
  std::vector<Refusal> unsupported_;
  std::map<std::pair<std::string, std::string>, std::size_t> kinds_;  // of them, by op and reason
  std::unordered_map<std::string, const ValueInfo*> described_;       // values in between, by name
  bool has_origins_ = false;                                          // made by the exporter that records them
  bool has_training_norm_ = false, has_evaluated_norm_ = false;
  std::unordered_map<std::string, int> uses_;
  std::set<std::string> called_;                              // parameters that recorded calls name
  std::unordered_map<std::string_view, const Node*> makers_;  // of the results of recorded calls
  std::set<std::string> doubts_;  // tensors of which the file does not say what they were in the model
};

// One node being lowered.
class Call {
 public:
  Call(Importer& in, const Node& of) : importer(in), node(of) {}

  Importer& importer;
  const Node& node;

  Model& model() { return importer.model(); }
  std::string name() const { return importer.layer_name(node); }
  bool has(std::size_t i) const { return i < node.inputs.size() && !node.inputs[i].empty(); }
  Item& item(std::size_t i);  // Unsupported if it is absent
  std::vector<std::int64_t> dims(std::size_t i) { return importer.dims_of(item(i)); }

  // A float tensor of the model; weights are called by their role in the module.
  Value value(std::size_t i, const char* role = "weight");
  // Unsupported, naming `what`, where it is not known.
  const Constant& known(std::size_t i, const char* what);
  std::vector<std::int64_t> integers(std::size_t i, const char* what);
  // The number that an input of one element is; empty where it is something else, or a weight.
  std::optional<double> scalar(std::size_t i);
  // The same at a place where no weight can be: an exponent, a bound, a rate.
  std::optional<double> setting(std::size_t i);
  // Attributes that are sizes: user errors where they are out of all range.
  std::vector<std::int64_t> sizes(const char* attribute, std::size_t count, std::int64_t fallback);
  std::int64_t axis(std::int64_t given, std::size_t rank) const;
  // Axes given as attribute or input, made non-negative and sorted; empty where neither is there.
  std::vector<std::int64_t> axes(std::size_t input, std::size_t rank);

  void give(Value value, std::size_t output = 0);
  // The result is the input itself.
  void pass(std::size_t input);
  Value number(double value);  // a constant of one element
  Value scaled(Value x, double factor) { return model().mul(x, number(factor), name()); }
  Value reshaped(Value x, const std::vector<std::int64_t>& dims);
  std::vector<std::int64_t> dims_of(Value x);

 private:
  std::vector<std::shared_ptr<const Constant>> held_;
};

template <class... Args>
[[noreturn]] void fail_unsupported_node(fmt::format_string<Args...> text, Args&&... args) {
  throw Unsupported(fmt::format(text, std::forward<Args>(args)...));
}

// Whether a batch norm was exported in training mode.
bool is_training_norm(const Node& node);

// Node::scope of the older exporter, made certain by the names of the file's weights.
void resolve_scopes(File& file);

bool is_real(ElementType type);
// Whether dimensions can be a tensor of the model: at most six, each at least one, not too many elements.
void check_dims(std::span<const std::int64_t> dims);
Shape shape_of(std::span<const std::int64_t> dims);

using Lower = void (*)(Call&);
using LowerTable = std::unordered_map<std::string_view, Lower>;
// Null for an op that cannot be part of a trained model.
Lower lowering_of(const std::string& op);
void add_elementwise(LowerTable& table);
void add_movement(LowerTable& table);
void add_layers(LowerTable& table);
void add_recurrent(LowerTable& table);

}  // namespace overtake::onnx
