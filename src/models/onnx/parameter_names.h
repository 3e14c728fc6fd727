#pragma once
// What recorded calls say of parameters, in files that have no list of them.

#include <string>
#include <vector>

#include "models/onnx/proto.h"

namespace overtake::onnx {

// As torch.export calls parameters in its graphs: "encoder.LayerNorm.weight" -> "encoder_layernorm_weight".
std::string mangled(const std::string& name);

// The parameters that an operator call names: "%p_fc_weight" -> "fc_weight".
std::vector<std::string> parameters_of_call(const std::string& origin);

// Whether the exporter folded a batch norm into this layer, of which only the recorded call is left.
bool has_folded_norm(const Node& node);

// What torch.export calls a row or table that was looked up or stretched during the export.
bool is_lookup(const std::string& name);

}  // namespace overtake::onnx
