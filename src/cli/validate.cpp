#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/validate/rows.h"
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

// All figures beside ours, simulated by as many threads as there are cores.
class Comparer {
 public:
  explicit Comparer(const std::vector<PublishedFigure>& figures) : figures_(figures), rows_(figures.size()) {}

  std::vector<Comparison> run() {
    {
      std::vector<std::jthread> others;
      for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) others.emplace_back([this] { work(); });
      work();
    }
    if (is_terminal_) fmt::print(stderr, "\r\033[K");
    if (error_) std::rethrow_exception(error_);
    return std::move(rows_);
  }

 private:
  void work() {
    for (std::size_t i; (i = next_++) < figures_.size();) {
      try {
        rows_[i] = row_of(figures_[i]);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
        next_ = figures_.size();
        return;
      }
      show_done(figures_[i]);
    }
  }

  Comparison row_of(const PublishedFigure& f) {
    Comparison row{f.source, f.what, f.unit, f.low, f.high, f.simulate(lab_), f.note};
    if (std::abs(row.error()) < kFits) row.note.clear();
    return row;
  }

  void show_done(const PublishedFigure& f) {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (is_terminal_) fmt::print(stderr, "\r\033[Krow {}/{}: {}", done_, figures_.size(), f.source);
  }

  const std::vector<PublishedFigure>& figures_;
  std::vector<Comparison> rows_;
  Laboratory lab_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;  // of what follows
  std::size_t done_ = 0;
  std::exception_ptr error_;
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
};

int validate(const std::string& only, bool json) {
  std::vector<PublishedFigure> figures = published_figures();
  std::erase_if(figures, [&](const PublishedFigure& f) { return !has(f.source, only) && !has(f.what, only); });
  if (figures.empty()) {
    std::string names;
    for (const PublishedSource& s : published_sources())
      names += fmt::format("{}{}", names.empty() ? "" : "; ", s.name);
    fail_user("validate: --only {}: no row's source or text has that; sources are {}", only, names);
  }
  const std::vector<Comparison> rows = Comparer(figures).run();
  if (json) {
    say("{}", dumped(json_of(rows)));
    return 0;
  }
  say("{}", comparison_table(rows));
  say("Sources:\n");
  for (const PublishedSource& s : published_sources())
    if (std::ranges::find(rows, s.name, &Comparison::source) != rows.end()) say("  {}: {}\n", s.name, s.citation);
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
  c->footer("Example:\n  overtake validate --only \"tables 5 and 6\"");
  c->callback([flags, &exit_code] { exit_code = validate(flags->only, flags->json); });
}

}  // namespace overtake
