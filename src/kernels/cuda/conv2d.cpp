#include "kernels/cuda/conv2d.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cuda/conv_check.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/element_type.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/random_fill.h"

namespace overtake::cuda {
namespace {

namespace fe = cudnn_frontend;
using kernels::ConvShape;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr std::size_t kMostCandidates = 10;  // each may have to be compiled
constexpr double kMostForPitches = 1.25;     // times what dense images take: above that, copies cost less

// Names of what a run is given.
enum Operand : std::int64_t { kA = 1, kB, kBias, kOut };

using Pointers = std::unordered_map<std::int64_t, void*>;

struct Candidate {
  std::int64_t index;  // in the graph's list
  std::string name;
  std::size_t workspace;
};

// Keeps one of the plans built to be compared; the others hold compiled code.
class Graph : public fe::graph::Graph {
 public:
  void drop_all_but(std::int64_t index) {
    for (std::size_t i = 0; i < plans.execution_plans.size(); ++i)
      if (static_cast<std::int64_t>(i) != index) plans.execution_plans[i] = nullptr;
  }
};

void check(fe::error_object error, const char* what) {
  if (error.is_bad()) throw std::runtime_error(fmt::format("cuDNN: {}: {}", what, error.get_message()));
}

fe::DataType_t type_of(ElementType type) {
  return type == ElementType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::FLOAT;
}
ElementType element_type(const ConvKind& kind) { return kind.shape.bf16 ? ElementType::bf16 : ElementType::f32; }

// An array of logical dimensions n, c, h, w that lies as [n][h][w][c], one pixel `pitch` elements after the other.
struct Array {
  std::int64_t n, c, h, w, pitch = c;

  std::int64_t elements() const { return n * h * w * pitch; }
  std::vector<std::int64_t> sizes() const { return {n, c, h, w}; }
  std::vector<std::int64_t> strides() const { return {h * w * pitch, 1, w * pitch, pitch}; }
};
Array x_array(const ConvKind& k) {
  const ConvShape& s = k.shape;
  return {s.batch, s.in_channels, s.in_h, s.in_w, k.x_pitch == 0 ? s.in_channels : k.x_pitch};
}
Array y_array(const ConvKind& k) {
  const ConvShape& s = k.shape;
  return {s.batch, s.out_channels, s.out_h, s.out_w, k.y_pitch == 0 ? s.out_channels : k.y_pitch};
}
Array w_array(const ConvKind& k) {
  const ConvShape& s = k.shape;
  return {s.out_channels, s.in_channels / s.groups, s.kernel_h, s.kernel_w};
}
Array bias_array(const ConvKind& k) { return {1, k.shape.out_channels, 1, 1}; }

Array a_array(const ConvKind& k) { return k.task == ConvTask::input_grad ? y_array(k) : x_array(k); }
Array b_array(const ConvKind& k) { return k.task == ConvTask::weight_grad ? y_array(k) : w_array(k); }
Array out_array(const ConvKind& k) {
  if (k.task == ConvTask::forward) return y_array(k);
  return k.task == ConvTask::input_grad ? x_array(k) : w_array(k);
}

// The padding after the last element is only there to be counted in the size of the result; where as much as before the
// first gives the same size, that is what more plans can do.
std::int64_t pad_after(std::int64_t before, std::int64_t after, std::int64_t in, std::int64_t kernel,
                       std::int64_t dilation, std::int64_t stride) {
  const std::int64_t rest = in + before - dilation * (kernel - 1) - 1;
  const bool is_same = rest + before >= 0 && (rest + before) / stride == (rest + after) / stride;
  return is_same ? before : after;
}

template <class Attributes>
Attributes geometry(const ConvShape& s) {
  const std::int64_t bottom = pad_after(s.pad_top, s.pad_bottom, s.in_h, s.kernel_h, s.dilation_h, s.stride_h);
  const std::int64_t right = pad_after(s.pad_left, s.pad_right, s.in_w, s.kernel_w, s.dilation_w, s.stride_w);
  return Attributes()
      .set_pre_padding({s.pad_top, s.pad_left})
      .set_post_padding({bottom, right})
      .set_stride({s.stride_h, s.stride_w})
      .set_dilation({s.dilation_h, s.dilation_w});
}

Tensor operand(Graph& graph, Operand uid, const Array& array, ElementType type) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(uid)
                          .set_dim(array.sizes())
                          .set_stride(array.strides())
                          .set_data_type(type_of(type)));
}

