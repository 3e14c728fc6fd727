#include "machine/profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/median.h"

namespace overtake {
namespace {

constexpr double kLeastLoad = 0.05, kMostLoad = 1.25;

std::string form_of(const Graph& g, const Task& t) {
  std::string form = fmt::format("{} {} ", to_string(t.op), to_string(t.kind));
  for (const auto& [name, value] : g.attrs_of(t).values()) {
    form += name + "=";
    std::visit(
        [&](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::vector<std::int64_t>>)
            for (const std::int64_t x : v) form += fmt::format("{},", x);
          else
            form += fmt::format("{}", v);
        },
        value);
    form += ' ';
  }
  const auto add = [&](std::span<const BufferId> operands) {
    for (const BufferId b : operands) {
      if (b == kNone) {
        form += "- ";
        continue;
      }
      const Buffer& x = g.buffers[b];
      form += fmt::format("{}{}{} ", to_string(x.shape), to_string(x.dtype), to_string(x.layout));
    }
    form += "; ";
  };
  add(g.reads(t));
  add(g.writes(t));
  return form;
}

}  // namespace

TaskClasses classify(const Graph& graph) {
  TaskClasses classes;
  std::map<std::string, std::uint32_t> known;
  for (TaskId t = 0; t < graph.tasks.size(); ++t) {
    const std::string form = form_of(graph, graph.tasks[t]);
    const auto [it, is_new] = known.try_emplace(form, static_cast<std::uint32_t>(classes.members.size()));
    if (is_new) {
      classes.members.emplace_back();
      Hash64 hash;
      hash.add(form);
      classes.signatures.push_back(hash.value());
    }
    classes.of.push_back(it->second);
    classes.members[it->second].push_back(t);
  }
  return classes;
}

std::vector<std::int64_t> median_times(const std::vector<Trace>& traces, std::size_t tasks) {
  std::vector<std::vector<std::int64_t>> samples(tasks);
  for (const Trace& trace : traces)
    for (const Span& s : trace.spans) samples[s.task].push_back(s.end_ns - s.begin_ns);
  std::vector<std::int64_t> medians(tasks, 0);
  for (std::size_t t = 0; t < tasks; ++t)
    if (!samples[t].empty()) medians[t] = median(samples[t]);
  return medians;
}

std::vector<std::int64_t> without_overhead(std::vector<std::int64_t> traced_ns, std::int64_t step_ns) {
  const auto sum_less = [&](double overhead) {
    double sum = 0;
    for (const std::int64_t ns : traced_ns) sum += std::max(0.0, static_cast<double>(ns) - overhead);
    return sum;
  };
  const auto step = static_cast<double>(step_ns);
  // Times may also be too short: then all of them are by the same factor.
  double low = 0, high = traced_ns.empty() ? 0 : static_cast<double>(std::ranges::max(traced_ns));
  for (int i = 0; i < 60 && sum_less(0) > step; ++i) {
    const double middle = (low + high) / 2;
    (sum_less(middle) > step ? low : high) = middle;
  }
  const double factor = sum_less(low) > 0 ? std::max(1.0, step / sum_less(low)) : 1.0;
  // Rounded together, so that nothing of the sum is lost.
  double so_far = 0;
  std::int64_t given = 0;
  for (std::int64_t& ns : traced_ns) {
    so_far += std::max(0.0, static_cast<double>(ns) - low) * factor;
    ns = std::llround(so_far) - given;
    given += ns;
  }
  return traced_ns;
}

double together_ns(const CoRun& pair, const std::vector<double>& loads) {
  const auto main = static_cast<double>(pair.main_ns), side = static_cast<double>(pair.side_ns);
  return std::max({main, side, loads[pair.main] * main + loads[pair.side] * side});
}

std::vector<double> fit_loads(std::size_t classes, const std::vector<CoRun>& measured) {
  constexpr double kStart = 0.7;
  constexpr int kSweeps = 30;
  std::vector<double> loads(classes, kStart);
  std::vector<std::vector<const CoRun*>> of(classes);
  for (const CoRun& pair : measured) {
    of[pair.main].push_back(&pair);
    of[pair.side].push_back(&pair);
  }
  const auto error_of = [&](std::uint32_t c) {
    double error = 0;
    for (const CoRun* pair : of[c]) {
      const double ratio =
          together_ns(*pair, loads) / static_cast<double>(std::max<std::int64_t>(1, pair->together_ns));
      error += (ratio - 1) * (ratio - 1);
    }
    return error;
  };
  // One class at a time, half of the way to the load that explains its pairs best given the others': one that a pair
  // asks for, or up to which a pair is not slowed at all.
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (std::uint32_t c = 0; c < classes; ++c) {
      const double now = loads[c];
      double best = now, least = error_of(c);
      const auto consider = [&](double load) {
        loads[c] = std::clamp(load, kLeastLoad, kMostLoad);
        const double error = error_of(c);
        if (error >= least) return;
        least = error;
        best = loads[c];
      };
      for (const CoRun* pair : of[c]) {
        const bool is_main = pair->main == c;
        const auto own = static_cast<double>(is_main ? pair->main_ns : pair->side_ns);
        const auto other = static_cast<double>(is_main ? pair->side_ns : pair->main_ns);
        if (own <= 0) continue;
        const double taken = loads[is_main ? pair->side : pair->main] * other;
        consider((static_cast<double>(pair->together_ns) - taken) / own);
        consider((std::max(own, other) - taken) / own);
      }
      loads[c] = (now + best) / 2;
    }
  std::vector<double> known;
  for (std::size_t c = 0; c < classes; ++c)
    if (!of[c].empty()) known.push_back(loads[c]);
  const double middle = known.empty() ? 1.0 : median(known);
  for (std::size_t c = 0; c < classes; ++c)
    if (of[c].empty()) loads[c] = middle;
  return loads;
}

}  // namespace overtake
