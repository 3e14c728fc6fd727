#include "exec/cpu/description.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/available_cores.h"
#include "exec/cpu/target.h"
#include "exec/executor.h"

namespace overtake {
namespace {

std::string model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

std::string instructions() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_amx:
      return "AMX";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 bf16";
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx2_vnni:
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx:
      return "AVX";
    default:
      return "SSE4.1";
  }
}

}  // namespace

std::uint64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::uint64_t kibibytes = 0;
  for (std::string word; info >> word;)
    if (word == "MemAvailable:" && info >> kibibytes) return kibibytes * 1024;
  return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
}

CpuDescription describe_cpu() {
  const dnnl_version_t* v = dnnl_version();
  return {
      model_name(),   available_cores(), static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE),
      instructions(), cpu_has_bf16(),    fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch)};
}

}  // namespace overtake
