#pragma once
// The training step of a model of the zoo as GPUs have it, for plans over several of them; none is needed.

#include <string>

#include "machine/gpu_target.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"

namespace overtake {

inline Graph gpu_step(const std::string& model, const std::string& settings) {
  PassRunner runner({.skip = {"group_updates", "share_concats"}, .print = {}});
  return build_training_graph(build_model(model, ModelSettings::parse(settings)), GpuTarget(),
                              {.optimizer = {}, .bf16 = true, .extra = {}}, runner);
}

}  // namespace overtake
