#pragma once
// What `overtake simulate` says of a run that goes well.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "command.h"

namespace overtake::tests {

inline nlohmann::json simulated(const std::string& arguments) {
  const CommandResult r = overtake("simulate " + arguments + " --json");
  EXPECT_EQ(r.exit_code, 0) << arguments << ": " << r.err;
  return r.exit_code == 0 ? r.json() : nlohmann::json{{"step_ms", 0}};
}
inline double step_ms(const std::string& arguments) { return simulated(arguments).at("step_ms").get<double>(); }

}  // namespace overtake::tests
