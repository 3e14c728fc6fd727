#pragma once
// Random changes of images that keep their meaning, as a pure function of (seed, epoch, sample).

#include <cstdint>

namespace overtake {

struct AugmentOptions {
  bool flip = false;           // left-right, every second time
  std::int64_t max_shift = 0;  // pixels along each axis; pixels from outside repeat the border

  bool any() const { return flip || max_shift > 0; }
};

// Changes one image in place. image: [H, W, C] in memory.
void augment_image(float* image, std::int64_t channels, std::int64_t height, std::int64_t width,
                   const AugmentOptions& options, std::uint64_t seed, std::uint64_t epoch, std::int64_t sample);

}  // namespace overtake