// The operations of a kind.
std::unique_ptr<Graph> describe(const ConvKind& kind) {
  const ConvShape& s = kind.shape;
  const Array result = out_array(kind);
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(type_of(element_type(kind)))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const Tensor a = operand(*graph, kA, a_array(kind), element_type(kind));
  const Tensor b = operand(*graph, kB, b_array(kind), element_type(kind));
  Tensor out;
  if (kind.task == ConvTask::forward) {
    out = graph->conv_fprop(a, b, geometry<fe::graph::Conv_fprop_attributes>(s));
  } else if (kind.task == ConvTask::input_grad) {
    out = graph->conv_dgrad(a, b, geometry<fe::graph::Conv_dgrad_attributes>(s));
  } else {
    out = graph->conv_wgrad(b, a, geometry<fe::graph::Conv_wgrad_attributes>(s));
  }
  out->set_dim(result.sizes()).set_stride(result.strides());
  if (kind.bias) {
    const Tensor bias = operand(*graph, kBias, bias_array(kind), ElementType::f32);
    out = graph->pointwise(out, bias,
                           fe::graph::Pointwise_attributes()
                               .set_mode(fe::PointwiseMode_t::ADD)
                               .set_compute_data_type(fe::DataType_t::FLOAT));
    out->set_dim(result.sizes()).set_stride(result.strides());
  }
  out->set_output(true).set_uid(kOut).set_data_type(type_of(element_type(kind)));
  return graph;
}

// What engines must not do.
std::vector<fe::NumericalNote_t> unwanted(const ConvKind& kind, bool deterministic) {
  using Note = fe::NumericalNote_t;
  // Large Winograd tiles lose digits.
  std::vector<Note> notes = {Note::REDUCED_PRECISION_REDUCTION, Note::WINOGRAD_TILE_6x6, Note::WINOGRAD_TILE_13x13};
  if (deterministic) notes.push_back(Note::NONDETERMINISTIC);
  if (!kind.shape.bf16 && !kind.tf32) notes.insert(notes.end(), {Note::TENSOR_CORE, Note::DOWN_CONVERT_INPUTS});
  return notes;
}

// What to look for: all plans, or the one of a name.
struct Search {
  std::vector<fe::NumericalNote_t> unwanted;
  std::size_t most_workspace, most_plans;
  std::optional<std::string> name;
};

// Builds plans of the graph, in the order of cuDNN's heuristic; only if that knows none, from the list of what should
// work anywhere. None where cuDNN does not know the graph; then `reason` says why.
std::vector<Candidate> build(Graph& graph, const Search& search, std::string& reason) {
  std::vector<Candidate> found;
  const Cudnn cudnn;
  const auto good = [&](fe::error_object error) {
    if (error.is_bad()) reason = error.get_message();
    return error.is_good();
  };
  if (!good(graph.validate()) || !good(graph.build_operation_graph(cudnn.handle()))) return found;
  for (const fe::HeurMode_t mode : {fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK}) {
    const std::int64_t first = graph.get_execution_plan_count();
    if (!good(graph.create_execution_plans({mode}))) continue;
    graph.deselect_numeric_notes(search.unwanted);
    graph.deselect_workspace_greater_than(static_cast<std::int64_t>(search.most_workspace));
    for (std::int64_t i = first; i < graph.get_execution_plan_count() && found.size() < search.most_plans; ++i) {
      Candidate one{i, {}, 0};
      std::int64_t bytes = 0;
      if (!good(graph.get_plan_name_at_index(i, one.name)) || (search.name && one.name != *search.name)) continue;
      if (std::any_of(found.begin(), found.end(), [&](const Candidate& c) { return c.name == one.name; })) continue;
      if (!good(graph.build_plan_at_index(i)) || !good(graph.get_workspace_size_plan_at_index(i, bytes))) continue;
      one.workspace = static_cast<std::size_t>(bytes);
      if (one.workspace <= search.most_workspace) found.push_back(one);
    }
    if (!found.empty()) break;
  }
  return found;
}

const char* name_of(ConvTask task) {
  if (task == ConvTask::forward) return "forward";
  return task == ConvTask::input_grad ? "input_grad" : "weight_grad";
}

