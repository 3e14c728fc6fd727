#include "cli/connect_ranks.h"

#include <unistd.h>

#include <cmath>

#include "base/error.h"
#include "comm/gloo/gloo_group.h"
#include "comm/store.h"
#include "launch/worker.h"
#include "overtake/version.h"
#include "run/field.h"
#include "train/run_options.h"

namespace overtake {
namespace {

// Every process of a host has a GPU, and NCCL between them.
void take_gpu(SessionOptions& session, const Worker& worker) {
  if (session.backend.virtual_gpus > 0)
    fail_user("--virtual-gpus {}: of {} processes every one has a GPU of its own; leave it out, or start one process",
              session.backend.virtual_gpus, worker.size);
  session.device = gpu_of_rank(session.device, worker.rank, worker.local_rank, describe_cuda(), has_nccl());
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

}  // namespace

void connect_ranks(SessionOptions& session, const RunSpec& spec) {
  const std::optional<Worker> worker = worker_from_environment();
  if (!worker || worker->size == 1) return;
  const ParallelOptions& options = session.parallel;
  if (options.devices() != static_cast<std::uint32_t>(worker->size))
    fail_user(
        "--dp {} x --pp {}: that is {} process{}, but the job has {}; change the flags, or start `overtake launch -n "
        "{}`",
        options.replicas, options.stages, options.devices(), options.devices() == 1 ? "" : "es", worker->size,
        options.devices());
  if (session.device.starts_with("cuda"))
    take_gpu(session, *worker);
  else if (session.device != "cpu")
    fail_user("--device {}: several processes train on CPUs or GPUs; use cpu or cuda", session.device);
  const auto store = open_store(fmt::format("{}/{}/world", worker->store, worker->job));
  GlooOptions gloo{.folder = {},
                   .job = {},
                   .rank = worker->rank,
                   .size = worker->size,
                   .interface = {},
                   .identity = fmt::format("version = {}\n{}", version(), identity_of(completed(spec))),
                   .group = {}};
  if (!worker->address.empty()) gloo.address = worker->address;
  gloo.group.time_out = milliseconds(spec.time_out);
  gloo.group.patience = milliseconds(spec.patience);
  if (session.device != "cpu") {
    session.backend.device_groups = std::make_shared<DeviceGroups>();
    session.make_device_group = [worker = *worker, time_out = milliseconds(spec.time_out)](
                                    const std::string& channel, int rank, int size, int most_blocks) {
      const auto ids = open_store(fmt::format("{}/{}/nccl", worker.store, worker.job));
      return make_nccl_group(
          *ids, {.rank = rank, .size = size, .name = channel, .time_out = time_out, .most_blocks = most_blocks});
    };
    if (worker->rank == 0 && session.note) session.note(describe_nccl(worker->size));
  }
  session.backend.groups = std::make_shared<RankGroups>();
  session.backend.groups->world = make_gloo_group(gloo, *store);
  if (worker->rank != 0) session.note = [](const std::string&) {};
  // Another number of parts would change last bits: as many as one process would have here.
  Group& world = *session.backend.groups->world;
  std::uint32_t parts =
      session.parts != 0 ? session.parts : static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  world.wait(world.broadcast(0, &parts, sizeof parts, DType::u8));
  session.parts = parts;
}

}  // namespace overtake
