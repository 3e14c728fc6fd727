#pragma once
// What nodes that PyTorch recorded say of their communication by name and inputs only. Facts from mlcommons/chakra,
// src/converter/pytorch_converter.py (get_collective_comm_type), pytorch_node.py (comm_size) and pytorch_tensor.py.

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/chakra/format.h"

namespace overtake::chakra {

// "c10d::allreduce_", "nccl:_all_gather_base", "ncclDevKernel_ReduceScatter_Sum_f32(...)"; a kernel of sends and
// receives that the converter calls a collective is an all-to-all.
std::optional<CommType> collective_named(std::string_view name);

// How far inside the calls of one collective a node is: 1 for c10d::, 2 for record_param_comms, 3 for nccl: and all
// others.
int layer_of_pytorch(std::string_view name);

// Bytes of all tensors among the inputs, whose values and types are as Python prints lists: a tensor is [id, storage,
// offset, elements, bytes of each, device]. None where there is no tensor.
std::optional<std::int64_t> tensor_bytes(std::string_view values, std::string_view types);

}  // namespace overtake::chakra
