#pragma once
// The device that tests of whole steps run on: OVERTAKE_TEST_DEVICE, or the CPU. On a GPU nothing is tuned, so that the
// tests are quick and two of them take the same kernels.

#include <cstdlib>
#include <memory>
#include <string>

#include "exec/backend.h"
#include "exec/cpu/target.h"

namespace overtake {

inline std::string test_device() {
  const char* name = std::getenv("OVERTAKE_TEST_DEVICE");
  return name == nullptr ? "cpu" : name;
}

inline BackendOptions test_backend_options(Precision precision, unsigned threads) {
  return {.precision = precision, .threads = threads, .tune = false, .tuning_file = "", .note = {}};
}

inline bool test_device_has_bf16() { return test_device() != "cpu" || cpu_has_bf16(); }

// First in the body of a test that computes in bfloat16.
#define OVERTAKE_NEEDS_BF16() \
  if (!test_device_has_bf16()) GTEST_SKIP() << "this CPU has no bfloat16 instructions"

}  // namespace overtake
