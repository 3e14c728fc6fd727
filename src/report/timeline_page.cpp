#include "report/timeline_page.h"

#include <algorithm>

#include "report/html_page.h"

namespace overtake {
namespace {

using nlohmann::json;

// A list of numbers per property, not an object per task: a tenth of the size, and quick to read. Tasks of a row follow
// each other, so a row is where its first task is, and begins are distances from the previous one. What a task waits
// for is a distance too: how far before (or, negative, behind) it in the list. A transfer between
// ranks begins when the last of them has come; how long it has waited for that is only there where there are any.
json columns_of(const RecordedRun& run) {
  std::vector<std::size_t> row_tracks, row_firsts;
  std::vector<std::int64_t> begin, duration, waits, waited;
  std::vector<std::uint32_t> name, kind, op, layer, step, waits_count;
  std::int64_t previous_ns = 0;
  for (std::size_t i = 0; i < run.tasks.size(); ++i) {
    const RecordedTask& task = run.tasks[i];
    if (i == 0 || task.track != run.tasks[i - 1].track || task.row != run.tasks[i - 1].row) {
      row_tracks.push_back(task.track);
      row_firsts.push_back(i);
      previous_ns = 0;
    }
    begin.push_back(task.moves_ns - previous_ns);
    previous_ns = task.moves_ns;
    duration.push_back(task.end_ns - task.moves_ns);
    waited.push_back(task.moves_ns - task.begin_ns);
    name.push_back(task.name);
    kind.push_back(task.kind);
    op.push_back(task.op);
    layer.push_back(task.layer);
    step.push_back(task.step == RecordedTask::kNoStep ? 0 : task.step + 1);
    waits_count.push_back(static_cast<std::uint32_t>(task.waits_for.size()));
    for (const std::uint32_t other : task.waits_for)
      waits.push_back(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(other));
  }
  if (std::ranges::count(waited, 0) == std::ssize(waited)) waited.clear();
  return {{"row_tracks", row_tracks},
          {"row_firsts", row_firsts},
          {"begin", begin},
          {"duration", duration},
          {"waited", waited},
          {"name", name},
          {"kind", kind},
          {"op", op},
          {"layer", layer},
          {"step", step},
          {"waits_count", waits_count},
          {"waits", waits}};
}

json memory_of(const RecordedMemory& memory) {
  std::vector<std::int64_t> at;
  std::int64_t previous_ns = 0;
  for (const std::int64_t ns : memory.at_ns) {
    at.push_back(ns - previous_ns);
    previous_ns = ns;
  }
  return {{"groups", memory.groups}, {"at", at}, {"bytes", memory.bytes}};
}

json run_of(const RecordedRun& run) {
  json devices = json::array(), tracks = json::array(), steps = json::array();
  for (const RecordedStep& step : run.steps) steps.push_back({step.begin_ns, step.end_ns});
  for (const RecordedDevice& device : run.devices)
    devices.push_back(
        {{"name", device.name}, {"arena_bytes", device.arena_bytes}, {"memory", memory_of(device.memory)}});
  for (const RecordedTrack& track : run.tracks) tracks.push_back({{"name", track.name}, {"device", track.device}});
  return {{"name", run.name},         {"model", run.model},
          {"schedule", run.schedule}, {"counts_from", run.counted.begin_ns},
          {"end", run.end_ns},        {"steps", steps},
          {"devices", devices},       {"tracks", tracks},
          {"tasks", columns_of(run)}};
}

}  // namespace

std::string timeline_page(const TraceFile& traces, const std::vector<RunFigures>& figures) {
  json runs = json::array();
  for (const RecordedRun& run : traces.runs) runs.push_back(run_of(run));
  json communication = json::array();
  for (std::size_t i = 0; i < traces.texts.list().size(); ++i)
    if (is_communication(traces.texts.list()[i])) communication.push_back(i);
  const json data = {{"texts", traces.texts.list()},
                     {"communication", communication},
                     {"runs", std::move(runs)},
                     {"figures", to_json(figures)}};
  return html_page(kTimelinePage, data);
}

}  // namespace overtake
