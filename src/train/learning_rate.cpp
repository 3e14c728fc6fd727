#include "train/learning_rate.h"

#include <charconv>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest_word.h"

namespace overtake {
namespace {

constexpr std::string_view kForms = "write constant, step:EVERY:GAMMA, cosine or cosine:END_FRACTION";

std::vector<std::string_view> split_at_colons(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos) return parts;
    text.remove_prefix(colon + 1);
  }
}

template <class Number>
Number parse_number(std::string_view text, std::string_view spec) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail_user("`lr_schedule {}`: \"{}\" is not a number; {}", spec, text, kForms);
  }
  return number;
}

void parse_step(LearningRateSchedule& schedule, const std::vector<std::string_view>& parts, std::string_view spec) {
  if (parts.size() != 3) fail_user("`lr_schedule {}`: step takes two numbers; write step:EVERY:GAMMA", spec);
  schedule.kind = LearningRateSchedule::Kind::step;
  schedule.every = parse_number<std::uint64_t>(parts[1], spec);
  schedule.gamma = parse_number<double>(parts[2], spec);
  if (schedule.every == 0) fail_user("`lr_schedule {}`: EVERY is 0; give a number of steps of at least 1", spec);
  if (!(schedule.gamma > 0 && schedule.gamma <= 1)) {
    fail_user("`lr_schedule {}`: GAMMA is {}; give a factor above 0 and at most 1", spec, schedule.gamma);
  }
}

void parse_cosine(LearningRateSchedule& schedule, const std::vector<std::string_view>& parts, std::string_view spec) {
  if (parts.size() > 2) fail_user("`lr_schedule {}`: too many numbers; {}", spec, kForms);
  schedule.kind = LearningRateSchedule::Kind::cosine;
  if (parts.size() == 2) schedule.end_fraction = parse_number<double>(parts[1], spec);
  if (!(schedule.end_fraction >= 0 && schedule.end_fraction <= 1)) {
    fail_user("`lr_schedule {}`: END_FRACTION is {}; give a number from 0 to 1", spec, schedule.end_fraction);
  }
}

double cosine_factor(const LearningRateSchedule& schedule, std::uint64_t step) {
  if (step >= schedule.total) return schedule.end_fraction;
  const double done =
      static_cast<double>(step - schedule.warmup) / static_cast<double>(schedule.total - schedule.warmup);
  return schedule.end_fraction + (1 - schedule.end_fraction) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace

float LearningRateSchedule::at(std::uint64_t step) const {
  if (step < warmup) return static_cast<float>(base * static_cast<double>(step + 1) / static_cast<double>(warmup));
  switch (kind) {
    case Kind::constant:
      return static_cast<float>(base);
    case Kind::step:
      return static_cast<float>(base * std::pow(gamma, static_cast<double>(step / every)));
    case Kind::cosine:
      return static_cast<float>(base * cosine_factor(*this, step));
  }
  fail_internal(__FILE__, __LINE__, "kind is known", "unknown kind of schedule");
}

LearningRateSchedule parse_schedule(std::string_view spec, double base, std::uint64_t warmup, std::uint64_t total) {
  if (!(base >= 0) || !std::isfinite(base))
    fail_user("`lr {}`: not a learning rate; give a number of at least 0", base);
  LearningRateSchedule schedule{.base = base, .warmup = warmup, .total = total};
  const std::vector<std::string_view> parts = split_at_colons(spec);
  if (parts[0] == "step") {
    parse_step(schedule, parts, spec);
  } else if (parts[0] == "cosine") {
    parse_cosine(schedule, parts, spec);
  } else if (spec != "constant") {
    fail_user("`lr_schedule {}`: no such schedule; {}{}", spec, kForms,
              did_you_mean(parts[0], {"constant", "step", "cosine"}));
  }
  if (warmup > 0 && warmup >= total) {
    fail_user("`warmup {}`: the whole run has {} steps; give fewer", warmup, total);
  }
  return schedule;
}

}  // namespace overtake
