#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/say.h"
#include "report/figures.h"
#include "report/table.h"
#include "report/timeline_page.h"

namespace overtake {
namespace {

constexpr const char* kNoTasks = "there are no tasks in it: nothing was traced";

struct ReportFlags {
  std::vector<std::string> traces;
  std::string output;
  bool json = false, overwrite = false;
};

std::string percent(std::int64_t ns, std::int64_t of_ns) {
  return fmt::format("{:.1f} %", of_ns > 0 ? 100 * static_cast<double>(ns) / static_cast<double>(of_ns) : 0.0);
}

// A row per device; the run's own figures are in its first.
std::string table_of(const std::vector<RunFigures>& figures) {
  const bool communicates = std::ranges::any_of(figures, [](const RunFigures& run) {
    return std::ranges::any_of(run.devices, [](const DeviceFigures& d) { return d.communication_ns > 0; });
  });
  std::vector<std::string> header = {"run", "device", "ms/step", "speed-up", "compute", "idle", "overlap"};
  if (communicates) header.insert(header.end(), {"transfers", "exposed"});
  header.emplace_back("peak memory");
  Table table(std::move(header));
  for (const RunFigures& run : figures) {
    const auto add = [&](const DeviceFigures& d, std::int64_t of_ns, bool is_first) {
      std::vector<std::string> row = {is_first ? run.name : "", d.name, "", ""};
      if (is_first)
        row[2] = run.tasks > 0 ? fmt::format("{:.3f}", static_cast<double>(run.step_ns) * 1e-6) : "no tasks";
      if (is_first) row[3] = run.speed_up ? fmt::format("{:.3f}", *run.speed_up) : "";
      for (const std::int64_t ns : {d.compute_ns, d.idle_ns, d.overlap_ns}) row.push_back(percent(ns, of_ns));
      if (communicates)
        for (const std::int64_t ns : {d.communication_ns, d.exposed_ns}) row.push_back(percent(ns, of_ns));
      row.push_back(d.peak_bytes > 0 ? format_bytes(d.peak_bytes) : "");
      table.add(std::move(row));
    };
    DeviceFigures all;
    all.name = fmt::format("all {}", run.devices.size());
    for (const DeviceFigures& d : run.devices) {
      add(d, run.run_ns, &d == run.devices.data());
      all.compute_ns += d.compute_ns;
      all.idle_ns += d.idle_ns;
      all.overlap_ns += d.overlap_ns;
      all.communication_ns += d.communication_ns;
      all.exposed_ns += d.exposed_ns;
    }
    if (run.devices.size() > 1) add(all, run.run_ns * std::ssize(run.devices), false);
  }
  return table.text();
}

// What the times are, and what keeps runs from being compared.
std::string note_on_steps(const std::vector<RunFigures>& figures) {
  std::vector<std::string> lines;
  const bool are_alike = std::ranges::all_of(
      figures, [&](const RunFigures& run) { return run.tasks > 0 && run.step_time == figures[0].step_time; });
  if (are_alike) lines.push_back(fmt::format("ms/step: {}", figures[0].step_time));
  for (const RunFigures& run : figures) {
    if (are_alike) break;
    lines.push_back(fmt::format("ms/step of {}: {}", run.name, run.tasks > 0 ? run.step_time : kNoTasks));
  }
  const auto has_steps = [](const RunFigures& run) { return run.tasks == 0 || run.steps > 0; };
  const auto without = std::ranges::count_if(figures, std::not_fn(has_steps));
  if (without > 0 && without < std::ssize(figures))
    lines.emplace_back("no speed-up is given between a run that says where its steps begin and one that does not");
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

// How well clocks agree, where there are several.
std::string note_on_clocks(const std::vector<RunFigures>& figures) {
  std::int64_t worst_ns = 0;
  for (const RunFigures& run : figures)
    for (const DeviceFigures& d : run.devices) worst_ns = std::max(worst_ns, d.clock_error_ns);
  if (worst_ns == 0) return "";
  return fmt::format("clocks of ranks agree with that of rank 0 within {:.1f} us\n",
                     static_cast<double>(worst_ns) * 1e-3);
}

int report(const ReportFlags& flags) {
  if (flags.output.empty() && !flags.json)
    fail_user("report: nothing to write; give -o report.html for the page, or --json for the figures");
  check_output({"--output", flags.output, kPage}, flags.overwrite);
  const TraceFile traces = read_traces(flags.traces);
  const std::vector<RunFigures> figures = figures_of(traces);
  std::size_t bytes = 0;
  if (!flags.output.empty()) {
    const std::string page = timeline_page(traces, figures);
    write_file_atomically(flags.output, page);
    bytes = page.size();
  }
  if (flags.json) {
    nlohmann::json out = {{"runs", to_json(figures)}};
    if (!flags.output.empty()) out["page"] = {{"file", flags.output}, {"bytes", bytes}};
    say("{}", dumped(out));
  } else {
    say("{}{}{}{}: {}; open it in a browser\n", table_of(figures), note_on_steps(figures), note_on_clocks(figures),
        flags.output, format_bytes(static_cast<std::int64_t>(bytes)));
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
  c->add_flag("--overwrite", flags->overwrite, "replace the page if it is there already");
  c->add_flag("--json", flags->json, "the figures as one JSON object as the last line");
  c->footer(
      "Per device, as shares of the run's time: compute, idle (bubbles), overlap of lanes, transfers, and transfers\n"
      "exposed, with nothing to compute meanwhile. Compute, idle and exposed add up to all of it.\n"
      "Example:\n  overtake report resnet.json -o report.html");
  c->callback([flags, &exit_code] { exit_code = report(*flags); });
}

}  // namespace overtake
