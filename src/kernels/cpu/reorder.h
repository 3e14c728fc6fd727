#pragma once
// The same tensor in another layout, and in another element type on the way.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "overtake/layout.h"

namespace overtake::kernels {

// How many units reorder() splits a tensor into: outer blocks of the outermost dimension of the destination.
std::int64_t reorder_units(const Layout& to_layout, std::span<const std::int64_t> dims);

// to = from in another layout; padding of the destination becomes zero. Writes units [begin, end) of the destination.
// From, To: float or bf16. Plain to channels-last images and back take a fast path; blocked weights in a hurry should
// use WeightReorder.
template <class From, class To>
void reorder(const From* from, const Layout& from_layout, To* to, const Layout& to_layout,
             std::span<const std::int64_t> dims, std::int64_t begin, std::int64_t end);

// A whole tensor through oneDNN's reorder, at close to memory speed between blocked layouts. Built on a thread whose
// OpenMP thread count is 1, run on any such thread, many at once.
class WeightReorder {
 public:
  WeightReorder(const Layout& from, bool from_bf16, const Layout& to, bool to_bf16, std::span<const std::int64_t> dims);
  ~WeightReorder();
  WeightReorder(WeightReorder&&) noexcept;
  WeightReorder& operator=(WeightReorder&&) noexcept;

  std::size_t scratch_bytes() const;
  const std::string& implementation() const;

  // from, to: padded_elements() elements of their type; padding of the destination becomes zero. scratch as for
  // convolutions (conv2d.h).
  void run(const void* from, void* to, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace overtake::kernels
