#include <fmt/format.h>

#include "models/zoo.h"
#include "train/session.h"
#include "base/hash.h"
#include "base/units.h"
#include "base/error.h"

using namespace overtake;
int main(int argc, char** argv) try {
  std::string model = argc > 1 ? argv[1] : "cnn";
  SessionOptions o;
  o.schedule = schedule_from_string(argc > 2 ? argv[2] : "in-order");
  o.note = [](const std::string& s) { fmt::print("{}\n", s); };
  Session s(build_model(model, ModelSettings::parse(argc > 3 ? argv[3] : "")), o);
  for (auto& p : s.passes()) fmt::print("pass {} {:.2f} ms\n", p.name, p.ms);
  fmt::print("peak {} live {}\n", format_bytes((std::int64_t)s.peak_bytes()), format_bytes((std::int64_t)s.plan().live_bytes));
  s.fill_inputs(3);
  for (int i = 0; i < 5; ++i) {
    auto r = s.step(0.01f);
    fmt::print("loss {} {} ms\n", r.loss, (double)r.trace.step_ns * 1e-6);
    if (i == 4) {
      std::map<std::string, double> by;
      for (auto& sp : r.trace.spans) by[fmt::format("{} {}", to_string(s.graph().tasks[sp.task].op), to_string(s.graph().tasks[sp.task].kind))] += (double)(sp.end_ns - sp.begin_ns) * 1e-6;
      for (auto& [k, v] : by) fmt::print("  {:<30} {:.3f} ms\n", k, v);
    }
  }
  fmt::print("hash {}\n", hash_text(s.weights_hash()));
} catch (const std::exception& e) { fmt::print(stderr, "overtake: {}\n", e.what()); return 2; }
