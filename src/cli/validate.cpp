#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/output_file.h"
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

struct ValidateFlags {
  std::string only, output;
  bool json = false, overwrite = false;
};

int validate(const ValidateFlags& flags) {
  check_output({"--output", flags.output, kPage}, flags.overwrite);
  const std::vector<PublishedSource> sources = published_sources();
  const auto is_asked_for = [&](const PublishedFigure& f) {
    const Area area = std::ranges::find(sources, f.source, &PublishedSource::name)->area;
    return has(f.source, flags.only) || has(f.what, flags.only) || has(std::string(to_string(area)), flags.only);
  };
  std::vector<PublishedFigure> figures = published_figures();
  std::erase_if(figures, std::not_fn(is_asked_for));
  if (figures.empty()) {
    std::string names;
    for (const PublishedSource& s : sources) names += fmt::format("{}{}", names.empty() ? "" : "; ", s.name);
    fail_user("validate: --only {}: no row's area, source or text has that; sources are {}", flags.only, names);
  }
  const std::vector<Comparison> rows = Comparer(figures).run();
  if (!flags.output.empty()) write_file_atomically(flags.output, comparison_page(rows, sources));
  if (flags.json) {
    say("{}", dumped(to_json(rows, sources)));
    return 0;
  }
  say("{}\nSources:\n", comparison_table(rows, sources));
  for (const PublishedSource& s : sources)
    if (std::ranges::find(rows, s.name, &Comparison::source) != rows.end())
      say("  {}: {}, {}\n", s.name, s.citation, s.url);
  if (!flags.output.empty()) say("{}: open it in a browser\n", flags.output);
  return 0;
}

}  // namespace

void add_validate_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ValidateFlags>();
  CLI::App* c = app.add_subcommand("validate", "the simulator against published figures, with the error of each");
  c->add_option("--only", flags->only, "rows whose area, source or text has this");
  c->add_option("-o,--output", flags->output, "a page with all rows, their sources, errors and reasons");
  c->add_flag("--overwrite", flags->overwrite, "replace the page if it is there already");
  c->add_flag("--json", flags->json, "one JSON object as the last line");
  c->footer(
      "Areas: collectives, kernels, single-device steps, data parallel, pipelines, memory. Rows into which the "
      "source's\n"
      "own times are put check the arithmetic of schedules; they are summed up apart from predictions.\n"
      "Example:\n  overtake validate --only \"tables 5 and 6\"\n  overtake validate -o validation.html");
  c->callback([flags, &exit_code] { exit_code = validate(*flags); });
}

}  // namespace overtake
