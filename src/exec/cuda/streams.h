#pragma once
// Which stream each task of a plan is enqueued on, and the streams themselves, shared by the programs of an executor.

#include <map>
#include <vector>

#include "exec/cuda/device.h"
#include "exec/cuda/handles.h"
#include "overtake/plan.h"

namespace overtake {

// What a stream is for.
struct Track {
  enum class Use : std::uint8_t {
    lane,      // the index-th lane of a device that is not asynchronous
    sends,     // of the index-th that is: moments at which something is ready
    receipts,  // what comes from device `index`, one after the other, as they share a link
    sums,      // what is done together with a group in which device `index` comes before this one; likewise
    channel    // what is done with other processes, over the index-th of their channels
  };
  Use use = Use::lane;
  std::uint16_t device = 0;
  std::uint16_t index = 0;
  auto operator<=>(const Track&) const = default;
};

// By task; those that do not run have any.
std::vector<Track> tracks_of(const Plan& plan, GpuRanks& ranks);

class StreamPool {
 public:
  explicit StreamPool(const CudaDevice& device);

  // Where steps begin and end. It is of no partition; the first lane of the first device is enqueued on it unless that
  // has one.
  cudaStream_t origin() const { return origin_.get(); }
  // Made when it is first asked for.
  cudaStream_t get(const Track& track);

 private:
  CudaStream make(const Track& track) const;

  const CudaDevice& device_;
  int least_ = 0, greatest_ = 0;  // priorities
  CudaStream origin_;
  std::map<Track, CudaStream> streams_;
};

}  // namespace overtake
