#pragma once
// Reads timelines from files: those of a run (`trace`), and Chrome traces of others (PyTorch's profiler, for one).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace overtake {

// Texts stored once.
class Texts {
 public:
  std::uint32_t id(std::string_view text);
  const std::string& operator[](std::uint32_t i) const { return list_[i]; }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
  std::unordered_map<std::string, std::uint32_t> ids_;
};

// A task of one step on one track. Times are nanoseconds from the start of the run.
struct RecordedTask {
  static constexpr std::uint32_t kNoStep = 0xffffffffu;
  std::uint32_t track = 0;
  std::uint32_t row = 0;  // tasks of one row do not overlap, from moves_ns on; nested ones lie in rows below
  std::uint32_t name = 0, kind = 0, op = 0, layer = 0;  // of TraceFile::texts
  std::uint32_t step = kNoStep;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t moves_ns = 0;  // of a transfer between ranks: when the last of them had begun it; otherwise begin_ns
  bool is_note = false;       // says what happens elsewhere (profiler's annotations): shown, not counted as work
  std::vector<std::uint32_t> waits_for;  // indices of RecordedRun::tasks
};

struct RecordedTrack {
  std::string name;
  std::uint32_t device = 0;  // of RecordedRun::devices
  std::uint32_t rows = 1;
};

// Bytes in use; each value holds until the next time.
struct RecordedMemory {
  std::vector<std::string> groups;
  std::vector<std::int64_t> at_ns;
  std::vector<std::vector<std::int64_t>> bytes;  // [group][time]
};

struct RecordedDevice {
  std::string name;
  std::int64_t arena_bytes = 0;       // 0: the file does not say
  std::optional<std::uint32_t> rank;  // of a job of several processes
  std::int64_t clock_error_ns = 0;    // its times agree with those of rank 0 within it
  RecordedMemory memory;
};

struct RecordedStep {
  std::int64_t begin_ns = 0, end_ns = 0;
};

struct RecordedRun {
  std::string name, file, model, schedule;
  std::vector<RecordedDevice> devices;
  std::vector<RecordedTrack> tracks;  // those of a device are neighbours
  std::vector<RecordedTask> tasks;    // by track, row, moves_ns
  std::int64_t step_time_ns = 0;      // what the command that wrote the file says a step takes; 0: nothing
  std::string step_time_what;         // of it: "median of 10 measured steps"
  std::vector<RecordedStep> steps;    // if the file tells; of several ranks, from the first begin to the last end
  std::int64_t end_ns = 0;            // of the last task or step
  // What figures are of: all of it; of ranks the steps, without what was under way before and after them.
  RecordedStep counted;
};

// The runs of all files, in the order given; a run that is described may have no tasks. User errors name the file and
// the event: not JSON, neither tasks nor a description, no time, a negative duration.
struct TraceFile {
  Texts texts;  // 0 is ""
  std::vector<RecordedRun> runs;
};
TraceFile read_traces(const std::vector<std::string>& paths);

// Whether tasks of this kind move data between devices.
bool is_communication(std::string_view kind);

}  // namespace overtake
