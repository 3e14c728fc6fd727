#pragma once
// Published figures beside ours.

#include <span>
#include <string>
#include <vector>

namespace overtake {

struct Comparison {
  std::string source;        // who published it: "Zero Bubble, table 4"
  std::string what;          // "1.5B, 8 GPUs, 24 micro-batches: ZB-1p / 1F1B"
  std::string unit;          // "x", "samples/GPU/s", "GB"
  double low = 0, high = 0;  // published; equal: one value, otherwise a range
  double ours = 0;
  std::string note;  // where it does not fit: the reason that was looked for; of all rows it is about

  bool is_range() const { return high != low; }
  bool is_inside() const { return ours >= low && ours <= high; }
  // Percent of the published value by which ours is larger; of a range, of its nearer end, and 0 inside.
  double error() const;
};

struct SourceErrors {
  std::string source;
  std::size_t rows = 0, ranges = 0, inside = 0;  // inside: of the ranges
  double mean = 0, largest = 0;                  // of the errors' sizes, percent
};

// One per source, in the order of their first rows.
std::vector<SourceErrors> errors_by_source(std::span<const Comparison> rows);

// Rows, then notes, then a line per source.
std::string comparison_table(std::span<const Comparison> rows);

}  // namespace overtake
