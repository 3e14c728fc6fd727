#pragma once
// numpy's array files made in memory, for tests: npy("<f4", "(2, 3)", values) is the content of one.

#include <string>
#include <vector>

namespace overtake {

template <class T>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<T>& values,
                const std::string& fortran = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 10, ' ');
  std::string content = std::string("\x93NUMPY\x01\x00", 8);
  content += static_cast<char>(header.size() % 256);
  content += static_cast<char>(header.size() / 256);
  content += header;
  content.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return content;
}

}  // namespace overtake
