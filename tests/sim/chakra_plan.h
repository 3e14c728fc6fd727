#pragma once
// Files of a trace in memory as a plan, and the error of those that are none.

#include <string>
#include <vector>

#include "sim/chakra/chakra.h"
#include "unit/temporary_folder.h"

namespace overtake::chakra_case {

inline ChakraPlan read(const std::vector<std::string>& contents) {
  std::vector<ChakraFile> files;
  for (const std::string& content : contents)
    files.push_back({.path = "run." + std::to_string(files.size()) + ".et", .content = content});
  ChakraPlan out = read_chakra(files);
  verify(out.plan);
  return out;
}

inline std::string error_of(const std::vector<std::string>& contents) {
  return user_error([&] { read(contents); });
}

}  // namespace overtake::chakra_case
