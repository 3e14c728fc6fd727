#include "exec/cuda/streams.h"

#include "base/error.h"
#include "exec/transfer_view.h"

namespace overtake {
namespace {

Track track_of_transfer(const Graph& g, TaskId t, std::uint16_t lane, GpuRanks& ranks) {
  const Task& task = g.tasks[t];
  OVERTAKE_CHECK(task.op == Op::transfer, "task {} is on an asynchronous lane, but no transfer", g.task_name(t));
  if (ranks.are_there())
    return {Track::Use::channel, task.device, ranks.index_of(channel_of(g, task, ranks.own_rank()))};
  if (task.kind == Kind::send) return {Track::Use::sends, task.device, lane};
  if (task.kind == Kind::recv) return {Track::Use::receipts, task.device, sender_of(g, task)};
  return {Track::Use::sums, task.device, neighbour_of(g, task)};
}

// Whether the SMs that are left over read and write fast enough for a link to each of the virtual GPUs.
bool can_copy_for_all(const VirtualGpus& split, const VirtualLink& link) {
  constexpr double bytes_per_s = 60e9;  // of an SM of an H200
  return split.rest && link.bytes_per_s > 0 &&
         2.0 * static_cast<double>(link.bytes_per_s) * static_cast<double>(split.gpus.size()) <=
             bytes_per_s * split.rest->sms();
}

}  // namespace

std::vector<Track> tracks_of(const Plan& plan, GpuRanks& ranks) {
  std::vector<Track> tracks(plan.graph.tasks.size());
  std::map<std::pair<std::uint16_t, bool>, std::uint16_t> lanes;  // how many there are, by device and kind
  for (const Lane& lane : plan.lanes) {
    const std::uint16_t index = lanes[{lane.device, lane.is_asynchronous}]++;
    for (const TaskId t : lane.tasks)
      tracks[t] = lane.is_asynchronous ? track_of_transfer(plan.graph, t, index, ranks)
                                       : Track{Track::Use::lane, lane.device, index};
  }
  return tracks;
}

StreamPool::StreamPool(const CudaDevice& device) : device_(device) {
  check_cuda_call(cudaDeviceGetStreamPriorityRange(&least_, &greatest_), "asking for priorities");
  origin_ = make_stream(greatest_);
}

cudaStream_t StreamPool::get(const Track& track) {
  if (track == Track{} && device_.virtual_gpus() == nullptr) return origin();
  CudaStream& stream = streams_[track];
  if (!stream) stream = make(track);
  return stream.get();
}

// The first lane of a device, and what others wait for, go before other lanes wherever the GPU has to choose.
CudaStream StreamPool::make(const Track& track) const {
  const bool is_side = track.use == Track::Use::lane && track.index > 0;
  const int priority = is_side ? least_ : greatest_;
  const VirtualGpus* split = device_.virtual_gpus();
  if (split == nullptr) {
    const SmPartition* side = is_side ? device_.side_partition() : nullptr;
    return side == nullptr ? make_stream(priority) : side->make_stream(priority);
  }
  OVERTAKE_CHECK(track.device < split->gpus.size(), "a plan for device {} on {} virtual GPUs", track.device,
                 split->gpus.size());
  // Slow copies hold a few thread blocks for long, which kernels that count on all SMs would wait for.
  const bool is_apart = track.use == Track::Use::receipts && can_copy_for_all(*split, device_.virtual_link());
  return (is_apart ? *split->rest : split->gpus[track.device]).make_stream(priority);
}

}  // namespace overtake
