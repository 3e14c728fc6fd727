#include "base/nearest_word.h"

#include <algorithm>
#include <cctype>

namespace overtake {
namespace {

// Words differ in case and in what stands between their parts more often than in letters.
std::string plain(std::string_view word) {
  std::string out;
  for (const char c : word) out += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::size_t word_distance(std::string_view a, std::string_view b) {
  // Of the first i letters of a and the first j of b: row i of the table, and the two rows above it.
  std::vector<std::size_t> above_last, last, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    above_last = std::move(last);
    last = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], above_last[j - 2] + 1);
    }
  }
  return row.back();
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongestWord = 100;  // longer ones are no word that somebody has mistyped
  if (word.empty() || word.size() > kLongestWord) return {};
  const std::string typed = plain(word);
  const std::string* nearest = nullptr;
  std::size_t least = 0;
  for (const std::string& one : known) {
    const std::size_t distance = word_distance(typed, plain(one));
    // A third of the letters may be wrong, or the rest of the word is missing.
    const bool is_like =
        3 * distance <= std::max(typed.size(), one.size()) || (typed.size() >= 3 && plain(one).starts_with(typed));
    if (!is_like || (nearest != nullptr && distance >= least)) continue;
    nearest = &one;
    least = distance;
  }
  return nearest == nullptr ? std::string() : *nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string nearest = nearest_word(word, known);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace overtake
