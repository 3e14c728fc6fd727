#pragma once
// A step's way in: inputs are written to pinned memory, copied to the device by a stream of their own while the step
// before still runs, and moved to their place in the arena when that step has ended.

#include <map>
#include <span>

#include "exec/cuda/handles.h"
#include "overtake/graph.h"

namespace overtake {

class InputStaging {
 public:
  // For all inputs of the graph.
  explicit InputStaging(const Graph& graph);

  bool holds(BufferId b) const { return inputs_.contains(b); }
  // Where the host writes the input's bytes for the next step; all of them. Waits until the device has copied what was
  // written there two steps ago.
  std::span<std::byte> next(BufferId b);
  // Enqueues the copies of what was written since the last call, so that they are in their place, given by
  // address(buffer), before anything that is enqueued on `stream` afterwards.
  template <class AddressOf>
  void enqueue(cudaStream_t stream, const AddressOf& address) {
    for (auto& [b, input] : inputs_)
      if (input.is_written) move_in(input, address(b), stream);
  }

 private:
  struct Slot {
    PinnedMemory host;
    DeviceMemory device;
    CudaEvent copied;    // host to device
    CudaEvent consumed;  // device to arena
  };
  struct Input {
    std::size_t bytes = 0;
    Slot slots[2];
    int slot = 0;
    bool is_written = false;
  };
  void move_in(Input& input, std::byte* to, cudaStream_t stream);

  std::map<BufferId, Input> inputs_;
  CudaStream copies_;
};

}  // namespace overtake
