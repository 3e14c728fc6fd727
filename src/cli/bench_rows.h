#pragma once
// Runs that are measured side by side.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/perfetto.h"
#include "train/run.h"

namespace overtake {

struct BenchRow {
  std::string name;
  std::unique_ptr<TrainingRun> run;
  std::vector<double> ms = {};
  std::vector<double> idle_ms = {};  // of the device, before steps that followed another; where that is known
  std::vector<Trace> traces = {};

  double median() const;
  double fastest() const;
  // The median, as the report shows it.
  StepTime step_time() const;
  // What the model of time says of the plan that runs; 0 where nothing was measured to base it on.
  double predicted() const;
  // The median of idle_ms, if there is any.
  std::optional<double> idle() const;
};

struct BenchRounds {
  int steps = 10;
  int warm = 2;
  float learning_rate = 0;
  bool trace = false;  // the last step of each
};

// Steps of all rows in turn, so that what else the machine does hits all alike. Shows progress on a terminal.
void measure(std::vector<BenchRow>& rows, const BenchRounds& rounds);

}  // namespace overtake
