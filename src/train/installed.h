#pragma once
// A program allocated and bound on this process's device: ready to run steps.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "overtake/program.h"
#include "overtake/trainer.h"
#include "passes/pass.h"
#include "plan/divide/detail.h"
#include "plan/divide/transfer_turns.h"
#include "train/parameter_store.h"
#include "train/workplace.h"

namespace overtake {

class Installed {
 public:
  // Where everything that lives across steps lies as in `before`, its memory is taken over with what it holds;
  // otherwise it is new, and holds nothing yet. Nothing is communicated.
  Installed(Program program, const Workplace& place, std::optional<std::uint64_t> memory_cap, const Installed* before);

  // Before the first step, and before what lives across steps is written; all ranks at once.
  void connect(const Workplace& place);

  const Program& program() const { return program_; }
  Executor& executor() const { return *executor_; }  // of two programs: 0 trains, 1 evaluates
  ParameterStore& parameters() { return *parameters_; }
  const ParameterStore& parameters() const { return *parameters_; }
  const Plan& plan() const { return executor_->plan(0); }
  const Graph& graph() const { return plan().graph; }
  bool shares_memory() const { return shares_memory_; }
  // From the program to the plans of this process.
  const std::vector<PassRecord>& passes() const { return passes_; }

  // Samples per step, of all processes, and which of them this one is fed with.
  std::int64_t batch() const { return batch_; }
  std::int64_t first_sample() const { return first_sample_; }
  std::int64_t own_samples() const { return own_samples_; }
  // For each loss of the graph: whether its rows count, because it is the first of its micro-batch.
  const std::vector<char>& counts_rows() const { return counts_rows_; }

  // Of all samples that this process is fed with; every input of the model must be given, and no other. Only `samples`
  // of the labels count, others fill up the last batch.
  void write_inputs(const std::vector<Input>& inputs, std::int64_t samples);

 private:
  void find_samples(const Detail& mine, const Workplace& place);
  void check_inputs(const std::vector<Input>& inputs) const;
  void write_input(const Detail::Input& to, const Input& from, std::int64_t samples);

  Program program_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ParameterStore> parameters_;
  bool shares_memory_ = false;
  std::vector<PassRecord> passes_;
  std::vector<Channel> channels_;      // of all devices; where GPUs of several ranks communicate
  std::vector<Detail::Input> inputs_;  // by place among this process's micro-batches
  std::vector<char> counts_rows_;
  std::int64_t batch_ = 0, first_sample_ = 0, own_samples_ = 0, of_a_micro_batch_ = 0;
};

}  // namespace overtake