// Random operands of a kind, to try plans with.
class TrialOperands {
 public:
  TrialOperands(const ConvKind& kind, const std::vector<Candidate>& candidates)
      : a(element_type(kind), a_array(kind).elements(), 1),
        b(element_type(kind), b_array(kind).elements(), 2),
        out(element_type(kind), out_array(kind).elements(), 3),
        bias(ElementType::f32, kind.bias ? kind.shape.out_channels : 0, 4),
        workspace(most_workspace(candidates)),
        pointers{{kA, a.data()}, {kB, b.data()}, {kOut, out.data()}} {
    if (kind.bias) pointers[kBias] = bias.data();
  }

  const TemporaryArray a, b, out, bias, workspace;
  Pointers pointers;

 private:
  static std::size_t most_workspace(const std::vector<Candidate>& candidates) {
    std::size_t most = 0;
    for (const Candidate& one : candidates) most = std::max(most, one.workspace);
    return most;
  }
};

// All that the fastest plan depends on.
std::string key_of(const ConvKind& k, bool deterministic, std::size_t most_workspace) {
  const ConvShape& s = k.shape;
  const bool is_pitched = k.x_pitch != 0 || k.y_pitch != 0;
  return fmt::format(
      "checked conv {} {}x{}x{}x{} {}x{}x{} kernel {}x{} stride {}x{} pad {},{},{},{} dilation {}x{} groups {} {}{} {} "
      "{} "
      "workspace {}{}",
      name_of(k.task), s.batch, s.in_channels, s.in_h, s.in_w, s.out_channels, s.out_h, s.out_w, s.kernel_h, s.kernel_w,
      s.stride_h, s.stride_w, s.pad_top, s.pad_left, s.pad_bottom, s.pad_right, s.dilation_h, s.dilation_w, s.groups,
      name_of(element_type(k)), k.bias ? " bias" : "", k.tf32 ? "tf32" : "full", deterministic ? "ordered" : "any",
      most_workspace, is_pitched ? fmt::format(" pitch {},{}", k.x_pitch, k.y_pitch) : "");
}

}  // namespace

struct Conv::Plan {
  Plan(const ConvKind& k, Tuning& tuning, std::size_t most_workspace) : kind(k) {
    if (kind.bias && kind.task != ConvTask::forward)
      throw std::runtime_error("conv: a bias belongs to the forward task");
    const TuningOptions& options = tuning.options();
    const std::string key = key_of(kind, options.deterministic, most_workspace);
    Search search{unwanted(kind, options.deterministic), most_workspace, options.measure ? kMostCandidates : 1, {}};
    if (const auto kept = options.measure ? tuning.find(key) : std::nullopt;
        kept && take(*kept, search) && can_run(tuning))
      return;

    std::vector<Candidate> found = right_plans(search, tuning, key);
    if (found.empty()) {  // the first was wrong; others may be right
      search.most_plans = kMostCandidates;
      found = right_plans(search, tuning, key);
    }
    if (found.empty()) throw std::runtime_error(fmt::format("cuDNN has no plan for {} that gives right sums", key));
    plan = found.front();
    if (options.measure && !measure(found, tuning, key))
      throw std::runtime_error(fmt::format("cuDNN has no plan for {}: none of those it has ran", key));
    graph->drop_all_but(plan.index);
  }

  // Builds the plan of that name; false where it can not.
  bool take(const std::string& name, Search search) {
    search.name = name;
    search.most_plans = 1;
    graph = describe(kind);
    std::string reason;
    const std::vector<Candidate> found = build(*graph, search, reason);
    if (found.empty()) return false;
    plan = found.front();
    return true;
  }

  // On every part of the GPU that it must run on.
  bool can_run(Tuning& tuning) const { return tuning.options().parts.empty() || fastest({plan}, tuning).has_value(); }

  // Plans that give what they should, where that can be tried. A std::runtime_error where there are none at all.
  std::vector<Candidate> right_plans(const Search& search, Tuning& tuning, const std::string& key) {
    std::string reason;
    graph = describe(kind);
    std::vector<Candidate> found = build(*graph, search, reason);
    if (found.empty()) throw std::runtime_error(fmt::format("cuDNN has no plan for {}: {}", key, reason));
    try {
      TrialOperands operands(kind, found);
      std::erase_if(found, [&](const Candidate& one) { return !is_right_plan(one, operands, tuning, key); });
    } catch (const std::runtime_error& error) {
      tuning.note(fmt::format("{}: not checked: {}", key, error.what()));
    }
    return found;
  }

