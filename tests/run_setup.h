#pragma once
// What runs of tests are made of: a spec, and what a spec cannot say.

#include <string>

#include "exec/backend.h"
#include "plan/divide/parallel_options.h"
#include "test_device.h"
#include "train/run.h"
#include "train/sample_form.h"

namespace overtake {

struct RunSetup {
  RunSpec spec;
  RunOptions more = {};
};

inline TrainingRun run_of(Graph model, RunSetup setup) {
  return TrainingRun(std::move(model), setup.spec, std::move(setup.more));
}

// In order, so that nothing is measured.
inline RunSetup in_order_setup() {
  RunSetup setup;
  setup.spec.schedule = "in-order";
  return setup;
}

inline void use_gpu(RunSetup& setup, Precision precision = Precision::bf16) {
  setup.spec.device = "cuda";
  setup.spec.precision = to_string(precision);
  setup.spec.tuning = false;
  setup.more.place.tuning_file = "";
}

inline void use_test_device(RunSetup& setup, Precision precision, unsigned threads) {
  use_gpu(setup, precision);
  setup.spec.device = test_device();
  setup.spec.threads = threads;
}

inline void set_optimizer(RunSpec& spec, const OptimizerSettings& o) {
  spec.optimizer = o.kind == OptimizerSettings::Kind::sgd ? "sgd" : "adamw";
  spec.momentum = o.momentum;
  spec.nesterov = o.nesterov;
  spec.weight_decay = o.weight_decay;
  spec.beta1 = o.beta1;
  spec.beta2 = o.beta2;
  spec.eps = o.eps;
  spec.clip_norm = o.clip_norm;
}

// The lanes of one device stay as they are.
inline void set_layout(RunSpec& spec, const ParallelOptions& o) {
  spec.replicas = o.replicas;
  spec.stages = o.stages;
  spec.micro_batches = o.micro_batches;
  spec.pipeline = o.pipeline;
  spec.search_tries = o.search_tries.value_or(0);
  spec.reduce = o.reduce;
  if (o.reduce == "first-k" && o.first_k) spec.first_k = to_string(*o.first_k);
  spec.bucket = std::to_string(o.bucket_bytes);
  spec.gradient_groups = o.groups;
  spec.sync_batch_norm = o.sync_batch_norm;
  if (o.devices() > 1) spec.schedule = o.lanes;
}

}  // namespace overtake
