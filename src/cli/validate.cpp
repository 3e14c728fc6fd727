#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/validate_rows.h"
#include "report/comparison.h"

namespace overtake {
namespace {

constexpr double kFits = 2;  // percent: less needs no reason

bool has(const std::string& text, const std::string& part) {
  const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  return part.empty() || !std::ranges::search(text, part, same).empty();
}

nlohmann::json json_of(const std::vector<Comparison>& rows) {
  nlohmann::json out = {{"rows", nlohmann::json::array()}, {"sources", nlohmann::json::array()}};
  for (const Comparison& c : rows)
    out["rows"].push_back({{"source", c.source},
                           {"what", c.what},
                           {"unit", c.unit},
                           {"published", {c.low, c.high}},
                           {"ours", c.ours},
                           {"error_percent", c.error()},
                           {"inside", c.is_inside()},
                           {"note", c.note}});
  const std::vector<PublishedSource> known = published_sources();
  for (const SourceErrors& s : errors_by_source(rows))
    out["sources"].push_back({{"source", s.source},
                              {"citation", std::ranges::find(known, s.source, &PublishedSource::name)->citation},
                              {"rows", s.rows},
                              {"ranges", s.ranges},
                              {"inside", s.inside},
                              {"mean_error_percent", s.mean},
                              {"largest_error_percent", s.largest}});
  return out;
}

int validate(const std::string& only, bool json) {
  std::vector<PublishedFigure> figures = published_figures();
  std::erase_if(figures, [&](const PublishedFigure& f) { return !has(f.source, only) && !has(f.what, only); });
  if (figures.empty()) {
    std::string names;
    for (const PublishedSource& s : published_sources())
      names += fmt::format("{}{}", names.empty() ? "" : "; ", s.name);
    fail_user("validate: --only {}: no row's source or text has that; sources are {}", only, names);
  }
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  Laboratory lab;
  std::vector<Comparison> rows;
  for (const PublishedFigure& f : figures) {
    if (is_terminal) fmt::print(stderr, "\r\033[Krow {}/{}: {}", rows.size() + 1, figures.size(), f.source);
    rows.push_back({f.source, f.what, f.unit, f.low, f.high, f.simulate(lab), f.note});
    if (std::abs(rows.back().error()) < kFits) rows.back().note.clear();
  }
  if (is_terminal) fmt::print(stderr, "\r\033[K");
  if (json) {
    fmt::print("{}\n", json_of(rows).dump());
    return 0;
  }
  fmt::print("{}", comparison_table(rows));
  fmt::print("Sources:\n");
  for (const PublishedSource& s : published_sources())
    if (std::ranges::find(rows, s.name, &Comparison::source) != rows.end())
      fmt::print("  {}: {}\n", s.name, s.citation);
  return 0;
}

}  // namespace

void add_validate_command(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string only;
    bool json = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("validate", "the simulator against published figures, with the error of each");
  c->add_option("--only", flags->only, "rows whose source or text has this");
  c->add_flag("--json", flags->json, "one JSON object as the last line");
  c->footer("Example:\n  overtake validate --only \"zero bubble\"");
  c->callback([flags, &exit_code] { exit_code = validate(flags->only, flags->json); });
}

}  // namespace overtake
