#include "cli/parallel_flags.h"

#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "comm/gloo/gloo_group.h"
#include "comm/store.h"
#include "launch/worker.h"

namespace overtake {
namespace {

std::int64_t batch_of(const Graph& graph) {
  for (const Buffer& b : graph.buffers)
    if (b.role == Role::input) return b.shape[0];
  return 0;
}

std::int64_t pieces_of(const ParallelOptions& options) {
  return std::int64_t{options.replicas} * options.micro_batches;
}

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

void ParallelFlags::add_to(CLI::App& command) {
  const auto at_least_one = CLI::Range(1u, 65535u);
  command.add_option("--dp", options.replicas, "replicas of the model, each with its part of the batch")
      ->check(at_least_one)
      ->capture_default_str();
  command.add_option("--pp", options.stages, "stages of a pipeline")->check(at_least_one)->capture_default_str();
  command
      .add_option("--micro-batches", options.micro_batches,
                  "pieces of a replica's part of the batch, which it takes one after the other")
      ->check(at_least_one)
      ->capture_default_str();
  command
      .add_option("--pipeline", options.pipeline,
                  "schedule of the pipeline, as `overtake simulate` names them, or search")
      ->capture_default_str();
  command
      .add_option(
          "--reduce", options.reduce,
          "how replicas bring gradients together: buckets, by-layer, scatter-gather, first-k, or auto (whichever is "
          "predicted, and then measured, to be the fastest)")
      ->capture_default_str();
  command.add_option_function<std::string>(
      "--first-k", [this](const std::string& text) { options.first_k = first_k_from_string(text); },
      "of --reduce first-k: how many layers' weight gradients come last, the first ones' or, as 12@30, those of the 12 "
      "after the first 30; default: as predicted and measured to be the fastest");
  command.add_option("--bucket", bucket, "of --reduce buckets: bytes in one, for example 25M")->capture_default_str();
  command
      .add_option("--gradient-groups", options.groups,
                  "with one replica: add up micro-batches in so many groups first, as so many replicas would; the "
                  "weights are then the same to the bit")
      ->check(at_least_one)
      ->capture_default_str();
  command.add_flag("--predict", options.predict, "say what a step was predicted to take, beside what it took");
  command.add_flag("--sync-batch-norm", options.sync_batch_norm,
                   "with --dp: batch norms take their statistics from all replicas");
  command.add_option("--time-out", time_out, "seconds after which a process that is silent counts as lost")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  command
      .add_option("--patience", patience,
                  "seconds that a process which is heard may keep the others waiting: it may measure, read or save")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
}

void ParallelFlags::apply(SessionFlags& session) {
  options.bucket_bytes = parse_bytes(bucket, "--bucket");
  check(options);
  if (!options.is_used()) return;
  if (session.batch == 0) session.batch = batch_of(session.load().graph);
  const std::int64_t pieces = pieces_of(options);
  if (session.batch % pieces != 0)
    fail_user("--batch {}: it must be a multiple of --dp {} x --micro-batches {}", session.batch, options.replicas,
              options.micro_batches);
  session.batch /= pieces;
}

std::int64_t ParallelFlags::whole_batch(const Graph& graph) const { return batch_of(graph) * pieces_of(options); }

void ParallelFlags::connect(SessionOptions& session, const std::string& identity) const {
  const std::optional<Worker> worker = worker_from_environment();
  if (!worker || worker->size == 1) return;
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
                   .identity = identity,
                   .group = {}};
  if (!worker->address.empty()) gloo.address = worker->address;
  gloo.group.time_out = milliseconds(time_out);
  gloo.group.patience = milliseconds(patience);
  if (session.device != "cpu") {
    session.backend.device_groups = std::make_shared<DeviceGroups>();
    session.make_device_group = [worker = *worker, time_out = milliseconds(time_out)](
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
