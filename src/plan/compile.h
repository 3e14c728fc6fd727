#pragma once
// compile: from a model, what a user wants of a run, and a machine to a program, by one list of passes whatever the
// layout. Pure: the same three give the same program. Measuring makes a machine beforehand (train/measured_machine),
// and trying choices out for real comes after it (train/trials).

#include <functional>
#include <vector>

#include "passes/pass.h"
#include "plan/program.h"

namespace overtake {

struct CompileOptions {
  // Passes of the user's own, on the differentiated graph with its updates.
  std::vector<Pass<Graph>> extra_passes = {};
  // Makes the only choice of one device, in place of the spec's schedule: any legal order of a step's tasks.
  std::function<Plan(const Graph& step)> own_order = {};
};

// What a spec leaves to the machine filled in: the precision, and the number of parts from that of the cores.
RunSpec completed_for(RunSpec spec, const Machine& machine, unsigned cores);

// The machine's devices that a spec's replicas and stages run on, replica by replica; empty for a machine without a
// cluster. User errors: it has fewer, or other ones.
std::vector<std::uint32_t> devices_for(const RunSpec& spec, const Machine& machine);

// The first half of compile(): all but what costs decide. The machine's target must be known; a cost model is asked for
// a step that was measured.
Program compile_step(Graph model, const RunSpec& spec, const Machine& machine, PassRunner& runner,
                     const CompileOptions& options = {});
// The second half, with the machine's cost model.
Program compile_order(Program program, PassRunner& runner, const CompileOptions& options = {});

// Both. `spec` is completed.
Program compile(Graph model, const RunSpec& spec, const Machine& machine, PassRunner& runner,
                const CompileOptions& options = {});

// The choice that figures speak for, of those that were measured or, where none was, by prediction; `reason` says so.
void choose(Program& program);

}  // namespace overtake
