#pragma once
// Which of several ways to compute one thing is the fastest: measured once, kept in a file. A choice is part of what is
// computed (another algorithm adds in another order), so equal bits from run to run need the same file.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace overtake::cuda {

struct TuningOptions {
  // False: the first candidate of the library's heuristic, of those that all parts can run; nothing kept is used.
  bool measure = true;
  bool deterministic = true;  // only candidates whose sums have a fixed order
  // Streams of parts of the GPU, which must be able to run what is chosen: kernels in clusters of thread blocks need
  // so many SMs close together. None: the whole GPU.
  std::vector<cudaStream_t> parts = {};
};

struct Fastest {
  std::size_t candidate;
  double microseconds;
};

// Any thread may use it.
class Tuning {
 public:
  using Note = std::function<void(const std::string&)>;

  // Reads the choices kept at `path`, if they were made on this `platform`; empty path: kept in memory only. A file
  // from elsewhere or with a line that cannot be read is left aside with one note; save() then replaces it.
  Tuning(std::filesystem::path path, std::string platform, const TuningOptions& options, Note note);
  // On the current device, at this_platform().
  Tuning(std::filesystem::path path, const TuningOptions& options, Note note);

  const TuningOptions& options() const { return options_; }

  // Keys and choices have neither tabs nor line ends.
  std::optional<std::string> find(const std::string& key) const;
  void keep(const std::string& key, const std::string& choice);

  // Writes the file, if there is something new. One that cannot be written is a note, not an error.
  void save();

  // The fastest of candidates 0 to count - 1, each run many times on a stream of its own, one measurement at a time in
  // the process. A candidate that throws, or that a part cannot run, is left out; nullopt if all were.
  std::optional<Fastest> fastest_of(std::size_t count,
                                    const std::function<void(std::size_t candidate, cudaStream_t)>& run);

  // Whether every one of the parts can have this in a graph. Nothing is run; it must have run once before, because a
  // first run may do what a capture does not allow.
  bool can_run(const std::function<void(cudaStream_t)>& work) const;

  void note(const std::string& text) const;

  // tuning-<gpu>.txt in $XDG_CACHE_HOME/overtake or ~/.cache/overtake; empty if neither variable is set.
  static std::filesystem::path default_path(const std::string& gpu);

 private:
  void read();
  std::string header() const;

  std::filesystem::path path_;
  std::string platform_;
  TuningOptions options_;
  Note note_;
  mutable std::mutex lock_;  // of what follows
  std::map<std::string, std::string> choices_;
  bool is_changed_ = false;
};

// Name of the current GPU, as the driver gives it.
std::string gpu_name();

// What choices depend on: GPU, driver, runtime and libraries, in one line.
std::string this_platform();

// Microseconds of one run on the stream: the least over three rounds of enough runs to be measured well. `work`
// enqueues on the stream it is given, which is another one while the runs are captured.
double time_microseconds(cudaStream_t stream, const std::function<void(cudaStream_t)>& work);

}  // namespace overtake::cuda
