#include "cli/connect_ranks.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/seconds_since.h"
#include "comm/gloo/gloo_group.h"
#include "comm/store.h"
#include "exec/cuda/description.h"
#include "overtake/version.h"
#include "run/field.h"
#include "train/run_options.h"

namespace overtake {
namespace {

// Every process of a host has a GPU, and NCCL between them.
std::string own_gpu(const RunSpec& spec, const Worker& worker) {
  if (spec.virtual_gpus > 0)
    fail_user("`virtual_gpus {}`: of {} processes every one has a GPU of its own; leave it out, or start one process",
              spec.virtual_gpus, worker.size);
  return gpu_of_rank(spec.device, worker.rank, worker.local_rank, describe_cuda(), has_nccl());
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

}  // namespace

std::string text_of_first(const std::optional<Worker>& worker, const std::string& name, double patience,
                          const std::function<std::string()>& make) {
  if (!worker || worker->size == 1) return make();
  const auto store = open_store(fmt::format("{}/{}/{}", worker->store, worker->job, name));
  if (worker->rank == 0) {
    std::string text = make();
    if (!store->put("text", text))
      fail_user("job {}: a run of this name has been here before; give every run a name of its own", worker->job);
    return text;
  }
  for (const auto start = std::chrono::steady_clock::now(); seconds_since(start) < patience;) {
    if (std::optional<std::string> text = store->get("text")) return *text;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fail_user("`resume`: rank 0 did not read the checkpoint within {} s; look at what it says, or give more `patience`",
            patience);
}

void connect_ranks(RunSpec& spec, WorkplaceOptions& place) {
  const std::optional<Worker> worker = worker_from_environment();
  if (!worker || worker->size == 1) return;
  const std::uint32_t devices = spec.replicas * spec.stages;
  if (devices != static_cast<std::uint32_t>(worker->size))
    fail_user(
        "`dp {}` x `pp {}`: that is {} process{}, but the job has {}; change them, or start `overtake launch -n {}`",
        spec.replicas, spec.stages, devices, devices == 1 ? "" : "es", worker->size, devices);
  const std::string identity = identity_of(completed(spec));
  const bool has_gpus = spec.device.starts_with("cuda");
  if (!has_gpus && spec.device != "cpu")
    fail_user("`device {}`: several processes train on CPUs or GPUs; use cpu or cuda", spec.device);
  if (has_gpus) spec.device = own_gpu(spec, *worker);
  const auto store = open_store(fmt::format("{}/{}/world", worker->store, worker->job));
  GlooOptions gloo{.folder = {},
                   .job = {},
                   .rank = worker->rank,
                   .size = worker->size,
                   .interface = {},
                   .identity = fmt::format("version = {}\n{}", version(), identity),
                   .group = {}};
  if (!worker->address.empty()) gloo.address = worker->address;
  gloo.group.time_out = milliseconds(spec.time_out);
  gloo.group.patience = milliseconds(spec.patience);
  if (has_gpus) {
    place.device_groups = std::make_shared<DeviceGroups>();
    place.make_device_group = [worker = *worker, time_out = milliseconds(spec.time_out)](
                                  const std::string& channel, int rank, int size, int most_blocks) {
      const auto ids = open_store(fmt::format("{}/{}/nccl", worker.store, worker.job));
      return make_nccl_group(
          *ids, {.rank = rank, .size = size, .name = channel, .time_out = time_out, .most_blocks = most_blocks});
    };
    if (worker->rank == 0 && place.note) place.note(describe_nccl(worker->size));
  }
  place.groups = std::make_shared<RankGroups>();
  place.groups->world = make_gloo_group(gloo, *store);
  if (worker->rank != 0) place.note = [](const std::string&) {};
  // Another number of parts would change last bits: as many as one process would have here.
  Group& world = *place.groups->world;
  std::uint32_t parts =
      spec.parts != 0 ? spec.parts : static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  world.wait(world.broadcast(0, &parts, sizeof parts, DType::u8));
  spec.parts = parts;
}

}  // namespace overtake
