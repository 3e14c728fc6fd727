#pragma once
// The bindings of each op to its kernels, defined in the bind_*.cpp files and gathered in table.cpp.

#include "exec/cuda/binding.h"

namespace overtake::cuda_bindings {

CudaBinding linear();
CudaBinding matmul();
CudaBinding attention();
CudaBinding lstm();
CudaBinding gru();
CudaBinding conv2d();
// As Target::takes_pitch.
bool conv2d_takes_pitch(const TaskView& view, std::size_t operand, std::int64_t pitch, CudaDevice& device);
CudaBinding batch_norm();
CudaBinding batch_moments();
CudaBinding layer_norm();
CudaBinding group_norm();
CudaBinding max_pool();
CudaBinding avg_pool();
CudaBinding global_pool();
CudaBinding adaptive_pool();
CudaBinding activation();
CudaBinding dropout();
CudaBinding add();
CudaBinding mul();
CudaBinding chain();
CudaBinding sum();
CudaBinding softmax();
CudaBinding concat();
CudaBinding slice();
CudaBinding reshape();
CudaBinding stop_gradient();
CudaBinding transpose();
CudaBinding expand();
CudaBinding reduce();
CudaBinding reorder();
CudaBinding embedding();
CudaBinding cross_entropy();
CudaBinding mse();
CudaBinding squared_norm();
CudaBinding clip_norm();
CudaBinding sgd();
CudaBinding adamw();
CudaBinding transfer();
// Where other processes have the other devices.
Launch rank_transfer(const TaskView& view, BoundPlanData& program);

}  // namespace overtake::cuda_bindings
