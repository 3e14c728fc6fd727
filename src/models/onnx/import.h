#pragma once
// Models straight from PyTorch: an ONNX file becomes a forward graph, with its weights beside it.

#include <filesystem>
#include <memory>

#include "models/network.h"

namespace overtake {

// A user error, naming the file, for everything onnx::read_file refuses, for ops that cannot be trained (one error
// lists all of them with their nodes), for dimensions that are not known, and for inputs no data source provides.
Network import_onnx(const std::filesystem::path& path, const ImportOptions& options);
// The same of a file's content; external data is looked for in the folder of `path`.
Network import_onnx(std::shared_ptr<const std::string> content, const std::filesystem::path& path,
                    const ImportOptions& options);

}  // namespace overtake
