#pragma once
// Optimizers that keep something, and clip.

#include "passes/updates.h"

namespace overtake {

inline OptimizerSettings momentum() { return {.momentum = 0.9}; }
inline OptimizerSettings clipped_adamw() {
  return {.kind = OptimizerSettings::Kind::adamw, .weight_decay = 0.01, .clip_norm = 0.5};
}

}  // namespace overtake
