#pragma once
// Program: a training step compiled for a machine. It holds what it was made from and what was decided: which device
// runs which part of the step, in which order, on which lanes. Everything else follows from that: the outline of the
// step over all devices, block by block (neighbouring layers together), which is simulated (overtake/simulate.h), and
// its detail, task by task, which is run (overtake/trainer.h).

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/machine.h"
#include "overtake/pipeline_schedule.h"
#include "overtake/plan.h"
#include "overtake/run_spec.h"

namespace overtake {

// Where the tasks of a step run and in which order, where that is not one lane of each device in the order of the
// outline.
struct TaskOrder {
  std::string schedule;  // how the lanes were filled, for people
  std::vector<Lane> lanes;
  std::vector<Wait> waits;
  std::vector<Join> joins;
  std::vector<TaskId> delayed;  // into the next step, in ascending order
  bool is_given() const { return !lanes.empty(); }
  bool operator==(const TaskOrder&) const = default;
};
TaskOrder order_of(const Plan& plan);
// The graph's tasks in that order; memory is not placed.
Plan with_order(Graph graph, const TaskOrder& order);

// What runs on a second lane of its device, where a step is divided over several: tasks of the outline, ascending, and
// what other tasks wait for beyond their operands so that memory can be used again; sorted. No tasks: there is one
// lane.
struct SideWork {
  std::vector<TaskId> tasks;
  std::vector<Wait> waits;
  bool operator==(const SideWork&) const = default;
};

// One way to run the step, and what is known of it.
struct PlanChoice {
  std::string name = {};  // for people: "in order", "2 lanes", "zb-h1 + first-k 12"
  // Of several devices: which blocks lie where, each device's order of them, and how replicas bring gradients together.
  PipelineSchedule schedule = {};
  std::string reduce = {};
  FirstK first_k = {};
  SideWork side = {};
  TaskOrder order = {};
  std::int64_t predicted_ns = 0, measured_ns = 0;  // of a step; 0: not known
  // By device, the most memory that it needs at one moment; empty: not known.
  std::vector<std::uint64_t> peak_bytes = {};
  bool fits = true;         // into the memory of all devices, as far as is predicted
  int won_rounds = 0;       // of a trial: those in which it was faster than the first choice
  std::string reason = {};  // of a search: where the schedule came from

  // Of the device that needs most; 0: not known.
  std::uint64_t most_bytes() const { return peak_bytes.empty() ? 0 : *std::ranges::max_element(peak_bytes); }
};

struct Program {
  RunSpec spec;  // the fields that decide a program, completed; all others have their defaults
  Machine machine;
  // Of the machine, replica by replica; empty where the machine has no cluster.
  std::vector<std::uint32_t> devices;
  Graph model;  // forward, of one micro-batch of one replica, as it was given
  Graph step;   // the same after the graph passes: a whole training step
  // For each kind of device, what tasks take there, of one device those of all its micro-batches, of several those of
  // `step`; empty where nothing is known.
  std::vector<std::vector<TaskCost>> costs;
  std::vector<PlanChoice> choices;  // at least one
  std::size_t chosen = 0;
  std::string reason;  // why, in one line for people

  const PlanChoice& choice() const { return choices[chosen]; }
  bool has_several_devices() const { return spec.replicas * spec.stages > 1; }
  // Whether it is planned block by block; a step of one device that keeps everything is planned task by task.
  bool is_outlined() const { return has_several_devices() || spec.recompute; }
};

// Checks what must hold for any program; throws an InternalError that says what does not.
void verify(const Program& program);

// As text, the same for equal programs; of choices that were not taken only their names and figures. The version of
// Overtake that wrote it is part of it, because what follows from a program is worked out anew when it is read.
std::string save_json(const Program& program);
// The machine's target and cost model are left out; costs are those of the text. User errors: no plan of ours, of
// another version, damaged. `where` begins every message.
Program load_program_json(std::string_view text, const std::string& where);

// For people: every choice with what was predicted and measured of it.
std::string table_of_choices(const Program& program);
// For people: what runs where, what was chosen and why, with the predicted step and memory.
std::string print(const Program& program);
// For people: in what the second differs from the first, a line for each; empty if they are equal.
std::string difference(const Program& first, const Program& second);

}  // namespace overtake