  bool is_right_plan(const Candidate& one, TrialOperands& operands, Tuning& tuning, const std::string& key) const {
    random_fill(nullptr, element_type(kind), operands.out.data(), out_array(kind).elements(), 5);
    const auto run = [&](cudaStream_t s) { enqueue(s, one.index, operands.pointers, operands.workspace.data()); };
    try {
      run(nullptr);
    } catch (const std::runtime_error&) {
      return false;  // promised, but it cannot run
    }
    const auto* bias = kind.bias ? static_cast<const float*>(operands.bias.data()) : nullptr;
    if (is_right(nullptr, kind, operands.a.data(), operands.b.data(), bias, operands.out.data()))
      return tuning.can_run(run);
    tuning.note(fmt::format("cuDNN's plan {} is left out, its sums are wrong: {}", one.name, key));
    return false;
  }

  // Takes the fastest; false if none ran. Where nothing can be measured, the first one stays.
  bool measure(const std::vector<Candidate>& found, Tuning& tuning, const std::string& key) {
    std::optional<Fastest> best;
    try {
      best = fastest(found, tuning);
    } catch (const std::runtime_error& error) {
      tuning.note(fmt::format("{}: not measured: {}", key, error.what()));
      return true;
    }
    if (!best) return false;
    plan = found[best->candidate];
    microseconds = best->microseconds;
    tuning.keep(key, plan.name);
    return true;
  }

  std::optional<Fastest> fastest(const std::vector<Candidate>& found, Tuning& tuning) const {
    TrialOperands operands(kind, found);
    return tuning.fastest_of(found.size(), [&](std::size_t i, cudaStream_t stream) {
      enqueue(stream, found[i].index, operands.pointers, operands.workspace.data());
    });
  }

  void enqueue(cudaStream_t stream, std::int64_t index, Pointers& pointers, void* workspace) const {
    const Cudnn cudnn(stream);
    check(graph->execute_plan_at_index(cudnn.handle(), pointers, workspace, index), "running a convolution");
  }

  ConvKind kind;
  std::unique_ptr<Graph> graph;
  Candidate plan;
  double microseconds = 0;
};

Conv::Conv(const ConvKind& kind, Tuning& tuning, std::size_t most_workspace)
    : plan_(std::make_unique<Plan>(kind, tuning, most_workspace)) {}
Conv::~Conv() = default;
Conv::Conv(Conv&&) noexcept = default;
Conv& Conv::operator=(Conv&&) noexcept = default;

std::size_t Conv::workspace_bytes() const { return plan_->plan.workspace; }
const std::string& Conv::plan_name() const { return plan_->plan.name; }
double Conv::microseconds() const { return plan_->microseconds; }

double Conv::measured(Tuning& tuning) const {
  if (plan_->microseconds > 0) return plan_->microseconds;
  const std::optional<Fastest> own = plan_->fastest({plan_->plan}, tuning);
  if (!own) throw std::runtime_error(fmt::format("cuDNN: {} does not run", plan_->plan.name));
  return own->microseconds;
}

// cuDNN takes pointers to what it only reads without const.
void Conv::run(cudaStream_t stream, const void* a, const void* b, const float* bias, void* out, void* workspace) const {
  require_aligned("conv", {a, b, bias, out, workspace});
  Pointers pointers{{kA, const_cast<void*>(a)}, {kB, const_cast<void*>(b)}, {kOut, out}};
  if (plan_->kind.bias) pointers[kBias] = const_cast<float*>(bias);
  plan_->enqueue(stream, plan_->plan.index, pointers, workspace);
}

bool takes_pitches(const ConvKind& kind, Tuning& tuning, std::size_t most_workspace) {
  const bool measure = tuning.options().measure;
  const std::string key = "does " + key_of(kind, tuning.options().deterministic, most_workspace);
  if (const auto kept = measure ? tuning.find(key) : std::nullopt) return *kept == "yes";
  bool pays = false;
  try {
    const Conv pitched(kind, tuning, most_workspace);
    ConvKind dense = kind;
    dense.x_pitch = dense.y_pitch = 0;
    pays =
        !measure || pitched.measured(tuning) <= kMostForPitches * Conv(dense, tuning, most_workspace).measured(tuning);
  } catch (const std::runtime_error& error) {
    tuning.note(error.what());
  }
  if (measure) tuning.keep(key, pays ? "yes" : "no");
  return pays;
}

}  // namespace overtake::cuda
