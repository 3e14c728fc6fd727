#pragma once
// Measured times of the tasks of a graph on the device at hand, and how much tasks slow each other down side by side.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

// Tasks of one class are equal for the device: op, kind, attributes, and the form of every operand.
struct TaskClasses {
  std::vector<std::uint32_t> of;             // per task
  std::vector<std::vector<TaskId>> members;  // per class
  std::vector<std::uint64_t> signatures;     // per class; the same in every graph that has it
};
TaskClasses classify(const Graph& graph);

// Two tasks' classes repeated on two lanes side by side: what each takes alone, and when both have ended.
struct CoRun {
  std::uint32_t main = 0, side = 0;  // classes
  std::int64_t main_ns = 0, side_ns = 0, together_ns = 0;
  auto operator<=>(const CoRun&) const = default;
};

// `load` is the part of the device a task needs to run at its full speed: beside others whose loads add up to no more
// than 1 nothing slows down, beyond that they share the device evenly.
struct Profile {
  std::vector<std::int64_t> alone_ns;  // per task, in its place in the step while nothing runs beside
  std::vector<double> load;            // per task
  std::int64_t in_order_ns = 0;        // a whole step in order; the sum of alone_ns
  // Per task: of a weight gradient, what it and its layer's input gradient take as one; 0: not measured. Empty: none
  // was.
  std::vector<std::int64_t> joint_ns = {};
  double cut_after_s = 0;  // measuring was ended after so many seconds, and the rest is estimated; 0: it was not
};

// As a file: `key` says of what it is. What is read is nothing where it is of something else, or not of so many tasks;
// what json throws where the text is none of ours.
std::string save_json(const Profile& profile, const std::string& key);
std::optional<Profile> load_profile_json(std::string_view text, const std::string& key, std::size_t tasks);

// Medians over traces of the same graph.
std::vector<std::int64_t> median_times(const std::vector<Trace>& traces, std::size_t tasks);

// Tracing adds about as much to every task: takes off the same from each so that they add up to a whole step.
std::vector<std::int64_t> without_overhead(std::vector<std::int64_t> traced_ns, std::int64_t step_ns);

// The loads (per class) that explain what was measured best, if a pair takes together as long as the longer of the two,
// or as the sum of load times time where that is more. Classes that were not measured get the median of the others.
std::vector<double> fit_loads(std::size_t classes, const std::vector<CoRun>& measured);
// What that model says of a pair, in nanoseconds.
double together_ns(const CoRun& pair, const std::vector<double>& loads);

}  // namespace overtake
