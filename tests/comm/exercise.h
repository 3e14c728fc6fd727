#pragma once
// All kinds of transfers at once, against sums made here: what every backend must get right.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "comm/group.h"

namespace overtake {

// Element i of what rank r brings to a transfer: of very different sizes, so that the order of addition shows.
inline float brought(int rank, std::uint64_t tag, std::size_t i) {
  std::uint64_t x = (tag * 1000003 + static_cast<std::uint64_t>(rank)) * 0x9E3779B97F4A7C15u + i;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  const float mantissa = static_cast<float>(x & 0xffff) / 65536.0f - 0.5f;
  return std::ldexp(mantissa, static_cast<int>((x >> 20) % 24) - 12);
}

template <class T>
constexpr DType dtype_of() {
  return sizeof(T) == 4 ? DType::f32 : DType::bf16;
}

template <class T>
std::vector<T> brought_by(int rank, std::uint64_t tag, std::size_t count) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = from_float<T>(brought(rank, tag, i));
  return out;
}

// x0 + x1 + ... in float32, rounded once; and the same in double with the sum of magnitudes.
template <class T>
struct Sum {
  T value;
  double exact = 0, magnitude = 0;
};
template <class T>
Sum<T> sum_over(int size, std::uint64_t tag, std::size_t i) {
  Sum<T> out{};
  float sum = 0;
  for (int r = 0; r < size; ++r) {
    const float x = to_float(from_float<T>(brought(r, tag, i)));
    sum = r == 0 ? x : sum + x;
    out.exact += static_cast<double>(x);
    out.magnitude += std::abs(static_cast<double>(x));
  }
  out.value = from_float<T>(sum);
  return out;
}

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::uint32_t bits_of(bf16 x) { return x.bits; }

// One transfer of a kind, and what its result must be.
template <class T>
class Case {
 public:
  Case(Group& group, TransferKind kind, std::uint64_t tag, std::size_t count)
      : group_(&group), kind_(kind), tag_(tag), data_(brought_by<T>(group.rank(), tag, count)) {}

  void start(int priority) {
    const int n = group_->size(), next = (group_->rank() + 1) % n, before = (group_->rank() + n - 1) % n;
    const TransferOptions options{tag_, priority};
    const int root = static_cast<int>(tag_) % n;
    const int peer = kind_ == TransferKind::broadcast ? root : kind_ == TransferKind::send ? next : before;
    handle_ = group_->start({kind_, data_.data(), data_.size(), dtype_of<T>(), peer, options});
  }
  void wait() { group_->wait(handle_); }

  // Empty when all is right.
  std::string difference() const {
    const int n = group_->size(), me = group_->rank();
    for (std::size_t i = 0; i < data_.size(); ++i) {
      int owner = 0;
      while (i >= part_of(data_.size(), n, owner).end) ++owner;
      T expected = from_float<T>(brought(me, tag_, i));
      switch (kind_) {
        case TransferKind::reduce_scatter:
          if (owner != me) break;
          [[fallthrough]];
        case TransferKind::all_reduce: {
          const Sum<T> sum = sum_over<T>(n, tag_, i);
          expected = sum.value;
          const double error = std::abs(static_cast<double>(to_float(data_[i])) - sum.exact);
          const double allowed = sum.magnitude * n * 6e-8 + (sizeof(T) == 2 ? std::abs(sum.exact) / 256 : 0) + 1e-30;
          if (error > allowed) return said(i) + " is not the sum: " + std::to_string(error);
          break;
        }
        case TransferKind::all_gather:
          expected = from_float<T>(brought(owner, tag_, i));
          break;
        case TransferKind::broadcast:
          expected = from_float<T>(brought(static_cast<int>(tag_) % n, tag_, i));
          break;
        case TransferKind::recv:
          expected = from_float<T>(brought((me + n - 1) % n, tag_, i));
          break;
        default:
          break;
      }
      if (bits_of(data_[i]) != bits_of(expected)) return said(i) + " has other bits";
    }
    return "";
  }

 private:
  std::string said(std::size_t i) const {
    return "rank " + std::to_string(group_->rank()) + ": " + to_string(kind_) + " tag " + std::to_string(tag_) + " [" +
           std::to_string(i) + "] of " + std::to_string(data_.size());
  }
  Group* group_;
  TransferKind kind_;
  std::uint64_t tag_;
  std::vector<T> data_;
  TransferHandle handle_;
};

// Starts transfers of all kinds, types and awkward sizes in an order and with priorities of this rank's own, and waits
// for them in another order. The first difference, or nothing.
template <class T>
std::string exercise_type(Group& group, std::mt19937& random) {
  std::vector<Case<T>> cases;
  std::uint64_t tag = 0;
  for (const std::size_t count : {0u, 1u, 7u, 64u, 1000u, 4099u, 30011u}) {
    for (const TransferKind kind :
         {TransferKind::all_reduce, TransferKind::reduce_scatter, TransferKind::all_gather, TransferKind::broadcast}) {
      cases.emplace_back(group, kind, ++tag, count);
    }
    if (group.size() == 1) continue;
    cases.emplace_back(group, TransferKind::send, ++tag, count);
    cases.emplace_back(group, TransferKind::recv, tag, count);
  }
  std::shuffle(cases.begin(), cases.end(), random);
  for (Case<T>& c : cases) c.start(static_cast<int>(random() % 5) - 2);
  std::vector<std::size_t> order(cases.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) cases[i].wait();
  for (const Case<T>& c : cases) {
    if (std::string difference = c.difference(); !difference.empty()) return difference;
  }
  return "";
}

inline std::string exercise(Group& group, unsigned seed, int rounds = 2) {
  std::mt19937 random(seed * 31 + static_cast<unsigned>(group.rank()));
  for (int round = 0; round < rounds; ++round) {
    if (std::string difference = exercise_type<float>(group, random); !difference.empty()) return difference;
    if (std::string difference = exercise_type<bf16>(group, random); !difference.empty()) return difference;
    group.barrier();
  }
  return "";
}

}  // namespace overtake
