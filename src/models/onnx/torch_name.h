#pragma once
// What users of PyTorch call an op of a file.

#include <string>

#include "models/onnx/proto.h"

namespace overtake::onnx {

// The operator whose call the exporter recorded ("aten.upsample_nearest2d.vec"), else the usual name of what becomes
// this op ("interpolate"); empty where neither is known.
std::string torch_name(const Node& node);

}  // namespace overtake::onnx
