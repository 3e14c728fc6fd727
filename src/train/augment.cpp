#include "train/augment.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/philox.h"

namespace overtake {
namespace {

// Keeps these draws apart from other uses of the same seed.
constexpr std::uint64_t kPurpose = 0x6175676D656E7400ull;

struct Change {
  bool flip;
  std::int64_t down, right;
};

// One of the 2 * limit + 1 whole numbers in [-limit, limit].
std::int64_t random_shift(std::uint32_t word, std::int64_t limit) {
  return static_cast<std::int64_t>(word) % (2 * limit + 1) - limit;
}

Change draw_change(const AugmentOptions& options, std::uint64_t seed, std::uint64_t epoch, std::int64_t sample) {
  const std::uint64_t mixed = seed ^ kPurpose;
  const PhiloxKey key{static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
  const std::array<std::uint32_t, 4> words = philox(key, static_cast<std::uint64_t>(sample), epoch);
  return {.flip = options.flip && (words[0] & 1u) != 0,
          .down = random_shift(words[1], options.max_shift),
          .right = random_shift(words[2], options.max_shift)};
}

}  // namespace

void augment_image(float* image, std::int64_t channels, std::int64_t height, std::int64_t width,
                   const AugmentOptions& options, std::uint64_t seed, std::uint64_t epoch, std::int64_t sample) {
  const Change change = draw_change(options, seed, epoch, sample);
  const std::vector<float> before(image, image + channels * height * width);  // [H, W, C]
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t from_y = std::clamp<std::int64_t>(y - change.down, 0, height - 1);
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t shifted = std::clamp<std::int64_t>(x - change.right, 0, width - 1);
      const std::int64_t from_x = change.flip ? width - 1 - shifted : shifted;
      std::copy_n(before.begin() + (from_y * width + from_x) * channels, channels, image + (y * width + x) * channels);
    }
  }
}

}  // namespace overtake
