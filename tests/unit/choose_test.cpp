// What is taken of several choices, and what is said of it: the figures must bear out the words.

#include <gtest/gtest.h>

#include "plan/compile.h"

namespace overtake {
namespace {

constexpr std::int64_t kMs = 1'000'000;

PlanChoice lanes(std::int64_t predicted_ms, std::int64_t measured_ms = 0, int won_rounds = 0) {
  return {.order = {.schedule = "ooo", .lanes = {Lane{}, Lane{}}, .waits = {}, .joins = {}, .delayed = {}},
          .predicted_ns = predicted_ms * kMs,
          .measured_ns = measured_ms * kMs,
          .won_rounds = won_rounds};
}

struct OneDevice {
  const char* schedule;
  std::vector<PlanChoice> choices;
  std::size_t chosen;
  const char* reason;  // what it begins with
};

TEST(Choose, LanesOfOneDevice) {
  const OneDevice cases[] = {
      {"auto", {lanes(100)}, 0, ""},
      {"auto", {lanes(100), lanes(90)}, 1, "schedule: "},
      {"auto", {lanes(1000), lanes(995)}, 0, "schedule: in order; reordering gains less than 1 % here: predicted 995"},
      {"auto", {lanes(100), lanes(120)}, 0, "schedule: in order; reordering does not pay here: predicted 120.00 ms"},
      {"ooo", {lanes(100), lanes(120)}, 1, "schedule: "},
      {"auto", {lanes(100), lanes(120), lanes(80)}, 2, "schedule: "},
      // What was measured counts, whatever was predicted.
      {"auto",
       {lanes(100, 100), lanes(80, 120, 0)},
       0,
       "schedule: in order; reordering does not pay here: measured 120.00 ms"},
      {"auto", {lanes(100, 100), lanes(120, 80, 5)}, 1, "schedule: "},
      {"auto",
       {lanes(100, 100), lanes(80, 90, 3)},
       0,
       "schedule: in order; reordering was faster in only 3 of 5 rounds, which may be chance: measured"},
      {"ooo", {lanes(100, 100), lanes(80, 120, 0), lanes(80, 130, 0)}, 1, "schedule: "},
  };
  for (const OneDevice& c : cases) {
    Program program;
    program.spec.schedule = c.schedule;
    program.choices = c.choices;
    choose(program);
    SCOPED_TRACE(program.reason);
    EXPECT_EQ(program.chosen, c.chosen);
    EXPECT_TRUE(program.reason.starts_with(c.reason)) << c.reason;
    if (c.choices.size() < 2) continue;
    const bool is_measured = c.choices[0].measured_ns > 0;
    EXPECT_NE(program.reason.find(is_measured ? "measured " : "predicted "), std::string::npos);
  }
}

PlanChoice division(const char* name, bool has_side_lanes, std::int64_t predicted_ms, std::int64_t measured_ms = 0,
                    bool fits = true) {
  return {.name = name,
          .side = {.tasks = has_side_lanes ? std::vector<TaskId>{1} : std::vector<TaskId>{}, .waits = {}},
          .predicted_ns = predicted_ms * kMs,
          .measured_ns = measured_ms * kMs,
          .fits = fits};
}

struct Divided {
  std::vector<PlanChoice> choices;
  std::size_t chosen;
  const char* reason;  // a part of it
};

TEST(Choose, DivisionsAndTheirLanes) {
  const Divided cases[] = {
      {{division("1f1b", false, 100)}, 0, ""},
      {{division("zb-v", false, 100), division("1f1b", false, 90)},
       1,
       "schedule: 1f1b; predicted 90.00 ms, zb-v 100.00 ms"},
      {{division("zb-v", false, 100), division("1f1b", false, 90, 0, false)}, 0, ""},
      {{division("1f1b + side lanes", true, 80), division("1f1b", false, 100)},
       0,
       "second lane of every device; predicted 80.00 ms, 1f1b 100.00 ms"},
      {{division("1f1b + side lanes", true, 80, 99), division("1f1b", false, 100, 90)},
       1,
       "one lane on every device, a second does not pay here; measured 90.00 ms, 1f1b + side lanes 99.00 ms"},
      // By less than a hundredth is no gain.
      {{division("1f1b + side lanes", true, 80, 995), division("1f1b", false, 100, 1000)},
       1,
       "gains less than 1 % here; measured 1000.00 ms"},
      // Neither the first choice nor its twin.
      {{division("zb-v + side lanes", true, 80, 110), division("1f1b", false, 90, 100),
        division("zb-v", false, 100, 120)},
       1,
       "schedule: 1f1b; measured 100.00 ms, zb-v + side lanes 110.00 ms"},
      // What was not measured, because it had no room, is not taken.
      {{division("zb-v + side lanes", true, 80), division("1f1b", false, 100, 90)},
       1,
       "90.00 ms, zb-v + side lanes no room"},
  };
  for (const Divided& c : cases) {
    Program program;
    program.spec.stages = 2;
    program.choices = c.choices;
    choose(program);
    SCOPED_TRACE(program.reason);
    EXPECT_EQ(program.chosen, c.chosen);
    EXPECT_NE(program.reason.find(c.reason), std::string::npos) << c.reason;
  }
}

}  // namespace
}  // namespace overtake
