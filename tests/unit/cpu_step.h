#pragma once
// The training step of a model of the zoo as a CPU with two threads has it.

#include <string>

#include "exec/cpu/target.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"

namespace overtake {

inline Graph cpu_step(const std::string& model, const std::string& settings, const OptimizerSettings& optimizer = {}) {
  const CpuTarget target;
  PassRunner runner;
  return build_training_graph(build_model(model, ModelSettings::parse(settings)), target,
                              {.optimizer = optimizer, .parts = 2, .extra = {}}, runner);
}

}  // namespace overtake
