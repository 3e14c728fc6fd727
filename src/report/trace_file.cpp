#include "report/trace_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "report/trace_events.h"

namespace overtake {
namespace {

// How the file names a task: rank, step, id. What has no step comes one before the first.
using TaskKey = std::array<std::uint32_t, 3>;

// What a run of the file is: Overtake numbers its runs; a file of others is one run.
struct RunDraft {
  RecordedRun run;
  std::map<std::string, std::uint32_t> device_of;                         // by process
  std::map<std::pair<std::string, std::string>, std::uint32_t> track_of;  // by process and thread
  std::vector<std::vector<TaskKey>> waits;                                // per task
  std::map<TaskKey, std::uint32_t> by_key;
  std::map<std::pair<std::uint32_t, std::string>, std::vector<std::uint32_t>> ends_of;  // transfers: by step and name
};

std::string file_stem(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return name.substr(0, name.find('.'));
}

// NCCL's kernels say in their names what they do.
std::string kind_of(const TraceEvent& event) {
  if (!event.kind.empty()) return event.kind;
  if (event.name.starts_with("nccl")) {
    const auto has = [&](const char* part) { return event.name.find(part) != std::string::npos; };
    if (has("AllReduce")) return "all_reduce";
    if (has("ReduceScatter")) return "reduce_scatter";
    if (has("AllGather")) return "all_gather";
    if (has("Recv") && !has("Send")) return "recv";
    return "send";
  }
  return event.category.empty() ? "task" : event.category;
}

bool is_note(const std::string& category) {
  return category == "user_annotation" || category == "gpu_user_annotation" || category == "python_function" ||
         category == "overhead";
}

class FileReader {
 public:
  FileReader(const std::string& path, TraceFile& out) : out_(out), path_(path), events_(read_trace_events(path)) {}

  void read() {
    std::int64_t origin_ns = std::numeric_limits<std::int64_t>::max();
    for (const TraceEvent& event : events_.list) origin_ns = std::min(origin_ns, event.begin_ns);
    // Runs of Overtake start at 0 each, and are there even if nothing ran.
    if (!events_.described.empty()) origin_ns = 0;
    for (const auto& [process, description] : events_.described) device_of(draft_of(process), process);
    for (const auto& event : events_.list) add(event, origin_ns);
    for (auto& [number, draft] : drafts_) finish(draft);
  }

 private:
  RunDraft& draft_of(const std::string& process) {
    const auto described = events_.described.find(process);
    const std::size_t number = described == events_.described.end() ? events_.described.size() : described->second.run;
    auto [it, is_new] = drafts_.try_emplace(number);
    RunDraft& draft = it->second;
    if (is_new) {
      draft.run.file = path_;
      draft.run.name = file_stem(path_);
      if (described != events_.described.end()) {
        const RunDescription& d = described->second;
        draft.run.name = d.name;
        draft.run.model = d.model;
        draft.run.schedule = d.schedule;
        draft.run.step_time_ns = d.step_time_ns;
        draft.run.step_time_what = d.step_time_what;
        draft.run.steps = steps_of(number);
        if (!draft.run.steps.empty()) draft.run.end_ns = draft.run.steps.back().end_ns;
      }
    }
    return draft;
  }

  // One after the other; those of several ranks begin with the first and end with the last of them.
  std::vector<RecordedStep> steps_of(std::size_t run) const {
    std::vector<RecordedStep> steps;
    for (const auto& [process, d] : events_.described) {
      if (d.run != run) continue;
      std::int64_t at_ns = 0;
      for (std::size_t s = 0; s < d.step_ns.size(); ++s) {
        if (d.rank) at_ns = d.step_start_ns[s];
        const RecordedStep step{at_ns, at_ns + d.step_ns[s]};
        at_ns = step.end_ns;
        if (s == steps.size()) steps.push_back(step);
        steps[s] = {std::min(steps[s].begin_ns, step.begin_ns), std::max(steps[s].end_ns, step.end_ns)};
      }
    }
    return steps;
  }

  std::uint32_t device_of(RunDraft& draft, const std::string& process) {
    const auto [it, is_new] =
        draft.device_of.try_emplace(process, static_cast<std::uint32_t>(draft.run.devices.size()));
    if (is_new) {
      RecordedDevice device;
      const auto described = events_.described.find(process);
      if (described != events_.described.end()) {
        device.name = described->second.device;
        device.arena_bytes = described->second.arena_bytes;
        device.rank = described->second.rank;
        device.clock_error_ns = described->second.clock_error_ns;
      } else {
        device.name = events_.process_name(process);
      }
      draft.run.devices.push_back(std::move(device));
    }
    return it->second;
  }

