#include "exec/cuda/staging.h"

namespace overtake {

InputStaging::InputStaging(const Graph& g) : copies_(make_stream(0)) {
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    if (g.buffers[b].role != Role::input) continue;
    Input& input = inputs_[b];
    input.bytes = static_cast<std::size_t>(g.bytes(b));
    for (Slot& slot : input.slots)
      slot = {PinnedMemory(input.bytes), DeviceMemory(input.bytes, "inputs"), make_event(false), make_event(false)};
  }
}

std::span<std::byte> InputStaging::next(BufferId b) {
  Input& input = inputs_.at(b);
  if (!input.is_written) {
    input.slot = 1 - input.slot;
    input.is_written = true;
    check_cuda_call(cudaEventSynchronize(input.slots[input.slot].copied.get()), "waiting for a copy of inputs");
  }
  return {input.slots[input.slot].host.data(), input.bytes};
}

void InputStaging::move_in(Input& input, std::byte* to, cudaStream_t stream) {
  Slot& slot = input.slots[input.slot];
  check_cuda_call(cudaStreamWaitEvent(copies_.get(), slot.consumed.get(), 0), "ordering copies");
  check_cuda_call(
      cudaMemcpyAsync(slot.device.data(), slot.host.data(), input.bytes, cudaMemcpyHostToDevice, copies_.get()),
      "copying inputs");
  check_cuda_call(cudaEventRecord(slot.copied.get(), copies_.get()), "ordering copies");
  check_cuda_call(cudaStreamWaitEvent(stream, slot.copied.get(), 0), "ordering copies");
  check_cuda_call(cudaMemcpyAsync(to, slot.device.data(), input.bytes, cudaMemcpyDeviceToDevice, stream),
                  "moving inputs");
  check_cuda_call(cudaEventRecord(slot.consumed.get(), stream), "ordering copies");
  input.is_written = false;
}

}  // namespace overtake
