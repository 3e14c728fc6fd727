#pragma once

#include <cstdint>
#include <string>

namespace overtake {

struct CpuDescription {
  std::string model;
  unsigned cores = 0;  // this process may use
  std::int64_t memory_bytes = 0;
  std::string instructions;  // the widest set the library uses
  bool has_bf16 = false;
  std::string library;  // "oneDNN 2.6.3"
};
CpuDescription describe_cpu();

// Memory that can be taken without swapping, in bytes.
std::uint64_t available_memory();

}  // namespace overtake