  void add(const TraceEvent& event, std::int64_t origin_ns) {
    if (event.category == "Trace") return;  // PyTorch's word on how long its profiler ran
    RunDraft& draft = draft_of(event.process);
    const std::uint32_t device = device_of(draft, event.process);
    if (event.is_counter) {
      add_memory(draft.run.devices[device].memory, event, origin_ns);
      return;
    }
    const std::optional<std::uint32_t> rank = draft.run.devices[device].rank;
    // Threads of Overtake's that are called the same are rows of one lane.
    const std::string thread_name = events_.thread_name(event.process, event.thread);
    const bool is_ours = events_.described.contains(event.process);
    const auto [it, is_new] = draft.track_of.try_emplace({event.process, is_ours ? thread_name : event.thread},
                                                         static_cast<std::uint32_t>(draft.run.tracks.size()));
    if (is_new) draft.run.tracks.push_back({thread_name, device, 1});

    RecordedTask task;
    task.track = it->second;
    task.name = out_.texts.id(event.name);
    task.kind = out_.texts.id(kind_of(event));
    task.op = out_.texts.id(event.op);
    task.layer = out_.texts.id(event.layer);
    task.is_note = is_note(event.category);
    task.begin_ns = event.begin_ns - origin_ns;
    task.end_ns = task.begin_ns + event.duration_ns;
    task.moves_ns = task.begin_ns;
    if (event.step) task.step = *event.step;
    const auto index = static_cast<std::uint32_t>(draft.run.tasks.size());
    const auto key = [&](std::uint32_t step, std::uint32_t id) { return TaskKey{rank.value_or(0), step, id}; };
    if (event.task) draft.by_key[key(task.step, *event.task)] = index;
    if (!event.transfer.empty()) draft.ends_of[{task.step, event.transfer}].push_back(index);
    std::vector<TaskKey>& waits = draft.waits.emplace_back();
    for (const std::uint32_t id : event.waits_for) waits.push_back(key(task.step, id));
    for (const std::uint32_t id : event.waits_for_last) waits.push_back(key(task.step - 1, id));
    // A step of PyTorch's profiler.
    if (event.category == "user_annotation" && event.name.starts_with("ProfilerStep#"))
      draft.run.steps.push_back({task.begin_ns, task.end_ns});
    draft.run.end_ns = std::max(draft.run.end_ns, task.end_ns);
    draft.run.tasks.push_back(std::move(task));
  }

  static void add_memory(RecordedMemory& memory, const TraceEvent& event, std::int64_t origin_ns) {
    memory.at_ns.push_back(event.begin_ns - origin_ns);
    for (const auto& [group, bytes] : event.counters) {
      auto at = std::ranges::find(memory.groups, group);
      if (at == memory.groups.end()) {
        memory.groups.push_back(group);
        memory.bytes.emplace_back();
        at = memory.groups.end() - 1;
      }
      auto& column = memory.bytes[static_cast<std::size_t>(at - memory.groups.begin())];
      column.resize(memory.at_ns.size() - 1, column.empty() ? 0 : column.back());
      column.push_back(bytes);
    }
    for (auto& column : memory.bytes) column.resize(memory.at_ns.size(), column.empty() ? 0 : column.back());
  }

  void finish(RunDraft& draft) {
    for (std::size_t i = 0; i < draft.waits.size(); ++i) {
      for (const TaskKey& key : draft.waits[i]) {
        const auto it = draft.by_key.find(key);
        if (it != draft.by_key.end()) draft.run.tasks[i].waits_for.push_back(it->second);
      }
    }
    for (const auto& [name, ends] : draft.ends_of) connect(draft.run, ends);
    draft.run.counted = {0, draft.run.end_ns};
    if (!draft.run.steps.empty() && std::ranges::any_of(draft.run.devices, has_rank))
      draft.run.counted = {draft.run.steps.front().begin_ns, draft.run.steps.back().end_ns};
    order_tracks(draft.run);
    set_rows(draft.run);
    order_tasks(draft.run);
    out_.runs.push_back(std::move(draft.run));
  }

