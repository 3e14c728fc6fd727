#include "report/figures.h"

#include <algorithm>
#include <map>

#include "report/intervals.h"

namespace overtake {
namespace {

// Time in which at least two of the lists, each joined, are active.
std::int64_t overlap(const std::vector<Intervals>& lists) {
  std::vector<std::pair<std::int64_t, int>> changes;
  for (const Intervals& list : lists) {
    for (const Interval& i : list) {
      changes.emplace_back(i.begin, 1);
      changes.emplace_back(i.end, -1);
    }
  }
  std::ranges::sort(changes);
  std::int64_t sum = 0, since = 0;
  int active = 0;
  for (const auto& [at, change] : changes) {
    if (active >= 2) sum += at - since;
    active += change;
    since = at;
  }
  return sum;
}

std::int64_t peak(const RecordedMemory& memory) {
  std::int64_t most = 0;
  for (std::size_t t = 0; t < memory.at_ns.size(); ++t) {
    std::int64_t sum = 0;
    for (const auto& column : memory.bytes) sum += column[t];
    most = std::max(most, sum);
  }
  return most;
}

// When a task was at work, of the time that counts.
Interval work_of(const RecordedRun& run, const RecordedTask& task) {
  return {std::clamp(task.moves_ns, run.counted.begin_ns, run.counted.end_ns),
          std::clamp(task.end_ns, run.counted.begin_ns, run.counted.end_ns)};
}

std::int64_t length_of(const RecordedStep& s) { return s.end_ns - s.begin_ns; }

DeviceFigures device_figures(const TraceFile& traces, const RecordedRun& run, std::uint32_t device) {
  std::map<std::uint32_t, Intervals> by_track;
  Intervals all, compute, communication;
  for (const RecordedTask& task : run.tasks) {
    if (run.tracks[task.track].device != device || task.is_note) continue;
    const Interval interval = work_of(run, task);
    all.push_back(interval);
    by_track[task.track].push_back(interval);
    (is_communication(traces.texts[task.kind]) ? communication : compute).push_back(interval);
  }
  std::vector<Intervals> tracks;
  for (auto& [track, list] : by_track) tracks.push_back(joined(std::move(list)));

  DeviceFigures figures;
  figures.name = run.devices[device].name;
  figures.rank = run.devices[device].rank;
  figures.clock_error_ns = run.devices[device].clock_error_ns;
  figures.compute_ns = length(compute);
  figures.busy_ns = length(all);
  figures.idle_ns = length_of(run.counted) - figures.busy_ns;
  figures.overlap_ns = overlap(tracks);
  figures.communication_ns = length(communication);
  figures.exposed_ns = figures.busy_ns - figures.compute_ns;
  figures.peak_bytes = peak(run.devices[device].memory);
  return figures;
}

std::vector<KindFigures> kind_figures(const TraceFile& traces, const RecordedRun& run) {
  struct Sum {
    std::int64_t tasks = 0;
    std::map<std::uint32_t, Intervals> by_track;
  };
  std::map<std::uint32_t, Sum> sums;
  for (const RecordedTask& task : run.tasks) {
    if (task.is_note) continue;
    Sum& sum = sums[task.kind];
    ++sum.tasks;
    sum.by_track[task.track].push_back(work_of(run, task));
  }
  std::vector<KindFigures> kinds;
  for (const auto& [kind, sum] : sums) {
    KindFigures figures{traces.texts[kind], sum.tasks, 0};
    for (const auto& [track, list] : sum.by_track) figures.time_ns += length(list);
    kinds.push_back(std::move(figures));
  }
  std::ranges::stable_sort(kinds, std::greater<>(), &KindFigures::time_ns);
  return kinds;
}

std::int64_t median_length(const std::vector<RecordedStep>& steps) {
  std::vector<std::int64_t> lengths;
  for (const RecordedStep& step : steps) lengths.push_back(length_of(step));
  std::ranges::sort(lengths);
  return lengths[lengths.size() / 2];
}

double ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void set_step_time(RunFigures& figures, const RecordedRun& run) {
  if (run.step_time_ns > 0) {
    figures.step_ns = run.step_time_ns;
    figures.step_time = run.step_time_what;
  } else if (run.steps.empty()) {
    figures.step_ns = run.end_ns;
    figures.step_time = "the whole file, which has no steps";
  } else {
    figures.step_ns = median_length(run.steps);
    figures.step_time =
        run.steps.size() == 1 ? "one traced step" : "median of " + std::to_string(run.steps.size()) + " traced steps";
  }
}

// Of what one step takes, and only of that.
std::optional<double> speed_up_of(const RunFigures& run, const RunFigures& base) {
  const bool is_comparable = (run.steps > 0) == (base.steps > 0) && run.tasks > 0 && base.tasks > 0;
  if (!is_comparable || run.step_ns <= 0) return {};
  return share(base.step_ns, run.step_ns);
}

RunFigures run_figures(const TraceFile& traces, const RecordedRun& run) {
  RunFigures figures;
  figures.name = run.name;
  figures.file = run.file;
  figures.model = run.model;
  figures.schedule = run.schedule;
  figures.tasks = std::ranges::count(run.tasks, false, &RecordedTask::is_note);
  figures.steps = static_cast<std::int64_t>(run.steps.size());
  set_step_time(figures, run);
  figures.run_ns = length_of(run.counted);
  for (std::uint32_t d = 0; d < run.devices.size(); ++d) {
    figures.devices.push_back(device_figures(traces, run, d));
    figures.idle_share += share(figures.devices[d].idle_ns, figures.run_ns) / static_cast<double>(run.devices.size());
  }
  figures.kinds = kind_figures(traces, run);
  return figures;
}

}  // namespace

std::vector<RunFigures> figures_of(const TraceFile& traces) {
  std::vector<RunFigures> all;
  for (const RecordedRun& run : traces.runs) all.push_back(run_figures(traces, run));
  const auto base = std::ranges::find_if(all, [](const RunFigures& run) { return run.tasks > 0; });
  if (base == all.end()) return all;
  const RunFigures first = *base;
  for (RunFigures& figures : all) figures.speed_up = speed_up_of(figures, first);
  return all;
}

nlohmann::json to_json(const std::vector<RunFigures>& figures) {
  nlohmann::json runs = nlohmann::json::array();
  for (const RunFigures& run : figures) {
    nlohmann::json devices = nlohmann::json::array(), kinds = nlohmann::json::array();
    for (const DeviceFigures& d : run.devices) {
      devices.push_back({{"device", d.name},
                         {"compute_ms", ms(d.compute_ns)},
                         {"compute_share", share(d.compute_ns, run.run_ns)},
                         {"busy_ms", ms(d.busy_ns)},
                         {"idle_ms", ms(d.idle_ns)},
                         {"idle_share", share(d.idle_ns, run.run_ns)},
                         {"overlap_ms", ms(d.overlap_ns)},
                         {"communication_ms", ms(d.communication_ns)},
                         {"communication_share", share(d.communication_ns, run.run_ns)},
                         {"exposed_ms", ms(d.exposed_ns)},
                         {"exposed_share", share(d.exposed_ns, run.run_ns)},
                         {"peak_bytes", d.peak_bytes}});
      if (d.rank) devices.back()["rank"] = *d.rank;
      if (d.rank) devices.back()["clock_error_us"] = static_cast<double>(d.clock_error_ns) * 1e-3;
    }
    for (const KindFigures& k : run.kinds)
      kinds.push_back({{"kind", k.name}, {"tasks", k.tasks}, {"ms", ms(k.time_ns)}});
    runs.push_back({{"run", run.name},
                    {"file", run.file},
                    {"model", run.model},
                    {"schedule", run.schedule},
                    {"tasks", run.tasks},
                    {"steps", run.steps},
                    {"step_ms", ms(run.step_ns)},
                    {"step_time", run.step_time},
                    {"run_ms", ms(run.run_ns)},
                    {"idle_share", run.idle_share},
                    {"speed_up", run.speed_up ? nlohmann::json(*run.speed_up) : nlohmann::json()},
                    {"devices", std::move(devices)},
                    {"kinds", std::move(kinds)}});
  }
  return runs;
}

}  // namespace overtake
