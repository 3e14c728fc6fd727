#include "report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/table.h"

namespace overtake {
namespace {

std::string number(double v) {
  const double size = std::abs(v);
  return fmt::format("{:.{}f}", v, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

std::string published(const Comparison& c) {
  return c.is_range() ? fmt::format("{} to {}", number(c.low), number(c.high)) : number(c.low);
}

std::string verdict(const Comparison& c) {
  if (!c.is_range()) return fmt::format("{:+.1f} %", c.error());
  return c.is_inside() ? "inside" : fmt::format("outside, {:+.1f} %", c.error());
}

}  // namespace

double Comparison::error() const {
  if (is_inside()) return 0;
  const double end = ours > high ? high : low;
  return 100 * (ours - end) / end;
}

std::vector<SourceErrors> errors_by_source(std::span<const Comparison> rows) {
  std::vector<SourceErrors> all;
  for (const Comparison& c : rows) {
    auto at = std::ranges::find(all, c.source, &SourceErrors::source);
    if (at == all.end()) at = all.insert(all.end(), {.source = c.source});
    ++at->rows;
    if (c.is_range()) ++at->ranges;
    if (c.is_range() && c.is_inside()) ++at->inside;
    at->mean += std::abs(c.error());
    at->largest = std::max(at->largest, std::abs(c.error()));
  }
  for (SourceErrors& s : all) s.mean /= static_cast<double>(s.rows);
  return all;
}

std::string comparison_table(std::span<const Comparison> rows) {
  std::vector<std::string> notes;
  const auto mark = [&](const std::string& note) -> std::string {
    if (note.empty()) return "";
    auto at = std::ranges::find(notes, note);
    if (at == notes.end()) at = notes.insert(notes.end(), note);
    return fmt::format("[{}]", at - notes.begin() + 1);
  };
  Table table({"source", "what", "published", "ours", "unit", "error", "note"});
  for (const Comparison& c : rows)
    table.add({c.source, c.what, published(c), number(c.ours), c.unit, verdict(c), mark(c.note)});
  std::string text = table.text();
  for (std::size_t i = 0; i < notes.size(); ++i) text += fmt::format("[{}] {}\n", i + 1, notes[i]);
  for (const SourceErrors& s : errors_by_source(rows)) {
    text += fmt::format("{}: {} row{}, error {:.1f} % on average, {:.1f} % at most", s.source, s.rows,
                        s.rows == 1 ? "" : "s", s.mean, s.largest);
    if (s.ranges > 0) text += fmt::format(", {} of {} ranges met", s.inside, s.ranges);
    text += '\n';
  }
  return text;
}

}  // namespace overtake
