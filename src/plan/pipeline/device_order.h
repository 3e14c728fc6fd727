#pragma once
// What schedules are written with: the order of one device, block by block.

#include <deque>
#include <vector>

#include "plan/pipeline/schedule.h"

namespace overtake {

// Micro-batches pass a slot (a chunk, or a route's chunk) one after the other; those beyond the problem's are left out.
// So a schedule may be written for more micro-batches than there are, and what is left of it is legal: whatever a block
// waits for is of its own micro-batch.
class DeviceOrder {
 public:
  explicit DeviceOrder(std::uint32_t micro_batches) : micro_batches_(micro_batches) {}

  // Micro-batches first, first + step, ... of a chunk. Slots count from 0.
  void add_slot(std::uint32_t chunk, std::uint32_t first = 0, std::uint32_t step = 1) {
    slots_.push_back({chunk, first, step, 0, 0});
  }

  void forward(std::uint32_t slot) {
    Slot& s = slots_[slot];
    add({Kind::forward, false, s.chunk, s.micro_batch(s.forwards++)});
  }
  void input_grad(std::uint32_t slot) {
    Slot& s = slots_[slot];
    const std::uint32_t b = s.micro_batch(s.input_grads++);
    add({Kind::input_grad, false, s.chunk, b});
    pending_.push_back({Kind::weight_grad, false, s.chunk, b});
  }
  // The oldest weight gradient that was put off, if there is one.
  void weight_grad() {
    if (pending_.empty()) return;
    add(pending_.front());
    pending_.pop_front();
  }
  void all_weight_grads() {
    while (!pending_.empty()) weight_grad();
  }
  // Both gradients as one task.
  void backward(std::uint32_t slot) {
    Slot& s = slots_[slot];
    const std::uint32_t b = s.micro_batch(s.input_grads++);
    add({Kind::input_grad, true, s.chunk, b});
    add({Kind::weight_grad, false, s.chunk, b});
  }
  // A forward and a backward as one task.
  void forward_and_backward(std::uint32_t forward_slot, std::uint32_t backward_slot) {
    const std::size_t place = blocks_.size();
    forward(forward_slot);
    const std::size_t with_forward = blocks_.size();
    backward(backward_slot);
    if (place < with_forward && with_forward < blocks_.size()) blocks_[place].is_joined = true;
  }
  // Both, but the input gradient leaves at once.
  void parted_backward(std::uint32_t slot) {
    Slot& s = slots_[slot];
    const std::uint32_t b = s.micro_batch(s.input_grads++);
    add({Kind::input_grad, false, s.chunk, b});
    add({Kind::weight_grad, false, s.chunk, b});
  }

  std::vector<ChunkTask> take() { return std::move(blocks_); }

 private:
  struct Slot {
    std::uint32_t chunk, first, step, forwards, input_grads;
    std::uint32_t micro_batch(std::uint32_t n) const { return first + step * n; }
  };
  void add(const ChunkTask& b) {
    if (b.micro_batch < micro_batches_) blocks_.push_back(b);
  }

  std::uint32_t micro_batches_;
  std::vector<Slot> slots_;
  std::deque<ChunkTask> pending_;
  std::vector<ChunkTask> blocks_;
};

}  // namespace overtake
