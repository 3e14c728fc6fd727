#pragma once
// What an executor's inputs, weights and states hold before the first step.

#include <cstdint>

#include "exec/executor.h"

namespace overtake {

// Random numbers of a sensible range into every input: floats are normal, ids are in the range their users accept.
void fill_random_inputs(Executor& executor, std::uint64_t seed);
// Weights and states as a model starts: a pure function of the seed and each buffer's name.
void fill_initial_parameters(Executor& executor, std::uint64_t seed);
// Both for an executor that is only to be timed, in a fraction of the time: the numbers of large weights repeat.
void fill_to_be_timed(Executor& executor);

}  // namespace overtake
