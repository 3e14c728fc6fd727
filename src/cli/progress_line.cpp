#include "cli/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/units.h"
#include "cli/say.h"

namespace overtake {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::uint64_t kLinesOfRun = 20;   // that stay, of a run
constexpr std::uint64_t kMostEpochs = 100;  // of a run whose epochs each leave a line

// As the user says, as the terminal says, or as most are. What tells nothing says 0.
std::size_t terminal_columns() {
  std::size_t columns = 0;
  if (const char* text = std::getenv("COLUMNS"); text != nullptr)
    std::from_chars(text, text + std::char_traits<char>::length(text), columns);
  winsize size{};
  if (columns == 0 && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns > 0 ? columns : kUsualColumns;
}

std::uint64_t epochs_of_run(const Progress& p) { return p.step > 0 ? p.epoch * p.steps / p.step : 1; }

}  // namespace

std::string progress_text(const Progress& p, std::size_t columns) {
  // The more a part matters, the smaller its number.
  struct Part {
    int rank;
    std::string text;
  };
  std::vector<Part> parts{{0, fmt::format("step {}/{}", p.step, p.steps)},
                          {4, fmt::format("epoch {}", p.epoch)},
                          {1, fmt::format("loss {:.4f}", p.loss)}};
  if (p.accuracy >= 0) parts.push_back({2, fmt::format("accuracy {:5.1f} %", 100 * p.accuracy)});
  parts.push_back({5, fmt::format("{:.0f} samples/s", p.samples_per_s)});
  parts.push_back({3, fmt::format("{} left", format_duration(p.seconds_left))});
  for (int most = 5;; --most) {
    std::string line;
    for (const Part& part : parts)
      if (part.rank <= most) line += (line.empty() ? "" : "  ") + part.text;
    if (line.size() <= columns) return line;
    if (most == 0) return line.substr(0, columns);
  }
}

ProgressLine::ProgressLine() : is_terminal_(isatty(STDERR_FILENO) != 0) {}

bool ProgressLine::stays(const Progress& p) {
  const bool is_epoch_over = epoch_ > 0 && p.epoch > epoch_ && epochs_of_run(p) <= kMostEpochs;
  const bool is_due = !stays_from_ || p.step >= *stays_from_;
  epoch_ = p.epoch;
  if (p.step < p.steps && !is_due && !is_epoch_over) return false;
  if (is_due) stays_from_ = p.step + std::max<std::uint64_t>(1, p.steps / kLinesOfRun);
  return true;
}

void ProgressLine::show(const Progress& p) {
  const auto steps = static_cast<double>(p.steps_since);
  steps_ += steps;
  loss_sum_ += steps * p.loss;
  accuracy_sum_ += steps * p.accuracy;
  const bool is_to_stay = stays(p);
  if (!is_terminal_ && !is_to_stay) return;
  Progress shown = p;
  if (is_to_stay && steps_ > 0) {
    shown.loss = loss_sum_ / steps_;
    shown.accuracy = p.accuracy < 0 ? p.accuracy : accuracy_sum_ / steps_;
    steps_ = loss_sum_ = accuracy_sum_ = 0;
  }
  if (is_terminal_)  // a column less than there are: some terminals go on to the next line when the last is filled
    fmt::print(stderr, "\r\033[K{}{}", progress_text(shown, terminal_columns() - 1), is_to_stay ? "\n" : "");
  else
    say(stderr, "{}\n", progress_text(shown, std::string::npos));
  std::fflush(stderr);
}

}  // namespace overtake
