#include "kernels/cuda/attention.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <stdexcept>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/attention_mask.h"
#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pointers = std::unordered_map<std::int64_t, void*>;

// Names of what a run is given.
enum Operand : std::int64_t { kQ = 1, kK, kV, kBias, kO, kLse, kOGrad, kDq, kDk, kDv };

// Where things lie in the workspace, in bytes, each at a multiple of 256.
class Layout {
 public:
  std::size_t take(std::int64_t count, std::size_t element) {
    const std::size_t at = bytes_;
    bytes_ += (static_cast<std::size_t>(count) * element + 255) / 256 * 256;
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

template <class T>
T* place(void* workspace, std::size_t at) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + at);
}

void* pointer(const void* p) { return const_cast<void*>(p); }

// Why cuDNN is not even asked; empty if it is. Follows from the kind alone.
std::string known_refusal(const AttentionKind& kind, std::int64_t most_head_dim,
                          const std::vector<std::int64_t>& strides) {
  const AttentionShape& s = kind.shape;
  if (kind.plain) return "plain kernels were asked for";
  if (!kind.bf16) return "cuDNN's fused kernels are not for float32";
  if (s.head_dim % 8 != 0 || s.head_dim > most_head_dim)
    return fmt::format("a head of {} columns: cuDNN takes multiples of 8 up to {}", s.head_dim, most_head_dim);
  for (const std::int64_t stride : strides)
    if (stride % 8 != 0) return fmt::format("rows {} elements apart: cuDNN takes multiples of 8", stride);
  if (s.causal && s.queries > s.keys) return "causal with more queries than keys";
  if (s.causal && kind.has_mask && s.queries != s.keys) return "causal and masked with unequal queries and keys";
  return {};
}

