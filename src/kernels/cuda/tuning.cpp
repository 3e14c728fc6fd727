#include "kernels/cuda/tuning.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace overtake::cuda {
namespace {

constexpr const char* kFormat = "overtake tuning 1";

constexpr double kRoundMicroseconds = 200;  // of measuring: far above the clock's steps
constexpr int kRounds = 3;
constexpr double kMostRepeats = 64;
// A candidate whose first run takes that many times the best so far is not measured further...
constexpr double kHopeless = 3;
// ...unless that is so short that the time to launch it says more.
constexpr double kLaunchMicroseconds = 50;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error(fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error)));
  }
}

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream to measure on"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// The time between two places of a stream.
class Stopwatch {
 public:
  template <class Work>
  double microseconds(cudaStream_t stream, const Work& work) const {
    check(cudaEventRecord(start_.get(), stream), "measuring");
    work();
    check(cudaEventRecord(stop_.get(), stream), "measuring");
    check(cudaEventSynchronize(stop_.get()), "running what is measured");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), "measuring");
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  Event start_, stop_;
};

// Work as one graph: a launch costs the host nothing between one run and the next, as in a captured step.
class Captured {
 public:
  Captured(const std::function<void(cudaStream_t)>& work, int repeats) {
    const Stream own;  // the default stream, which may be the one to measure on, cannot be captured
    const cudaStream_t stream = own.get();
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a capture");
    cudaGraph_t graph = nullptr;
    try {
      for (int i = 0; i < repeats; ++i) work(stream);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "ending a capture");
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "making a captured graph ready");
  }
  ~Captured() { cudaGraphExecDestroy(executable_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream), "running what is measured"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// As time_microseconds, but that of the first run if it is above `hopeless`.
double measure(cudaStream_t stream, const std::function<void(cudaStream_t)>& work, double hopeless) {
  const Stopwatch watch;
  work(stream);  // the first run loads kernels
  const double once = watch.microseconds(stream, [&] { work(stream); });
  if (once > hopeless) return once;
  const int repeats = static_cast<int>(std::clamp(std::ceil(kRoundMicroseconds / once), 1.0, kMostRepeats));
  const Captured captured(work, repeats);
  captured.launch(stream);
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round)
    least = std::min(least, watch.microseconds(stream, [&] { captured.launch(stream); }) / repeats);
  return least;
}

bool is_plain(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; });
}

// The choices of a file's text with that header; nullopt if it has another, or any line is not a key and a choice.
std::optional<std::map<std::string, std::string>> parse(std::string_view text, const std::string& header) {
  std::map<std::string, std::string> choices;
  bool is_first = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (std::exchange(is_first, false)) {
      if (line != header) return std::nullopt;
      continue;
    }
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos || !is_plain(line.substr(0, tab)) || !is_plain(line.substr(tab + 1)))
      return std::nullopt;
    choices.emplace(line.substr(0, tab), line.substr(tab + 1));
  }
  if (is_first) return std::nullopt;
  return choices;
}

// A variable that is set and not empty.
const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

Tuning::Tuning(std::filesystem::path path, std::string platform, const TuningOptions& options, Note note)
    : path_(std::move(path)), platform_(std::move(platform)), options_(options), note_(std::move(note)) {
  if (!path_.empty()) read();
}

Tuning::Tuning(std::filesystem::path path, const TuningOptions& options, Note note)
    : Tuning(std::move(path), this_platform(), options, std::move(note)) {}

std::string Tuning::header() const { return fmt::format("{}; {}", kFormat, platform_); }

void Tuning::read() {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) return;
  try {
    auto choices = parse(read_file(path_), header());
    if (choices) {
      choices_ = std::move(*choices);
    } else {
      this->note(fmt::format("{}: made by another version or device, or damaged; measuring anew", path_.string()));
    }
  } catch (const UserError& error) {
    this->note(fmt::format("{}; measuring anew", error.what()));
  }
}

std::optional<std::string> Tuning::find(const std::string& key) const {
  const std::lock_guard lock(lock_);
  const auto found = choices_.find(key);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

void Tuning::keep(const std::string& key, const std::string& choice) {
  OVERTAKE_CHECK(is_plain(key) && is_plain(choice), "a tuning choice '{}' for '{}'", choice, key);
  const std::lock_guard lock(lock_);
  std::string& kept = choices_[key];
  is_changed_ = is_changed_ || kept != choice;
  kept = choice;
}

void Tuning::save() {
  const std::lock_guard lock(lock_);
  if (path_.empty() || !is_changed_) return;
  std::string text = header() + "\n";
  for (const auto& [key, choice] : choices_) text += fmt::format("{}\t{}\n", key, choice);
  try {
    if (path_.has_parent_path()) create_folders(path_.parent_path());
    write_file_atomically(path_, text);
    is_changed_ = false;
  } catch (const UserError& error) {
    this->note(fmt::format("tuning choices are not kept: {}", error.what()));
  }
}

std::optional<Fastest> Tuning::fastest_of(std::size_t count,
                                          const std::function<void(std::size_t, cudaStream_t)>& run) {
  static std::mutex measuring;  // two measurements at once would disturb each other
  const std::lock_guard lock(measuring);
  const Stream stream;
  std::optional<Fastest> best;
  for (std::size_t i = 0; i < count; ++i) {
    const double hopeless =
        best ? std::max(kHopeless * best->microseconds, kLaunchMicroseconds) : std::numeric_limits<double>::infinity();
    try {
      const double time = measure(
          stream.get(), [&](cudaStream_t s) { run(i, s); }, hopeless);
      const bool is_better = !best || time < best->microseconds;
      if (is_better && can_run([&](cudaStream_t s) { run(i, s); })) best = Fastest{i, time};
    } catch (const std::runtime_error&) {
      // A candidate that the library promised and cannot run, or cannot run in a capture, is none.
    }
  }
  return best;
}

// As a step's graph has it: forked from a stream of the whole GPU.
bool Tuning::can_run(const std::function<void(cudaStream_t)>& work) const {
  return std::all_of(options_.parts.begin(), options_.parts.end(), [&](cudaStream_t part) {
    const Event fork, join;
    const auto on_part = [&](cudaStream_t whole) {
      check(cudaEventRecord(fork.get(), whole), "forking");
      check(cudaStreamWaitEvent(part, fork.get(), 0), "forking");
      work(part);
      check(cudaEventRecord(join.get(), part), "joining");
      check(cudaStreamWaitEvent(whole, join.get(), 0), "joining");
    };
    try {
      const Captured captured(on_part, 1);
    } catch (const std::runtime_error&) {
      cudaGetLastError();  // it is told by this
      return false;
    }
    return true;
  });
}

void Tuning::note(const std::string& text) const {
  if (note_) note_(text);
}

std::filesystem::path Tuning::default_path(const std::string& gpu) {
  const std::filesystem::path cache = user_cache_folder();
  if (cache.empty()) return {};
  std::string name;
  for (const char c : gpu) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return cache / fmt::format("tuning-{}.txt", name);
}

std::string gpu_name() {
  int device = 0;
  cudaDeviceProp properties;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's name");
  return properties.name;
}

std::string this_platform() {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  return fmt::format("{}; cuDNN {}; cuBLASLt {}; driver {}; runtime {}", gpu_name(), cudnnGetVersion(),
                     cublasLtGetVersion(), driver, runtime);
}

double time_microseconds(cudaStream_t stream, const std::function<void(cudaStream_t)>& work) {
  return measure(stream, work, std::numeric_limits<double>::infinity());
}

}  // namespace overtake::cuda
