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
      .add_option("--reduce", options.reduce,
                  "how replicas bring gradients together: buckets, by-layer, scatter-gather, or first-k")
      ->capture_default_str();
  command.add_option("--first-k", options.first_k, "of --reduce first-k: how many layers' weight gradients come last")
      ->capture_default_str();
  command.add_option("--bucket", bucket, "of --reduce buckets: bytes in one, for example 25M")->capture_default_str();
  command
      .add_option("--gradient-groups", options.groups,
                  "with one replica: add up micro-batches in so many groups first, as so many replicas would; the "
                  "weights are then the same to the bit")
      ->check(at_least_one)
      ->capture_default_str();
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
  if (session.clip_norm > 0)
    fail_user("--clip-norm {}: with --dp, --pp or --micro-batches gradients are not clipped yet; leave it out",
              session.clip_norm);
  const std::int64_t pieces = std::int64_t{options.replicas} * options.micro_batches;
  if (session.batch == 0) session.batch = batch_of(session.load().graph);
  if (session.batch % pieces != 0)
    fail_user("--batch {}: it must be a multiple of --dp {} x --micro-batches {}", session.batch, options.replicas,
              options.micro_batches);
  session.batch /= pieces;
}

void ParallelFlags::connect(SessionOptions& session, const std::string& identity) const {
  const std::optional<Worker> worker = worker_from_environment();
  if (!worker || worker->size == 1) return;
  if (options.devices() != static_cast<std::uint32_t>(worker->size))
    fail_user(
        "--dp {} x --pp {}: that is {} process{}, but the job has {}; change the flags, or start `overtake launch -n "
        "{}`",
        options.replicas, options.stages, options.devices(), options.devices() == 1 ? "" : "es", worker->size,
        options.devices());
  if (session.device != "cpu")
    fail_user("--device {}: several processes train on CPUs so far; use --device cpu", session.device);
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