// A tensor [B, S, H, D] of bf16, seen as [B, H, S, D].
void describe_rows(const Tensor& tensor, const AttentionShape& s, std::int64_t positions, std::int64_t stride) {
  tensor->set_dim({s.batch, s.heads, positions, s.head_dim})
      .set_stride({positions * stride, s.head_dim, stride, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

void describe_lse(const Tensor& tensor, const AttentionShape& s) {
  tensor->set_dim({s.batch, s.heads, s.queries, 1})
      .set_stride({s.heads * s.queries, s.queries, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

// A cuDNN graph of one attention task, with the plan that runs it.
class FusedGraph {
 public:
  explicit FusedGraph(const AttentionKind& kind) : shape_(kind.shape), has_mask_(kind.has_mask) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  Tensor rows(Operand name, std::int64_t positions, std::int64_t stride) {
    const Tensor tensor = input(name);
    describe_rows(tensor, shape_, positions, stride);
    return tensor;
  }

  Tensor lse() {
    const Tensor tensor = input(kLse);
    describe_lse(tensor, shape_);
    return tensor;
  }

  // What forward and backward say alike. Where there are as many keys as queries both diagonals are the same one, and
  // only the upper left one goes with a bias. bias_rows: 1, or as many as queries.
  template <class Options>
  void set_meaning(Options& options, std::int64_t bias_rows) {
    options.set_name("attention").set_attn_scale(shape_.scale);
    if (shape_.causal) {
      options.set_diagonal_alignment(shape_.queries == shape_.keys ? fe::DiagonalAlignment_t::TOP_LEFT
                                                                   : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
      options.set_diagonal_band_right_bound(0);
    }
    if (!has_mask_) return;
    const std::int64_t stride = attention_bias_stride(shape_.keys);
    const Tensor bias = input(kBias);
    bias->set_dim({shape_.batch, 1, bias_rows, shape_.keys})
        .set_stride({bias_rows * stride, bias_rows * stride, stride, 1})
        .set_data_type(fe::DataType_t::BFLOAT16);
    options.set_bias(bias);
  }

  fe::graph::Graph& graph() { return graph_; }

  // The first plan of the heuristic that gives the same bits in every run; else why there is none.
  std::string build() {
    const Cudnn cudnn;
    const auto steps = {
        +[](fe::graph::Graph& g, cudnnHandle_t) { return g.validate(); },
        +[](fe::graph::Graph& g, cudnnHandle_t handle) { return g.build_operation_graph(handle); },
        +[](fe::graph::Graph& g, cudnnHandle_t) { return g.create_execution_plans({fe::HeurMode_t::A}); },
        +[](fe::graph::Graph& g, cudnnHandle_t) {
          g.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
          return g.check_support();
        },
        +[](fe::graph::Graph& g, cudnnHandle_t) { return g.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE); },
    };
    for (const auto& step : steps) {
      fe::error_object error = step(graph_, cudnn.handle());
      if (error.is_bad()) return "cuDNN: " + error.get_message();
    }
    return {};
  }

  std::int64_t workspace_bytes() const { return graph_.get_workspace_size(); }

  void run(cudaStream_t stream, Pointers& pointers, void* workspace) const {
    const Cudnn cudnn(stream);
    fe::error_object error = graph_.execute(cudnn.handle(), pointers, workspace);
    if (error.is_bad()) throw std::runtime_error("cuDNN: running attention: " + error.get_message());
  }

 private:
  Tensor input(Operand name) { return graph_.tensor(fe::graph::Tensor_attributes().set_uid(name)); }

  AttentionShape shape_;
  bool has_mask_;
  fe::graph::Graph graph_;
};

template <class T>
void require_type(const AttentionKind& kind) {
  if (std::is_same_v<T, bf16> != kind.bf16) throw std::logic_error("attention was made ready for another type");
}

void prepare_plain(const AttentionKind& kind) {
  kind.bf16 ? attention_plain_prepare<bf16>(kind.shape) : attention_plain_prepare<float>(kind.shape);
}

}  // namespace

struct AttentionForward::Plan {
  explicit Plan(const AttentionKind& k) : kind(k) {
    const AttentionShape& s = kind.shape;
    refusal = known_refusal(kind, 256, {s.q_stride, s.k_stride, s.v_stride, s.o_stride});
    if (refusal.empty()) build();
    if (!refusal.empty()) {
      prepare_plain(kind);
      return;
    }
    fused_at = layout.take(fused->workspace_bytes(), 1);
    if (!kind.has_mask) return;
    bias_at = layout.take(s.batch * attention_bias_stride(s.keys), sizeof(bf16));
    first_shown_at = layout.take(s.batch, sizeof(std::int32_t));
  }

  void build() {
    const AttentionShape& s = kind.shape;
    fused = std::make_unique<FusedGraph>(kind);
    auto options = fe::graph::SDPA_attributes().set_generate_stats(true);  // log-sum-exp to the base e
    fused->set_meaning(options, 1);
    const auto [o, lse] =
        fused->graph().sdpa(fused->rows(kQ, s.queries, s.q_stride), fused->rows(kK, s.keys, s.k_stride),
                            fused->rows(kV, s.keys, s.v_stride), options);
    o->set_output(true).set_uid(kO);
    describe_rows(o, s, s.queries, s.o_stride);
    lse->set_output(true).set_uid(kLse);
    describe_lse(lse, s);
    refusal = fused->build();
    if (!refusal.empty()) fused.reset();
  }

  void run_fused(cudaStream_t stream, const AttentionInputs<bf16>& in, bf16* o, float* lse, void* workspace) const {
    require_aligned("attention_forward", {in.q, in.k, in.v, o, lse, workspace});
    Pointers pointers{{kQ, pointer(in.q)}, {kK, pointer(in.k)}, {kV, pointer(in.v)}, {kO, o}, {kLse, lse}};
    bf16* const bias = place<bf16>(workspace, bias_at);
    std::int32_t* const first_shown = place<std::int32_t>(workspace, first_shown_at);
    if (kind.has_mask) {
      attention_mask_bias(stream, kind.shape, in.key_mask, bias, first_shown);
      pointers.emplace(kBias, bias);
    }
    fused->run(stream, pointers, place<std::byte>(workspace, fused_at));
    if (kind.has_mask) attention_clear_blind(stream, kind.shape, first_shown, o, lse);
  }

  AttentionKind kind;
  std::string refusal;
  std::unique_ptr<FusedGraph> fused;
  Layout layout;
  std::size_t fused_at = 0, bias_at = 0, first_shown_at = 0;
};

AttentionForward::AttentionForward(const AttentionKind& kind) : plan_(std::make_unique<Plan>(kind)) {}
AttentionForward::~AttentionForward() = default;
AttentionForward::AttentionForward(AttentionForward&&) noexcept = default;
AttentionForward& AttentionForward::operator=(AttentionForward&&) noexcept = default;

std::size_t AttentionForward::workspace_bytes() const { return plan_->layout.bytes(); }
const std::string& AttentionForward::refusal() const { return plan_->refusal; }

template <class T>
void AttentionForward::run(cudaStream_t stream, const AttentionInputs<T>& in, T* o, float* lse, void* workspace) const {
  const Plan& p = *plan_;
  require_type<T>(p.kind);
  AttentionInputs<T> used = in;
  if (!p.kind.has_mask) used.key_mask = nullptr;
  if constexpr (std::is_same_v<T, bf16>) {
    if (p.refusal.empty()) return p.run_fused(stream, used, o, lse, workspace);
  }
  attention_plain_forward<T>(stream, p.kind.shape, used, o, lse);
}

struct AttentionBackward::Plan {
  explicit Plan(const AttentionKind& k) : kind(k) {
    const AttentionShape& s = kind.shape;
    const std::int64_t rows = s.batch * s.heads * s.queries;
    refusal = known_refusal(
        kind, 128, {s.q_stride, s.k_stride, s.v_stride, s.o_stride, kind.dq_stride, kind.dk_stride, kind.dv_stride});
    // Versions of cuDNN score the missing half of the last 128 keys as 0, which overflows where the log-sum-exp is
    // below -88: https://github.com/pytorch/pytorch/issues/196678.
    if (refusal.empty() && kind.has_mask && s.keys % 128 == 64) refusal = "a mask over an odd multiple of 64 keys";
    if (refusal.empty()) build();
    if (!refusal.empty()) {
      prepare_plain(kind);
      delta_at = layout.take(rows, sizeof(float));
      return;
    }
    fused_at = layout.take(fused->workspace_bytes(), 1);
    if (!kind.has_mask) return;
    bias_at = layout.take(s.batch * s.queries * attention_bias_stride(s.keys), sizeof(bf16));
    lse_at = layout.take(rows, sizeof(float));
  }

  void build() {
    const AttentionShape& s = kind.shape;
    fused = std::make_unique<FusedGraph>(kind);
    auto options = fe::graph::SDPA_backward_attributes().set_deterministic_algorithm(true);
    // A bias with all its rows is what cuDNN documents. The forward takes one row for all queries as well; given that,
    // the backward is wrong.
    fused->set_meaning(options, s.queries);
    const auto [dq, dk, dv] =
        fused->graph().sdpa_backward(fused->rows(kQ, s.queries, s.q_stride), fused->rows(kK, s.keys, s.k_stride),
                                     fused->rows(kV, s.keys, s.v_stride), fused->rows(kO, s.queries, s.o_stride),
                                     fused->rows(kOGrad, s.queries, s.o_stride), fused->lse(), options);
    dq->set_output(true).set_uid(kDq);
    describe_rows(dq, s, s.queries, kind.dq_stride);
    dk->set_output(true).set_uid(kDk);
    describe_rows(dk, s, s.keys, kind.dk_stride);
    dv->set_output(true).set_uid(kDv);
    describe_rows(dv, s, s.keys, kind.dv_stride);
    refusal = fused->build();
    if (!refusal.empty()) fused.reset();
  }

  void run_fused(cudaStream_t stream, const AttentionInputs<bf16>& in, const bf16* o, const float* lse,
                 const bf16* o_grad, const AttentionGrads<bf16>& grads, void* workspace) const {
    require_aligned("attention_backward", {in.q, in.k, in.v, o, lse, o_grad, grads.dq, grads.dk, grads.dv, workspace});
    Pointers pointers{{kQ, pointer(in.q)},       {kK, pointer(in.k)}, {kV, pointer(in.v)}, {kO, pointer(o)},
                      {kOGrad, pointer(o_grad)}, {kDq, grads.dq},     {kDk, grads.dk},     {kDv, grads.dv}};
    if (kind.has_mask) {
      bf16* const bias = place<bf16>(workspace, bias_at);
      float* const finite_lse = place<float>(workspace, lse_at);
      attention_mask_bias_backward(stream, kind.shape, in.key_mask, lse, bias, finite_lse);
      pointers.emplace(kBias, bias);
      lse = finite_lse;
    }
    pointers.emplace(kLse, pointer(lse));
    fused->run(stream, pointers, place<std::byte>(workspace, fused_at));
  }

  AttentionKind kind;
  std::string refusal;
  std::unique_ptr<FusedGraph> fused;
  Layout layout;
  std::size_t fused_at = 0, bias_at = 0, lse_at = 0, delta_at = 0;
};

AttentionBackward::AttentionBackward(const AttentionKind& kind) : plan_(std::make_unique<Plan>(kind)) {}
AttentionBackward::~AttentionBackward() = default;
AttentionBackward::AttentionBackward(AttentionBackward&&) noexcept = default;
AttentionBackward& AttentionBackward::operator=(AttentionBackward&&) noexcept = default;

std::size_t AttentionBackward::workspace_bytes() const { return plan_->layout.bytes(); }
const std::string& AttentionBackward::refusal() const { return plan_->refusal; }

template <class T>
void AttentionBackward::run(cudaStream_t stream, const AttentionInputs<T>& in, const T* o, const float* lse,
                            const T* o_grad, const AttentionGrads<T>& grads, void* workspace) const {
  const Plan& p = *plan_;
  require_type<T>(p.kind);
  if (grads.dq_stride != p.kind.dq_stride || grads.dk_stride != p.kind.dk_stride || grads.dv_stride != p.kind.dv_stride)
    throw std::logic_error("attention_backward was made ready for other strides of the gradients");
  AttentionInputs<T> used = in;
  if (!p.kind.has_mask) used.key_mask = nullptr;
  if constexpr (std::is_same_v<T, bf16>) {
    if (p.refusal.empty()) return p.run_fused(stream, used, o, lse, o_grad, grads, workspace);
  }
  attention_plain_backward<T>(stream, p.kind.shape, used, o, lse, o_grad, grads, place<float>(workspace, p.delta_at));
}

template void AttentionForward::run(cudaStream_t, const AttentionInputs<float>&, float*, float*, void*) const;
template void AttentionForward::run(cudaStream_t, const AttentionInputs<bf16>&, bf16*, float*, void*) const;
template void AttentionBackward::run(cudaStream_t, const AttentionInputs<float>&, const float*, const float*,
                                     const float*, const AttentionGrads<float>&, void*) const;
template void AttentionBackward::run(cudaStream_t, const AttentionInputs<bf16>&, const bf16*, const float*, const bf16*,
                                     const AttentionGrads<bf16>&, void*) const;

}  // namespace overtake::cuda
