#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/commands.h"
#include "exec/cpu/description.h"
#include "report/table.h"

namespace overtake {
namespace {

int list_devices(bool as_json) {
  const CpuDescription cpu = describe_cpu();
  if (as_json) {
    fmt::print("{}\n", nlohmann::json{{"devices",
                                       {{{"name", "cpu"},
                                         {"model", cpu.model},
                                         {"cores", cpu.cores},
                                         {"memory_bytes", cpu.memory_bytes},
                                         {"instructions", cpu.instructions},
                                         {"bf16", cpu.has_bf16},
                                         {"library", cpu.library}},
                                        {{"name", "null"}}}}}
                           .dump());
    return 0;
  }
  Table table({"device", "what", "cores", "memory", "kernels"});
  table.add({"cpu", cpu.model, std::to_string(cpu.cores), format_bytes(cpu.memory_bytes),
             fmt::format("{}, {}{}", cpu.library, cpu.instructions, cpu.has_bf16 ? ", bf16" : "")});
  table.add({"null", "computes nothing; for tests of plans", "", "", ""});
  fmt::print("{}cuda: not in this build\n", table.text());
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