  static bool has_rank(const RecordedDevice& device) { return device.rank.has_value(); }

  // Nothing moves before the last rank has come: in a collective the others wait for it. A recv waits for its send.
  void connect(RecordedRun& run, const std::vector<std::uint32_t>& ends) {
    const std::uint32_t send = out_.texts.id("send");
    const auto order = [&](std::uint32_t t) { return std::pair(run.tasks[t].kind == send, run.tasks[t].begin_ns); };
    const std::uint32_t waited_for = *std::ranges::max_element(ends, {}, order);
    std::int64_t last_ns = 0;
    for (const std::uint32_t t : ends) last_ns = std::max(last_ns, run.tasks[t].begin_ns);
    for (const std::uint32_t t : ends) {
      RecordedTask& task = run.tasks[t];
      task.moves_ns = std::min(last_ns, task.end_ns);
      if (t != waited_for) task.waits_for.push_back(waited_for);
    }
  }

  // Those of a device beside each other, in the order in which the file names them.
  static void order_tracks(RecordedRun& run) {
    std::vector<std::uint32_t> order(run.tracks.size()), place(run.tracks.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::uint32_t t) { return run.tracks[t].device; });
    std::vector<RecordedTrack> tracks;
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      tracks.push_back(std::move(run.tracks[order[i]]));
    }
    run.tracks = std::move(tracks);
    for (RecordedTask& task : run.tasks) task.track = place[task.track];
  }

  // The first row that is free when a task begins (to move, if it is a transfer); longer ones first, so that what they
  // contain lies below.
  static void set_rows(RecordedRun& run) {
    std::vector<std::uint32_t> order(run.tasks.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {},
                             [&](std::uint32_t i) { return std::pair(run.tasks[i].moves_ns, -run.tasks[i].end_ns); });
    std::vector<std::vector<std::int64_t>> row_ends(run.tracks.size());
    for (const std::uint32_t i : order) {
      RecordedTask& task = run.tasks[i];
      auto& ends = row_ends[task.track];
      const auto free = std::ranges::find_if(ends, [&](std::int64_t end) { return end <= task.moves_ns; });
      task.row = static_cast<std::uint32_t>(free - ends.begin());
      if (free == ends.end())
        ends.push_back(task.end_ns);
      else
        *free = task.end_ns;
    }
    for (std::size_t t = 0; t < run.tracks.size(); ++t)
      run.tracks[t].rows = static_cast<std::uint32_t>(row_ends[t].size());
  }

  static void order_tasks(RecordedRun& run) {
    std::vector<std::uint32_t> order(run.tasks.size()), place(run.tasks.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::uint32_t i) {
      const RecordedTask& t = run.tasks[i];
      return std::tuple(t.track, t.row, t.moves_ns);
    });
    std::vector<RecordedTask> tasks;
    tasks.reserve(run.tasks.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      tasks.push_back(std::move(run.tasks[order[i]]));
    }
    run.tasks = std::move(tasks);
    for (RecordedTask& task : run.tasks)
      for (std::uint32_t& other : task.waits_for) other = place[other];
  }

  TraceFile& out_;
  const std::string& path_;
  TraceEvents events_;
  std::map<std::size_t, RunDraft> drafts_;
};

}  // namespace

std::uint32_t Texts::id(std::string_view text) {
  const auto [it, is_new] = ids_.try_emplace(std::string(text), static_cast<std::uint32_t>(list_.size()));
  if (is_new) list_.emplace_back(text);
  return it->second;
}

TraceFile read_traces(const std::vector<std::string>& paths) {
  TraceFile all;
  all.texts.id("");
  for (const std::string& path : paths) {
    const std::size_t first = all.runs.size();
    FileReader(path, all).read();
    if (paths.size() == 1) continue;
    // Of several files, the name says which; in full where two are called the same.
    const std::string stem = file_stem(path);
    const bool is_unique = std::ranges::count(paths, stem, file_stem) == 1;
    for (std::size_t r = first; r < all.runs.size(); ++r) {
      std::string& name = all.runs[r].name;
      name = (is_unique ? stem : path) + (name == stem ? "" : ": " + name);
    }
  }
  return all;
}

bool is_communication(std::string_view kind) {
  return kind == "all_reduce" || kind == "reduce_scatter" || kind == "all_gather" || kind == "all_to_all" ||
         kind == "send" || kind == "recv";
}

}  // namespace overtake
