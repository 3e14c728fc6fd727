#pragma once
// Scaled dot-product attention on the GPU: kernels/cpu/attention.h, with the same meaning of strides, masks, the saved
// log-sum-exp (natural logarithm) and rows that see nothing. bf16 heads that cuDNN's fused kernels can take go there;
// everything else takes kernels of our own (attention_plain.h). Both give the same bits in every run.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bf16.h"
#include "kernels/cpu/attention.h"

namespace overtake::cuda {

using kernels::AttentionGrads;   // here with pointers into GPU memory
using kernels::AttentionInputs;  // here with pointers into GPU memory
using kernels::AttentionShape;

struct AttentionKind {
  AttentionShape shape;
  // Elements between the rows of dq, dk and dv, as in AttentionGrads; for the backward pass only.
  std::int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  bool has_mask = false;  // key_mask is given
  bool bf16 = false;      // T of the calls: bf16, or float
  bool plain = false;     // our own kernels even where cuDNN has one
  bool operator==(const AttentionKind&) const = default;
};

// The forward pass made ready for one shape on the current device. Any thread may run it.
class AttentionForward {
 public:
  explicit AttentionForward(const AttentionKind& kind);
  ~AttentionForward();
  AttentionForward(AttentionForward&&) noexcept;
  AttentionForward& operator=(AttentionForward&&) noexcept;

  std::size_t workspace_bytes() const;
  bool fused() const { return refusal().empty(); }  // it goes to cuDNN
  const std::string& refusal() const;               // why it does not; empty if it does

  // Enqueues it. o [B, Sq, H, D], rows o_stride apart; lse [B, H, Sq], -infinity for a query that sees no key. The
  // workspace, at a 256-byte boundary, must not be used by anything that may run at the same time.
  template <class T>
  void run(cudaStream_t stream, const AttentionInputs<T>& in, T* o, float* lse, void* workspace) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

// The backward pass made ready for one shape on the current device. Any thread may run it.
class AttentionBackward {
 public:
  explicit AttentionBackward(const AttentionKind& kind);
  ~AttentionBackward();
  AttentionBackward(AttentionBackward&&) noexcept;
  AttentionBackward& operator=(AttentionBackward&&) noexcept;

  std::size_t workspace_bytes() const;
  bool fused() const { return refusal().empty(); }  // it goes to cuDNN
  const std::string& refusal() const;               // why it does not; empty if it does

  // Enqueues it: writes dq, dk and dv (no accumulation), whose strides must be the kind's. o, lse are the forward's,
  // o_grad has o's layout; the workspace as above.
  template <class T>
  void run(cudaStream_t stream, const AttentionInputs<T>& in, const T* o, const float* lse, const T* o_grad,
           const AttentionGrads<T>& grads, void* workspace) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace overtake::cuda
