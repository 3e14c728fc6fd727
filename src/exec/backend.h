#pragma once
// A device made ready: what it tells the passes, and executors of plans on it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "overtake/cluster.h"
#include "overtake/target.h"
#include "overtake/virtual_link.h"

namespace overtake {

enum class Precision : std::uint8_t {
  f32,
  tf32,  // float32 whose matrix products round their factors to 10 bits of fraction; GPUs only
  bf16   // bfloat16 activations and factors, float32 weights and sums
};
Precision precision_from_string(const std::string& name);
const char* to_string(Precision precision);
Precision default_precision(const std::string& device);

struct BackendOptions {
  std::optional<Precision> precision = {};      // none: bf16 on GPUs, f32 elsewhere
  unsigned threads = 0;                         // of the CPU; 0: all cores
  bool tune = true;                             // measure which of a library's kernels is the fastest; GPUs only
  std::optional<std::string> tuning_file = {};  // what was measured is kept there; none: in the user's cache folder
  bool use_graph = true;                        // one CUDA graph per step; false: task by task
  unsigned side_sms = 0;                        // of a GPU, for side lanes; 0: they may use all
  unsigned virtual_gpus = 0;                    // that plans see of one GPU, each with SMs of its own; 0: it is one
  VirtualLink virtual_link = {};                // between them
  std::function<void(const std::string&)> note = {};
  std::shared_ptr<RankGroups> groups = {};           // see CpuOptions
  std::shared_ptr<DeviceGroups> device_groups = {};  // beside them, where transfers go from GPU to GPU
};

// Executors keep what they need of the backend; it must outlive them.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Target& target() const = 0;
  virtual DeviceTarget kernels() const = 0;  // in which family of kernels the target belongs
  virtual Precision precision() const = 0;
  // See make_null_executor. `memory` is of another executor of this backend; none: memory of its own.
  virtual std::unique_ptr<Executor> make_executor(std::vector<Plan> plans,
                                                  std::shared_ptr<PersistentMemory> memory = {}) = 0;
  // The device and libraries, and all else that measured times depend on, in one line.
  virtual std::string identity() const = 0;
  // How many lanes can run at the same time.
  virtual std::size_t most_lanes() const = 0;
  // Whether so much memory can be taken at once.
  virtual bool has_room_for(std::uint64_t) const { return true; }
};

// "cpu", "cuda", "cuda:1" or "null". User errors say what is missing.
std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& options);

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_null_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_cuda_backend(int gpu, const BackendOptions& options);

}  // namespace overtake
