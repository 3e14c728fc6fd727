#include "cli/simulate/collective_table.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "cli/mistakes.h"
#include "cli/say.h"
#include "cli/simulate/simulation.h"
#include "plan/compile.h"
#include "report/table.h"
#include "sim/collective_alone.h"
#include "train/planner.h"

namespace overtake {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;
constexpr std::size_t kMostSizes = 1000;
constexpr std::string_view kFields[] = {"machine", "devices", "algorithm", "chunk"};

std::int64_t size_from_text(const std::string& part, const std::string& text) {
  const std::int64_t bytes = parse_bytes(part, "--bytes " + text);
  if (bytes < 1 || bytes > kMostBytes)
    fail_user("--bytes {}: {} must be from 1 B to 1 TiB; for example 256M", text, part);
  return bytes;
}

std::vector<std::uint32_t> devices_of(const RunSpec& spec, const Machine& machine) {
  std::vector<std::uint32_t> devices = named_devices(spec, machine);
  if (devices.empty()) {
    devices.resize(machine.topology.device_count);
    std::iota(devices.begin(), devices.end(), 0u);
  }
  if (devices.size() < 2)
    fail_user("--collective: machine {} gives it one device, and it needs two; {}", machine.name(),
              spec.devices.empty() ? "add nodes (a preset takes them as NAME:4)" : "name more in --devices");
  return devices;
}

void check_alone(const SimulateFlags& flags, const RunSpec& spec) {
  if (!spec.model.empty()) fail_user("--collective: it runs without a model; leave out {}", spec.model);
  const std::pair<const char*, bool> others[] = {{"--synthetic", !flags.synthetic.empty()},
                                                 {"--chakra", !flags.chakra.empty()},
                                                 {"--beside", !flags.beside.empty()},
                                                 {"--sweep", !flags.sweep.empty()},
                                                 {"--compare", !flags.compare.empty()},
                                                 {"--trace", !flags.trace.empty()},
                                                 {"--measure", !flags.measure_on.empty()},
                                                 {"--chakra-out", !flags.chakra_out.empty()},
                                                 {"--slow", !flags.slow.empty()},
                                                 {"--fail", !flags.fail.empty()},
                                                 {"--steps", flags.steps > 0},
                                                 {"--save-profile", !flags.save_profile.empty()},
                                                 {"--save-plan", flags.spec.saves_plan()},
                                                 {"--save-spec", flags.spec.saves()}};
  for (const auto& [name, is_given] : others)
    if (is_given) fail_user("--collective: {} is of training steps; leave it out", name);
  for (const Field* field : flags.spec.given())
    if (std::ranges::find(kFields, field->name) == std::end(kFields))
      fail_user("--collective: `{}` is of training steps; leave it out", field->name);
  if (spec.machine.empty()) fail_user("--collective: on which machine? Give --machine, for example dgx-h100");
}

}  // namespace

std::vector<std::int64_t> sizes_from_text(const std::string& text) {
  std::vector<std::int64_t> sizes;
  const std::vector<std::string> range = CLI::detail::split(text, ':');
  if (range.size() > 1) {
    const std::int64_t first = size_from_text(range[0], text), last = size_from_text(range[1], text);
    std::int64_t factor = 2;
    if (range.size() > 2) {
      const char* end = range[2].data() + range[2].size();
      if (std::from_chars(range[2].data(), end, factor) != std::from_chars_result{end, std::errc{}}) factor = 0;
    }
    if (range.size() > 3 || factor < 2 || factor > kMostBytes || first > last)
      fail_user("--bytes {}: give FIRST:LAST:FACTOR with a factor of 2 or more, for example 8:8G:2", text);
    for (std::int64_t bytes = first; bytes <= last; bytes *= factor) {
      sizes.push_back(bytes);
      if (bytes > last / factor) break;
    }
    return sizes;
  }
  for (const std::string& part : CLI::detail::split(text, ',')) sizes.push_back(size_from_text(part, text));
  if (sizes.empty() || sizes.size() > kMostSizes)
    fail_user("--bytes {}: give 1 to {} sizes, for example 256M, or 8,1M,1G, or 8:8G:2", text, kMostSizes);
  return sizes;
}

int simulate_collective(const SimulateFlags& flags, const RunSpec& spec) {
  check_alone(flags, spec);
  const std::optional<Operation> operation = operation_of(flags.collective);
  if (!operation) fail_user("--collective {}: no such operation; there are {}", flags.collective, operation_names());
  if (flags.bytes.empty())
    fail_user("--collective {}: of how many bytes? Give --bytes, for example 256M", flags.collective);
  const std::vector<std::int64_t> sizes = sizes_from_text(flags.bytes);
  RunSpec of_machine = spec;
  of_machine.devices.clear();
  const Machine machine = machine_of(of_machine, 0);
  const std::vector<std::uint32_t> devices = devices_of(spec, machine);
  Table table({"bytes", "algorithm", "protocol", "us", "algbw GB/s", "busbw GB/s"});
  nlohmann::json rows = nlohmann::json::array();
  for (const std::int64_t bytes : sizes) {
    const CollectiveCase what{*operation, bytes, flags.devices_per_process};
    const CollectiveTime t = time_alone(machine.cluster, machine.topology, devices, what, machine.options);
    const double us = static_cast<double>(t.ns) * 1e-3;
    table.add({std::to_string(bytes), std::string(to_string(t.algorithm)), std::string(to_string(t.protocol)),
               fmt::format("{:.2f}", us), fmt::format("{:.2f}", t.algbw_gbs), fmt::format("{:.2f}", t.busbw_gbs)});
    rows.push_back({{"bytes", bytes},
                    {"ms", us * 1e-3},
                    {"algbw_gbs", t.algbw_gbs},
                    {"busbw_gbs", t.busbw_gbs},
                    {"algorithm", to_string(t.algorithm)},
                    {"protocol", to_string(t.protocol)}});
  }
  if (!flags.spec.json) {
    say("{} among {} devices of {}\n{}", flags.collective, devices.size(), machine.name(), table.text());
    return 0;
  }
  nlohmann::json out = {{"collective", flags.collective}, {"machine", machine.name()}, {"devices", devices}};
  if (rows.size() == 1) out.update(rows[0]);
  out["sizes"] = rows;
  say("{}", dumped(out));
  return 0;
}

}  // namespace overtake
