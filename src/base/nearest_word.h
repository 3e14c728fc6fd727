#pragma once
// What a mistyped word was probably meant to be, for messages.

#include <string>
#include <string_view>
#include <vector>

namespace overtake {

// How many letters must be added, dropped, changed, or swapped with their neighbour to make one word of the other.
std::size_t word_distance(std::string_view a, std::string_view b);

// The one of `known` that is the most like `word`; empty where none is like it.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

// "; did you mean train?", to end a message with; empty where nothing known is like the word.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// The same of anything that has names.
template <class Range, class Name>
std::string did_you_mean(std::string_view word, const Range& range, Name name_of) {
  std::vector<std::string> known;
  for (const auto& item : range) known.emplace_back(name_of(item));
  return did_you_mean(word, known);
}

}  // namespace overtake
