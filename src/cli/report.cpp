#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/table.h"

namespace overtake {
namespace {

struct ReportFlags {
  std::vector<std::string> traces;
  std::string output;
  bool json = false;
};

std::string table_of(const std::vector<RunFigures>& figures) {
  Table table({"run", "device", "ms/step", "speed-up", "busy", "idle", "overlap", "exposed comm.", "peak memory"});
  for (const RunFigures& run : figures) {
    const auto percent = [&](std::int64_t ns) {
      const double of_run = run.run_ns > 0 ? static_cast<double>(ns) / static_cast<double>(run.run_ns) : 0;
      return fmt::format("{:.1f} %", 100 * of_run);
    };
    for (const DeviceFigures& device : run.devices)
      table.add({run.name, device.name, fmt::format("{:.3f}", static_cast<double>(run.step_ns) * 1e-6),
                 fmt::format("{:.3f}", run.speed_up), percent(device.busy_ns), percent(device.idle_ns),
                 percent(device.overlap_ns), percent(device.exposed_ns),
                 device.peak_bytes > 0 ? format_bytes(device.peak_bytes) : ""});
  }
  return table.text();
}

int report(const ReportFlags& flags) {
  if (flags.output.empty() && !flags.json)
    fail_user("report: nothing to write; give -o report.html for the page, or --json for the figures");
  if (!flags.output.empty()) check_writable(flags.output);
  const TraceFile traces = read_traces(flags.traces);
  const std::vector<RunFigures> figures = figures_of(traces);
  std::size_t bytes = 0;
  if (!flags.output.empty()) {
    const std::string page = page_of(traces, figures);
    write_file_atomically(flags.output, page);
    bytes = page.size();
  }
  if (flags.json) {
    nlohmann::json out = {{"runs", to_json(figures)}};
    if (!flags.output.empty()) out["page"] = {{"file", flags.output}, {"bytes", bytes}};
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}{}: {}; open it in a browser\n", table_of(figures), flags.output,
               format_bytes(static_cast<std::int64_t>(bytes)));
  }
  return 0;
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ReportFlags>();
  CLI::App* c = app.add_subcommand("report", "show timelines as one page, runs side by side");
  c->add_option("TRACE", flags->traces, "what --trace of train or bench wrote, or a Chrome trace of another program")
      ->required();
  c->add_option("-o,--output", flags->output, "the page to write; it needs no other file and no network");
  c->add_flag("--json", flags->json, "the figures as one JSON object as the last line");
  c->footer(
      "Busy, idle, overlap and exposed communication are shares of the run's time, per device.\n"
      "Example:\n  overtake report resnet.json -o report.html");
  c->callback([flags, &exit_code] { exit_code = report(*flags); });
}

}  // namespace overtake
