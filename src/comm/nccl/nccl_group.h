#pragma once
// Ranks with a GPU each, by NCCL. Unlike a Group, which moves host memory by itself, this only enqueues on streams,
// also while they are captured into a graph: order and overlap are the streams' matter. All ranks enqueue the same
// calls in the same order. The order of sums is NCCL's: the same for the same ranks, count and library, but not that of
// ranks.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/group.h"
#include "comm/nccl/device_groups.h"

namespace overtake {

struct NcclCall {
  enum class What : std::uint8_t {
    all_reduce,      // to [count] = the sum over ranks of from [count]
    reduce_scatter,  // to [count] = this rank's part of the sum over ranks of from [size][count]
    all_gather,      // to [size][count] = from [count] of all ranks
    reduce,          // to [count] of rank `peer` = the sum over ranks of from [count]; others need no `to`
    broadcast,       // to [count] = from [count] of rank `peer`; others need no `from`
    send,            // from [count] goes to rank `peer`
    recv             // to [count] comes from it
  };
  What what;
  const void* from;  // may be `to`, or this rank's part of it
  void* to;
  std::size_t count;
  DType dtype;
  int peer = -1;
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

  // All at once: as one kernel if NCCL can, and so that ranks that send to each other do not wait for each other. On
  // one stream for the whole life of the group, or what is on different streams waits for each other all the same.
  virtual void enqueue(cudaStream_t stream, std::span<const NcclCall> calls) = 0;
  void enqueue(cudaStream_t stream, const NcclCall& call) { enqueue(stream, std::span(&call, 1)); }

  // Until all that is on the stream has ended; not while it is captured.
  virtual void wait(cudaStream_t stream) = 0;
  // Throws if NCCL has found that something is wrong.
  virtual void check() = 0;
  // What is on streams ends, and later calls throw. Does not wait for anything.
  virtual void abort(const std::string& why) = 0;
};

}  // namespace overtake
