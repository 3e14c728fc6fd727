#include "cli/simulate/synthetic.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace overtake {
namespace {

constexpr double kMostMilliseconds = 1e9;
constexpr std::uint32_t kMostStages = 65535;
constexpr std::array<std::string_view, 6> kLists = {"f", "b", "w", "kept", "sent", "weights"};
constexpr std::array<std::string_view, 3> kNumbers = {"stages", "micro", "blocks"};

}  // namespace

Synthetic::Synthetic(const std::string& text, std::uint32_t stages, std::uint32_t micro_batches) : text_(text) {
  std::size_t longest = 1;
  for (const std::string& item : CLI::detail::split(text, ',')) {
    const std::size_t at = item.find('=');
    if (at == std::string::npos || at == 0 || at + 1 == item.size())
      fail_user("--synthetic {}: '{}' is not NAME=NUMBER, nor NAME=NUMBER/NUMBER/... with one for each stage", text,
                item);
    const std::string name = item.substr(0, at);
    const bool is_list = std::ranges::find(kLists, name) != kLists.end();
    if (!is_list && std::ranges::find(kNumbers, name) == kNumbers.end())
      fail_user(
          "--synthetic {}: no setting '{}'; there are {}, {} (milliseconds a stage: f, b, w; bytes: kept, sent, "
          "weights)",
          text, name, fmt::join(kNumbers, ", "), fmt::join(kLists, ", "));
    values_[name] = item.substr(at + 1);
    if (is_list) longest = std::max(longest, words(name).size());
  }
  has_lists_ = longest > 1;
  stages_ = whole("stages", has_lists_ ? static_cast<std::uint32_t>(longest) : stages);
  micro_batches_ = whole("micro", micro_batches);
  for (const std::string_view name : kLists)
    if (const std::size_t count = words(std::string(name)).size(); count > 1 && count != stages_)
      fail_user("--synthetic {}: {} has {} values for {} stages; give one for each stage, or one for all", text, name,
                count, stages_);
}

std::vector<std::string> Synthetic::words(const std::string& name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? std::vector<std::string>{} : CLI::detail::split(at->second, '/');
}

std::uint32_t Synthetic::whole(const std::string& name, std::uint32_t fallback) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return fallback;
  const std::string& word = at->second;
  std::uint32_t value = 0;
  const char* const end = word.data() + word.size();
  if (std::from_chars(word.data(), end, value) != std::from_chars_result{end, std::errc{}} || value < 1 ||
      value > kMostStages)
    fail_user("--synthetic {}: {} is {}; it must be a whole number from 1 to {}", text_, name, word, kMostStages);
  return value;
}

template <class Value>
std::vector<std::int64_t> Synthetic::by_stage(const std::string& name, std::int64_t fallback, Value value) const {
  const std::vector<std::string> given = words(name);
  std::vector<std::int64_t> all(stages_, fallback);
  for (std::size_t s = 0; s < all.size() && !given.empty(); ++s) all[s] = s < given.size() ? value(given[s]) : all[0];
  return all;
}

std::vector<std::int64_t> Synthetic::times(const std::string& name) const {
  return by_stage(name, 1'000'000, [&](const std::string& word) {
    double ms = 0;
    const char* const end = word.data() + word.size();
    const bool is_number = std::from_chars(word.data(), end, ms) == std::from_chars_result{end, std::errc{}};
    if (!is_number || !(ms >= 0 && ms <= kMostMilliseconds))
      fail_user("--synthetic {}: {} is {}; it must be milliseconds from 0 to {}", text_, name,
                is_number ? fmt::format("{}", ms) : word, kMostMilliseconds);
    return static_cast<std::int64_t>(std::llround(ms * 1e6));
  });
}

std::vector<std::int64_t> Synthetic::sizes(const std::string& name) const {
  return by_stage(name, 0, [&](const std::string& word) {
    return parse_bytes(word, fmt::format("--synthetic {}: {}", text_, name));
  });
}

Workload Synthetic::workload(std::uint32_t most_blocks) const {
  // Two blocks for each stage where all are alike: any schedule can be made of them. Given stages stay what they are.
  const std::uint32_t usual = has_lists_ ? stages_ : 2 * stages_;
  const std::uint32_t blocks = whole("blocks", most_blocks > 0 ? most_blocks : usual);
  if (has_lists_ && blocks % stages_ != 0)
    fail_user("--synthetic {}: {} blocks for {} stages of their own; give a multiple", text_, blocks, stages_);
  const std::vector<std::int64_t> f = times("f"), b = times("b"), w = times("w"), kept = sizes("kept"),
                                  sent = sizes("sent"), weights = sizes("weights");
  std::vector<SyntheticStage> parts;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const auto s = static_cast<std::size_t>(std::uint64_t{i} * stages_ / blocks);
    // Of what a stage has, its part.
    const auto part = [&](std::int64_t whole_stage) {
      return std::llround(static_cast<double>(whole_stage) * stages_ / blocks);
    };
    SyntheticStage stage{.forward_ns = part(f[s]), .input_grad_ns = part(b[s]), .weight_grad_ns = part(w[s])};
    if (values_.contains("kept")) stage.kept_bytes = part(kept[s]);
    if (values_.contains("sent")) stage.sent_bytes = sent[s];
    stage.weight_bytes = part(weights[s]);
    parts.push_back(stage);
  }
  return {.blocks = synthetic_blocks(parts)};
}

}  // namespace overtake
