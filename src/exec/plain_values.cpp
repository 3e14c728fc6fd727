#include "exec/plain_values.h"

#include <cstring>

#include "exec/task_view.h"
#include "kernels/cpu/reorder.h"

namespace overtake {
namespace {

void convert(const Buffer& b, const std::byte* from, const Layout& from_layout, std::byte* to,
             const Layout& to_layout) {
  if (from_layout == to_layout) {
    std::memcpy(to, from, plain_bytes(b));
    return;
  }
  with_type(b.dtype, [&]<class T>(T) {
    kernels::reorder(reinterpret_cast<const T*>(from), from_layout, reinterpret_cast<T*>(to), to_layout, b.shape.span(),
                     0, kernels::reorder_units(to_layout, b.shape.span()));
  });
}

void check_size(const Buffer& b, std::size_t bytes) {
  OVERTAKE_CHECK(bytes == plain_bytes(b), "a buffer {} of {} has {} bytes, not {}", to_string(b.shape),
                 to_string(b.dtype), plain_bytes(b), bytes);
}

}  // namespace

std::size_t plain_bytes(const Buffer& b) { return static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)); }

void to_plain(const Buffer& b, std::span<const std::byte> laid_out, std::span<std::byte> plain) {
  check_size(b, plain.size());
  convert(b, laid_out.data(), b.layout, plain.data(), plain_layout(b.shape.rank));
}

void from_plain(const Buffer& b, std::span<const std::byte> plain, std::span<std::byte> laid_out) {
  check_size(b, plain.size());
  convert(b, plain.data(), plain_layout(b.shape.rank), laid_out.data(), b.layout);
}

}  // namespace overtake
