#include "cli/parallel_flags.h"

#include "base/error.h"
#include "base/units.h"

namespace overtake {
namespace {

std::int64_t batch_of(const Graph& graph) {
  for (const Buffer& b : graph.buffers)
    if (b.role == Role::input) return b.shape[0];
  return 0;
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
}

void ParallelFlags::apply(SessionFlags& session) {
  options.bucket_bytes = parse_bytes(bucket, "--bucket");
  check(options);
  if (!options.is_used()) return;
  const std::int64_t pieces = std::int64_t{options.replicas} * options.micro_batches;
  if (session.batch == 0) session.batch = batch_of(session.load().graph);
  if (session.batch % pieces != 0)
    fail_user("--batch {}: it must be a multiple of --dp {} x --micro-batches {}", session.batch, options.replicas,
              options.micro_batches);
  session.batch /= pieces;
}

}  // namespace overtake
