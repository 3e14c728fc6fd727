#include "plan/divide/first_k.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::uint32_t kGrid = 16;       // values of k tried at first that begin with the first block
constexpr std::uint32_t kCoarseGrid = 6;  // both ways, of those that begin further up

std::uint32_t whole_number(std::string_view text, std::string_view all) {
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value) != std::from_chars_result{end, std::errc{}})
    fail_user(
        "`first_k {}`: give how many layers' weight gradients come last, for example 12, or 12@30 for the twelve "
        "after the first thirty",
        all);
  return value;
}

}  // namespace

FirstK first_k_from_string(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) return {.k = whole_number(text, text)};
  return {.k = whole_number(text.substr(0, at), text), .from = whole_number(text.substr(at + 1), text)};
}

std::string to_string(FirstK f) { return f.from == 0 ? std::to_string(f.k) : fmt::format("{}@{}", f.k, f.from); }

std::uint32_t most_first_k(const PipelineLayout& layout) {
  std::uint32_t most = 0;
  for (std::uint32_t c = 0; c < layout.chunks(); ++c)
    most = std::max(most, layout.first_block[c + 1] - layout.first_block[c]);
  return most;
}

void search_first_k(std::uint32_t most, const std::function<bool(FirstK)>& is_best) {
  std::set<FirstK> tried;
  FirstK best;
  const auto try_out = [&](std::int64_t begin, std::int64_t end) {
    if (begin < 0 || begin > end || end > most || (begin == end && begin > 0)) return;
    const FirstK f{static_cast<std::uint32_t>(end - begin), static_cast<std::uint32_t>(begin)};
    if (tried.insert(f).second && is_best(f)) best = f;
  };
  const std::int64_t all = most;
  for (std::int64_t k = 0, step = std::max(1u, most / kGrid); k <= all; k += step) try_out(0, k);
  try_out(0, all);
  std::int64_t step = std::max(1u, most / kCoarseGrid);
  for (std::int64_t begin = step; begin < all; begin += step) {
    for (std::int64_t end = begin + step; end < all; end += step) try_out(begin, end);
    try_out(begin, all);
  }
  while (step > 0) {
    const FirstK middle = best;
    const std::int64_t begin = middle.from, end = begin + middle.k;
    for (const std::int64_t by : {-step, step}) {
      try_out(begin, end + by);
      try_out(begin + by, end);
      try_out(begin + by, end + by);
    }
    if (best == middle) step /= 2;
  }
}

}  // namespace overtake
