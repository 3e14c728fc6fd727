#pragma once
// A fast 64-bit hash of bytes (the published XXH64 algorithm). It finds damage and tells contents apart; it is no
// defence against an adversary.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace overtake {

// Takes bytes in pieces; the value does not depend on where the pieces were cut.
class Hash64 {
 public:
  explicit Hash64(std::uint64_t seed = 0);

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  // Of all bytes so far; more may be added afterwards.
  std::uint64_t value() const;

 private:
  static constexpr std::size_t kStripe = 32;  // bytes: four lanes of eight

  std::uint64_t seed_;
  std::uint64_t total_ = 0;  // bytes so far
  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, kStripe> rest_{};  // the total_ % kStripe bytes that do not fill a stripe yet
};

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// Of the size, and of all bytes up to a mebibyte; of more, of some hundred blocks spread evenly from the first byte to
// the last. It tells contents apart in little time, but not those that differ between the blocks alone.
std::uint64_t sampled_hash64(std::span<const std::byte> bytes);

// 16 lower-case hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace overtake
