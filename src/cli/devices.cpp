#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "exec/cpu/description.h"
#include "exec/cuda/description.h"
#include "report/table.h"

namespace overtake {
namespace {

nlohmann::json to_json(const CpuDescription& cpu, const CudaDescription& cuda) {
  nlohmann::json devices = nlohmann::json::array();
  devices.push_back({{"name", "cpu"},
                     {"model", cpu.model},
                     {"cores", cpu.cores},
                     {"memory_bytes", cpu.memory_bytes},
                     {"instructions", cpu.instructions},
                     {"bf16", cpu.has_bf16},
                     {"library", cpu.library}});
  devices.push_back({{"name", "null"}});
  nlohmann::json gpus = nlohmann::json::array();
  for (const GpuDescription& gpu : cuda.gpus)
    gpus.push_back({{"model", gpu.model},
                    {"multiprocessors", gpu.multiprocessors},
                    {"memory_bytes", gpu.memory_bytes},
                    {"capability", gpu.capability},
                    {"virtual_gpu_multiprocessors", gpu.virtual_gpu_sms}});
  return {
      {"devices", devices},
      {"cuda", {{"built_in", cuda.is_built_in}, {"note", cuda.note}, {"libraries", cuda.libraries}, {"gpus", gpus}}}};
}

// "1 of 132 SMs, 2 of 64, 4 of 32": the powers of two.
std::string splits_of(const GpuDescription& gpu) {
  std::string text;
  for (std::size_t count = 1; count <= gpu.virtual_gpu_sms.size(); count *= 2)
    text += fmt::format("{}{} of {}{}", count == 1 ? "" : ", ", count, gpu.virtual_gpu_sms[count - 1],
                        count == 1 ? " SMs" : "");
  return text;
}

int list_devices(bool as_json) {
  const CpuDescription cpu = describe_cpu();
  const CudaDescription cuda = describe_cuda();
  if (as_json) {
    say("{}", dumped(to_json(cpu, cuda)));
    return 0;
  }
  Table table({"device", "what", "cores", "memory", "kernels"});
  table.add({"cpu", cpu.model, std::to_string(cpu.cores), format_bytes(cpu.memory_bytes),
             fmt::format("{}, {}", cpu.library, cpu.instructions)});
  for (std::size_t i = 0; i < cuda.gpus.size(); ++i) {
    const GpuDescription& gpu = cuda.gpus[i];
    table.add({fmt::format("cuda:{}", i), gpu.model, fmt::format("{} SMs", gpu.multiprocessors),
               format_bytes(gpu.memory_bytes), fmt::format("compute capability {}", gpu.capability)});
  }
  table.add({"null", "computes nothing; for tests of plans", "", "", ""});
  say("{}", table.text());
  for (std::size_t i = 0; i < cuda.gpus.size(); ++i)
    if (!cuda.gpus[i].virtual_gpu_sms.empty())
      say("cuda:{}: --virtual-gpus can split it into {}\n", i, splits_of(cuda.gpus[i]));
  if (!cuda.libraries.empty()) say("cuda: {}\n", fmt::join(cuda.libraries, ", "));
  if (!cuda.note.empty()) say("cuda: {}\n", cuda.note);
  return 0;
}

}  // namespace

void add_devices_command(CLI::App& app, int& exit_code) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("devices", "say what this build and this machine have");
  c->add_flag("--json", *as_json, "one JSON object as the last line");
  c->footer("Example:\n  overtake devices");
  c->callback([as_json, &exit_code] { exit_code = list_devices(*as_json); });
}

}  // namespace overtake
