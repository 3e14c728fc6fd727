// Clipping and the optimizers. Weight, gradient, states and copy lie alike, so updates are elementwise over memory
// whatever the layout. A step whose loss is not finite changes no weight; a gradient that is not finite is not applied,
// and makes the step's loss NaN, so that the host sees it.

#include "base/error.h"
#include "exec/cuda/bindings.h"
#include "kernels/cuda/optimizer.h"

namespace overtake::cuda_bindings {
namespace {

using cuda::UpdateTensor;
using cuda::UpdateTile;

struct Tiles {
  const UpdateTile* data;
  std::int64_t count;
};

Tiles upload_tiles(const std::vector<UpdateTensor>& tensors, BoundPlanData& program) {
  const std::vector<UpdateTile> tiles = cuda::cut_in_tiles(tensors);
  return {program.upload(std::span<const UpdateTile>(tiles)), static_cast<std::int64_t>(tiles.size())};
}

cuda::StepLosses losses_of(const TaskView& v) {
  const std::vector<BufferId>& losses = v.graph().losses;
  if (losses.size() > cuda::StepLosses::kMost)
    fail_user("model {}: {} losses; at most {} can be trained on a GPU", v.graph().model, losses.size(),
              cuda::StepLosses::kMost);
  cuda::StepLosses out;
  for (const BufferId b : losses) out.loss[out.count++] = reinterpret_cast<float*>(v.address(b));
  return out;
}

// The operands of each weight follow one another; reads w, dw, factor?, states..., copy?, writes w, states..., copy?.
struct Update {
  std::size_t reads, writes;
};
std::vector<UpdateTensor> tensors_of(const TaskView& v, Update one) {
  std::vector<UpdateTensor> tensors;
  for (std::size_t r = 0, w = 0; r < v.reads(); r += one.reads, w += one.writes) {
    const Buffer& grad = v.read(r + 1);
    OVERTAKE_CHECK(grad.layout == v.write(w).layout, "weight and gradient of {} lie differently",
                   v.graph().layer_name(v.task().layer));
    tensors.push_back({.grad = v.in<std::byte>(r + 1),
                       .is_grad_bf16 = grad.dtype == DType::bf16,
                       .weight = v.out<float>(w),
                       .first = v.out<float>(w + 1),
                       .second = one.writes > 3 ? v.out<float>(w + 2) : nullptr,
                       .copy = v.out<bf16>(w + one.writes - 1),
                       .count = padded_elements(grad.layout, grad.shape.span())});
  }
  return tensors;
}

// The factor is the second of clip_norm's two results.
const float* factor_of(const TaskView& v) { return v.has_read(2) ? v.in<float>(2) + 1 : nullptr; }

Launch bind_sgd(const TaskView& v, BoundPlanData& program) {
  const cuda::SgdSettings settings{static_cast<float>(v.attrs().real("momentum")),
                                   static_cast<float>(v.attrs().real("weight_decay")),
                                   v.attrs().integer("nesterov") != 0};
  const Tiles tiles = upload_tiles(tensors_of(v, {.reads = 5, .writes = 3}), program);
  const cuda::StepValues* values = program.step_values();
  return [=, factor = factor_of(v), losses = losses_of(v)](cudaStream_t s) {
    cuda::sgd_update(s, values, settings, tiles.data, tiles.count, factor, losses);
  };
}

Launch bind_adamw(const TaskView& v, BoundPlanData& program) {
  const Attrs& a = v.attrs();
  const cuda::AdamWSettings settings{a.real("beta1"), a.real("beta2"), a.real("eps"), a.real("weight_decay")};
  const Tiles tiles = upload_tiles(tensors_of(v, {.reads = 6, .writes = 4}), program);
  const cuda::StepValues* values = program.step_values();
  return [=, factor = factor_of(v), losses = losses_of(v)](cudaStream_t s) {
    cuda::adamw_update(s, values, settings, tiles.data, tiles.count, factor, losses);
  };
}

std::vector<UpdateTensor> clipped_tensors(const TaskView& v, bool with_pointers) {
  std::vector<UpdateTensor> tensors;
  for (std::size_t i = 0; i < v.reads(); ++i) {
    UpdateTensor t{};
    t.grad = with_pointers ? v.in<std::byte>(i) : nullptr;
    t.is_grad_bf16 = v.read(i).dtype == DType::bf16;
    t.count = padded_elements(v.read(i).layout, v.read(i).shape.span());
    tensors.push_back(t);
  }
  return tensors;
}

std::int64_t tiles_of(const UpdateTensor& t) { return (t.count + cuda::kUpdateTile - 1) / cuda::kUpdateTile; }

Launch bind_squared_norm(const TaskView& v, BoundPlanData& program) {
  const std::vector<UpdateTensor> tensors = clipped_tensors(v, true);
  const Tiles tiles = upload_tiles(tensors, program);
  std::vector<std::int64_t> firsts = {0};  // of each tensor's tiles, and the end
  for (const UpdateTensor& t : tensors) firsts.push_back(firsts.back() + tiles_of(t));
  const std::int64_t* table = program.upload(std::span<const std::int64_t>(firsts));
  auto* partials = reinterpret_cast<double*>(v.scratch());
  auto* sums = v.out<double>(0);
  return [=, count = std::ssize(tensors)](cudaStream_t s) {
    cuda::squared_norm_partials(s, tiles.data, tiles.count, partials);
    cuda::sums_of_partials(s, partials, table, count, sums);
  };
}

std::int64_t squared_norm_scratch(const TaskView& v, CudaDevice&) {
  std::int64_t tiles = 0;
  for (const UpdateTensor& t : clipped_tensors(v, false)) tiles += tiles_of(t);
  return tiles * static_cast<std::int64_t>(sizeof(double));
}

Launch bind_clip_norm(const TaskView& v, BoundPlanData& program) {
  const auto max_norm = static_cast<float>(v.attrs().real("max_norm"));
  const std::int64_t* order = nullptr;
  std::int64_t count = v.read(0).shape[0] / std::int64_t{sizeof(double)};
  if (v.attrs().has("order")) {
    const std::vector<std::int64_t>& places = v.attrs().integers("order");
    order = program.upload(std::span<const std::int64_t>(places));
    count = std::ssize(places);
  }
  const auto* sums = v.in<double>(0);
  float* result = v.out<float>(0);
  return [=](cudaStream_t s) { cuda::clip_factor(s, sums, order, count, max_norm, result); };
}

}  // namespace

CudaBinding squared_norm() { return {bind_squared_norm, squared_norm_scratch}; }
CudaBinding clip_norm() { return {bind_clip_norm, nullptr}; }
CudaBinding sgd() { return {bind_sgd, nullptr}; }
CudaBinding adamw() { return {bind_adamw, nullptr}; }

}  // namespace overtake::cuda_bindings
