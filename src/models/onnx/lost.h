#pragma once
// What a file no longer has of the model that PyTorch would train.

#include <span>
#include <string>

namespace overtake::onnx {

// How a file is made that keeps everything: the call for the exporter that made it.
std::string_view lossless_export(bool by_dynamo);

// "a, b, c" with what is in the middle left out where there are many, and their number.
std::string shortened(std::span<const std::string> names);

}  // namespace overtake::onnx
