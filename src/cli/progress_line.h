#pragma once
// How far training is, for people.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "train/loop.h"

namespace overtake {

// Of all that is known as much as goes into so many columns; what matters least goes first.
std::string progress_text(const Progress& p, std::size_t columns);

// On a terminal a line that is written over, elsewhere none. Now and then one stays, so that the loss curve can be read
// afterwards: with the means since the last that stayed.
class ProgressLine {
 public:
  ProgressLine();
  void show(const Progress& p);

 private:
  bool stays(const Progress& p);

  bool is_terminal_;
  std::optional<std::uint64_t> stays_from_;  // the step from which on the next line stays
  std::uint64_t epoch_ = 0;                  // of the report before
  // Since the last line that stayed.
  double steps_ = 0, loss_sum_ = 0, accuracy_sum_ = 0;
};

}  // namespace overtake
