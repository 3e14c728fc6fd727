#pragma once
// PassRunner: the one that runs all passes (overtake/pass.h) over graphs, plans and programs.

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/fingerprint.h"
#include "ops/check_task.h"
#include "overtake/pass.h"
#include "overtake/plan.h"

namespace overtake {

// What happened to one pass.
struct PassRecord {
  std::string name;
  double ms = 0;
  bool skipped = false;
  bool changed = false;    // whether the state is another than before
  std::size_t tasks = 0;   // after it
  double bytes = 0;        // that all tasks read and write, after it
  double bytes_saved = 0;  // by it: of what there was before; negative where it added tasks
};

struct RunnerOptions {
  std::set<std::string> skip;                          // by name; for experiments
  std::function<void(const std::string&)> print = {};  // called with the text of the state where a pass changed it
};

class PassRunner {
 public:
  explicit PassRunner(RunnerOptions options = {}) : options_(std::move(options)) {}

  // Runs one pass: checks what it needs, times it, verifies the result and what it grants.
  template <class State>
  State run(const Pass<State>& pass, State state);

  // One that leaves out these passes as well, and keeps its records with this one's.
  PassRunner without(const std::vector<std::string>& names) const {
    PassRunner other = *this;
    other.options_.skip.insert(names.begin(), names.end());
    return other;
  }

  const std::vector<PassRecord>& records() const { return *records_; }

 private:
  RunnerOptions options_;
  std::shared_ptr<std::vector<PassRecord>> records_ = std::make_shared<std::vector<PassRecord>>();
};

inline const Graph& graph_of(const Graph& g) { return g; }
inline const Graph& graph_of(const Plan& p) { return p.graph; }

// What all tasks of a graph read and write, each operand once.
double traffic_of(const Graph& graph);

template <class State>
State PassRunner::run(const Pass<State>& pass, State state) {
  PassRecord record{.name = pass.name};
  if (options_.skip.contains(pass.name)) {
    record.skipped = true;
    records_->push_back(record);
    return state;
  }
  OVERTAKE_CHECK(!pass.needs || pass.needs(state), "pass {}: what it needs does not hold", pass.name);
  const Fingerprint before = fingerprint(state);
  const double traffic = traffic_of(graph_of(state));
  const auto start = std::chrono::steady_clock::now();
  state = pass.run(std::move(state));
  record.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  verify(state);
  check_tasks(graph_of(state));
  OVERTAKE_CHECK(!pass.grants || pass.grants(state), "pass {}: what it grants does not hold", pass.name);
  record.tasks = graph_of(state).tasks.size();
  record.bytes = traffic_of(graph_of(state));
  record.bytes_saved = traffic - record.bytes;
  record.changed = fingerprint(state) != before;
  if (record.changed && options_.print)
    options_.print(fmt::format("after {} ({:.2f} ms):\n{}", pass.name, record.ms, print(graph_of(state))));
  records_->push_back(record);
  return state;
}

}  // namespace overtake
