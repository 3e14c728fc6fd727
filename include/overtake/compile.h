#pragma once
// compile: from a model, what a user wants of a run, and a machine to a program, by one list of passes whatever the
// layout. Pure: the same three give the same program. Measuring makes a machine beforehand.

#include <functional>
#include <string>
#include <vector>

#include "overtake/graph.h"
#include "overtake/machine.h"
#include "overtake/pass.h"
#include "overtake/plan.h"
#include "overtake/program.h"
#include "overtake/run_spec.h"

namespace overtake {

// What a spec cannot say of compiling.
struct CompileOptions {
  // Passes of the user's own, on the differentiated graph with its updates.
  std::vector<Pass<Graph>> extra_passes = {};
  // An own schedule, in place of the spec's: any legal order of a step's tasks, on any number of lanes. It is given the
  // step, and gives it back as a plan whose memory need not be placed. For one device and a batch in one piece. User
  // errors: another graph, a task that is missing, an order that cannot run.
  std::function<Plan(const Graph& step)> own_order = {};
  // Names of activations and gradients that can be read after every step (Trainer::read), for which they keep memory of
  // their own: "fc1", "fc1.weight.grad". They change nothing of what is computed, so what a fused task never writes
  // cannot be kept. For one device and a batch in one piece.
  std::vector<std::string> readable = {};
  // Asked now and then: where it says so, searches end with the best they have. Without it they count tries, and the
  // same input gives the same program.
  std::function<bool()> is_out_of_time = {};
  // Gets the graph as text whenever a pass changed it.
  std::function<void(const std::string&)> print_passes = {};
};

// The machine that a spec names, a preset or a file; where it names none the spec's device in this process, of which
// nothing is measured. Set its `costs` to plan with a cost model of your own.
Machine machine_of(const RunSpec& spec);

// The spec's device in this process, with what the tasks of the model take there: measured, or as it was measured
// before. Where the spec's schedule is "in-order" nothing depends on it, and nothing is measured. The options are those
// that the model is then compiled with.
Machine measured_machine(const Graph& model, const RunSpec& spec, const CompileOptions& options = {});

// `model` is the forward graph of one micro-batch. User errors: a spec that contradicts itself or the machine, a
// machine that knows too little.
Program compile(Graph model, const RunSpec& spec, const Machine& machine, const CompileOptions& options = {});

}  // namespace overtake
