#pragma once
// Ranks with a GPU each, by NCCL. Unlike a Group, which moves host memory by itself, this only enqueues on streams,
// also while they are captured into a graph: order and overlap are the streams' matter. All ranks enqueue the same
// calls in the same order. The order of sums is NCCL's: the same for the same ranks, count and library, but not that of
// ranks.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "comm/group.h"
#include "comm/store.h"

namespace overtake {

struct NcclOptions {
  int rank = 0, size = 1;
  std::string name = "nccl";  // under which rank 0 puts the group's id into the store; each group has its own
  std::chrono::milliseconds time_out{60'000};
};

// A part of an exchange: data goes to `peer` or comes from it.
struct NcclMessage {
  enum class Way : std::uint8_t { send, recv };
  Way way;
  int peer;
  void* data;  // [count]
  std::size_t count;
  DType dtype;
};

// What can be said about the library, for people.
struct NcclReport {
  std::string version;  // "2.28.9"
  std::string nvls;     // whether switches may add (NVLink SHARP), as far as NCCL tells
};

// Every call throws CommError where NCCL fails or does not answer in time; NCCL does not say which rank is at fault, so
// the error's is -1. The communicator is then aborted, which ends what is on streams, and every later call throws the
// same. Graphs with its calls must be gone before the group is.
class NcclGroup {
 public:
  virtual ~NcclGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual NcclReport report() const = 0;

  // to [count] = the sum over ranks of from [count]. Here and below `to` may be `from`, or this rank's part of it.
  virtual void all_reduce(cudaStream_t stream, const void* from, void* to, std::size_t count, DType dtype) = 0;
  // to [count] = this rank's part of the sum over ranks of from [size][count].
  virtual void reduce_scatter(cudaStream_t stream, const void* from, void* to, std::size_t count, DType dtype) = 0;
  // to [size][count] = from [count] of all ranks.
  virtual void all_gather(cudaStream_t stream, const void* from, void* to, std::size_t count, DType dtype) = 0;
  // data [count] of rank `root` on all.
  virtual void broadcast(cudaStream_t stream, int root, void* data, std::size_t count, DType dtype) = 0;
  // All at once, so that ranks that send to each other do not wait for each other.
  virtual void exchange(cudaStream_t stream, std::span<const NcclMessage> messages) = 0;

  // Until all that is on the stream has ended; not while it is captured.
  virtual void wait(cudaStream_t stream) = 0;
};

// Whether this build has NCCL.
bool has_nccl();

// On the current GPU. Returns when all ranks are connected. UserError when this build has no NCCL or the numbers of
// ranks do not fit.
std::unique_ptr<NcclGroup> make_nccl_group(Store& store, const NcclOptions& options);

}  // namespace overtake
