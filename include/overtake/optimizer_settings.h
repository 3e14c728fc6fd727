#pragma once
// How weights are updated.

#include <cstdint>

namespace overtake {

struct OptimizerSettings {
  enum class Kind : std::uint8_t { sgd, adamw };
  Kind kind = Kind::sgd;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double clip_norm = 0;  // 0: no clipping
};

}  // namespace overtake
