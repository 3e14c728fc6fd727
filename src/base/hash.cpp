#include "base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace overtake {
namespace {

static_assert(std::endian::native == std::endian::little, "the hash reads its lanes little-endian");

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ull;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Full;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ull;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ull;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ull;

template <class Word>
Word read_word(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

std::uint64_t mix_lane(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

void mix_stripe(std::array<std::uint64_t, 4>& lanes, const std::byte* stripe) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i] = mix_lane(lanes[i], read_word<std::uint64_t>(stripe + 8 * i));
  }
}

std::uint64_t join_lanes(const std::array<std::uint64_t, 4>& lanes) {
  std::uint64_t hash =
      std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) hash = (hash ^ mix_lane(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

// The bytes behind the last whole stripe: by eight, by four, one by one.
std::uint64_t mix_rest(std::uint64_t hash, std::span<const std::byte> rest) {
  while (rest.size() >= 8) {
    hash = std::rotl(hash ^ mix_lane(0, read_word<std::uint64_t>(rest.data())), 27) * kPrime1 + kPrime4;
    rest = rest.subspan(8);
  }
  if (rest.size() >= 4) {
    hash = std::rotl(hash ^ (read_word<std::uint32_t>(rest.data()) * kPrime1), 23) * kPrime2 + kPrime3;
    rest = rest.subspan(4);
  }
  for (const std::byte byte : rest) {
    hash = std::rotl(hash ^ (std::to_integer<std::uint64_t>(byte) * kPrime5), 11) * kPrime1;
  }
  return hash;
}

// Lets every input bit reach every output bit.
std::uint64_t avalanche(std::uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

Hash64::Hash64(std::uint64_t seed)
    : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1} {}

void Hash64::add(std::span<const std::byte> bytes) {
  const std::size_t held = total_ % kStripe;
  total_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(kStripe - held, bytes.size());
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(taken);
    if (held + taken < kStripe) return;
    mix_stripe(lanes_, rest_.data());
  }
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) mix_stripe(lanes_, bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

std::uint64_t Hash64::value() const {
  const std::uint64_t body = total_ >= kStripe ? join_lanes(lanes_) : seed_ + kPrime5;
  return avalanche(mix_rest(body + total_, std::span(rest_).first(total_ % kStripe)));
}

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  Hash64 hash(seed);
  hash.add(bytes);
  return hash.value();
}

std::uint64_t sampled_hash64(std::span<const std::byte> bytes) {
  constexpr std::size_t kBlocks = 256, kBlock = 4096;
  Hash64 hash(bytes.size());
  if (bytes.size() <= kBlocks * kBlock) {
    hash.add(bytes);
    return hash.value();
  }
  const std::size_t last = bytes.size() - kBlock;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    // i * last / (kBlocks - 1), which does not overflow.
    const std::size_t at = i * (last / (kBlocks - 1)) + i * (last % (kBlocks - 1)) / (kBlocks - 1);
    hash.add(bytes.subspan(at, kBlock));
  }
  return hash.value();
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace overtake
