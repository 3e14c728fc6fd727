#pragma once
// The parts of compile() (overtake/compile.h), for whoever does something between them: measures the step before it is
// ordered, or orders one step in several ways.

#include <vector>

#include "overtake/compile.h"
#include "passes/pass.h"
#include "plan/program.h"

namespace overtake {

// What a spec leaves to the machine filled in: the precision, and the number of parts from that of the cores. A user
// error if the machine's target is not known.
RunSpec completed_for(RunSpec spec, const Machine& machine, unsigned cores);

// The machine's devices that a spec names; empty where it names none. User errors: there are none such, or one twice.
std::vector<std::uint32_t> named_devices(const RunSpec& spec, const Machine& machine);

// The machine's devices that a spec's replicas and stages run on, replica by replica; empty for a machine without a
// cluster. User errors: it has fewer, or other ones.
std::vector<std::uint32_t> devices_for(const RunSpec& spec, const Machine& machine);

// The first half of compile(): all but what costs decide. `spec` is completed. A cost model is asked for a step that
// was measured.
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
