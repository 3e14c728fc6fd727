#pragma once
// Published figures beside ours.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace overtake {

enum class Area : std::uint8_t { collectives, kernels, steps, data_parallel, pipelines, memory };
std::string_view to_string(Area);

struct PublishedSource {
  std::string_view name;  // short: "Zero Bubble, table 4"
  std::string_view citation;
  std::string_view url;
  Area area = Area::steps;
  // The source's own times of stages are put in: what is compared is the arithmetic of schedules, no prediction.
  bool is_arithmetic = false;
};

struct Comparison {
  std::string source;        // the name of a PublishedSource
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

// Of the sizes of errors, in percent.
struct ErrorSummary {
  std::size_t rows = 0, ranges = 0, inside = 0;  // inside: of the ranges
  double median = 0, mean = 0, largest = 0;
};
ErrorSummary summary_of(std::span<const Comparison> rows);

// The rows of one source, or of all sources of an area that are predictions, or arithmetic.
struct ComparisonGroup {
  Area area = Area::steps;
  bool is_arithmetic = false;
  const PublishedSource* source = nullptr;  // none: of the area
  ErrorSummary errors;
};
// Predictions first, area by area: the area, then its sources in their order. Those without rows are left out.
std::vector<ComparisonGroup> groups_of(std::span<const Comparison> rows, std::span<const PublishedSource> sources);

// Rows, then notes, then a table of the groups.
std::string comparison_table(std::span<const Comparison> rows, std::span<const PublishedSource> sources);
// All of it, as `overtake validate --json` prints it and its page shows it.
nlohmann::json to_json(std::span<const Comparison> rows, std::span<const PublishedSource> sources);
std::string comparison_page(std::span<const Comparison> rows, std::span<const PublishedSource> sources);

}  // namespace overtake
