#include "report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/html_page.h"
#include "report/table.h"

namespace overtake {
namespace {

constexpr std::array kAreas = {Area::collectives,   Area::kernels,   Area::steps,
                               Area::data_parallel, Area::pipelines, Area::memory};

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

const PublishedSource& source_of(const Comparison& row, std::span<const PublishedSource> sources) {
  const auto at = std::ranges::find(sources, row.source, &PublishedSource::name);
  OVERTAKE_CHECK(at != sources.end(), "{}: no such source of published figures", row.source);
  return *at;
}

std::string name_of(const ComparisonGroup& group) {
  if (group.source != nullptr) return fmt::format("  {}", group.source->name);
  return fmt::format("{}{}", to_string(group.area), group.is_arithmetic ? ", arithmetic" : "");
}

}  // namespace

std::string_view to_string(Area area) {
  switch (area) {
    case Area::collectives:
      return "collectives";
    case Area::kernels:
      return "kernels";
    case Area::steps:
      return "single-device steps";
    case Area::data_parallel:
      return "data parallel";
    case Area::pipelines:
      return "pipelines";
    case Area::memory:
      return "memory";
  }
  return "";
}

double Comparison::error() const {
  if (is_inside()) return 0;
  const double end = ours > high ? high : low;
  return 100 * (ours - end) / end;
}

ErrorSummary summary_of(std::span<const Comparison> rows) {
  ErrorSummary out{.rows = rows.size()};
  std::vector<double> errors;
  for (const Comparison& c : rows) {
    errors.push_back(std::abs(c.error()));
    if (c.is_range()) ++out.ranges;
    if (c.is_range() && c.is_inside()) ++out.inside;
    out.mean += errors.back() / static_cast<double>(rows.size());
  }
  if (rows.empty()) return out;
  std::ranges::sort(errors);
  const std::size_t half = errors.size() / 2;
  out.median = errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
  out.largest = errors.back();
  return out;
}

std::vector<ComparisonGroup> groups_of(std::span<const Comparison> rows, std::span<const PublishedSource> sources) {
  std::vector<ComparisonGroup> groups;
  const auto add = [&](Area area, bool is_arithmetic, const PublishedSource* source) {
    std::vector<Comparison> some;
    std::ranges::copy_if(rows, std::back_inserter(some), [&](const Comparison& c) {
      const PublishedSource& s = source_of(c, sources);
      return source != nullptr ? &s == source : s.area == area && s.is_arithmetic == is_arithmetic;
    });
    if (!some.empty()) groups.push_back({area, is_arithmetic, source, summary_of(some)});
  };
  for (const bool is_arithmetic : {false, true}) {
    for (const Area area : kAreas) {
      add(area, is_arithmetic, nullptr);
      for (const PublishedSource& s : sources)
        if (s.area == area && s.is_arithmetic == is_arithmetic) add(area, is_arithmetic, &s);
    }
  }
  return groups;
}

std::string comparison_table(std::span<const Comparison> rows, std::span<const PublishedSource> sources) {
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
  Table summary({"errors in percent", "rows", "median", "mean", "largest", "ranges met"});
  for (const ComparisonGroup& group : groups_of(rows, sources)) {
    const ErrorSummary& e = group.errors;
    summary.add({name_of(group), fmt::format("{}", e.rows), fmt::format("{:.1f}", e.median),
                 fmt::format("{:.1f}", e.mean), fmt::format("{:.1f}", e.largest),
                 e.ranges > 0 ? fmt::format("{} of {}", e.inside, e.ranges) : ""});
  }
  return text + "\n" + summary.text();
}

nlohmann::json to_json(std::span<const Comparison> rows, std::span<const PublishedSource> sources) {
  nlohmann::json out = {
      {"rows", nlohmann::json::array()}, {"areas", nlohmann::json::array()}, {"sources", nlohmann::json::array()}};
  for (const Comparison& c : rows)
    out["rows"].push_back({{"source", c.source},
                           {"what", c.what},
                           {"unit", c.unit},
                           {"published", {c.low, c.high}},
                           {"ours", c.ours},
                           {"error_percent", c.error()},
                           {"inside", c.is_inside()},
                           {"note", c.note}});
  for (const ComparisonGroup& group : groups_of(rows, sources)) {
    const ErrorSummary& e = group.errors;
    nlohmann::json entry = {{"area", to_string(group.area)},
                            {"arithmetic", group.is_arithmetic},
                            {"rows", e.rows},
                            {"ranges", e.ranges},
                            {"inside", e.inside},
                            {"median_error_percent", e.median},
                            {"mean_error_percent", e.mean},
                            {"largest_error_percent", e.largest}};
    if (group.source == nullptr) {
      out["areas"].push_back(std::move(entry));
    } else {
      entry.update({{"source", group.source->name}, {"citation", group.source->citation}, {"url", group.source->url}});
      out["sources"].push_back(std::move(entry));
    }
  }
  return out;
}

std::string comparison_page(std::span<const Comparison> rows, std::span<const PublishedSource> sources) {
  return html_page(kComparisonPage, to_json(rows, sources));
}

}  // namespace overtake
