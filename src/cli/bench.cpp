#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/session_flags.h"
#include "ops/op.h"
#include "report/perfetto.h"
#include "report/table.h"

namespace overtake {
namespace {

constexpr int kBurst = 5;

struct BenchFlags {
  SessionFlags session;
  std::vector<std::string> schedules = {"in-order", "ooo"};
  int steps = 10;
  int warm = 2;
  std::string trace;
  bool passes = false;
};

struct Row {
  std::string asked;  // schedule on the command line; `auto` decides for one of the others
  std::unique_ptr<Session> session;
  std::vector<double> ms;
  std::vector<Trace> traces;

  double median() const {
    std::vector<double> sorted = ms;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
  double fastest() const { return *std::ranges::min_element(ms); }
};

// Steps back to back, as many under way as the device takes; of each but the first, which starts on an idle device,
// the time in ms.
std::vector<double> burst(Session& session, int steps, float learning_rate) {
  const auto depth = static_cast<int>(session.most_under_way());
  const int idle = depth > 1 ? 1 : 0;
  std::vector<double> ms;
  for (int started = 0, finished = 0; finished < steps + idle; ++finished) {
    for (; started < steps + idle && started - finished < depth; ++started) session.start_step(learning_rate);
    const StepResult step = session.finish_step();
    if (finished >= idle) ms.push_back(static_cast<double>(step.trace.step_ns) * 1e-6);
  }
  return ms;
}

// Steps of all schedules in turn, so that what else the machine does hits all alike.
void measure(std::vector<Row>& rows, const BenchFlags& flags) {
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  const auto learning_rate = static_cast<float>(flags.session.learning_rate);
  for (int i = 0; i < flags.warm + flags.steps; ++i) {
    for (Row& row : rows) {
      const std::vector<double> ms = burst(*row.session, row.session->most_under_way() > 1 ? kBurst : 1, learning_rate);
      if (i >= flags.warm) row.ms.insert(row.ms.end(), ms.begin(), ms.end());
      if (!flags.trace.empty() && i + 1 == flags.warm + flags.steps)
        row.traces.push_back(row.session->step_traced(learning_rate).trace);
    }
    if (is_terminal) fmt::print(stderr, "\rround {}/{}", i + 1, flags.warm + flags.steps);
  }
  if (is_terminal) fmt::print(stderr, "\r\033[K");
}

// What a step cannot do without: its floating-point operations, and each buffer written once and read once.
struct LeastWork {
  double flops = 0, bytes = 0;
};
LeastWork least_work(const Graph& g) {
  LeastWork work;
  std::vector<char> is_read(g.buffers.size(), 0), is_written(g.buffers.size(), 0);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    work.flops += work_of(g, t).flops;
    for (const BufferId b : g.reads(t))
      if (b != kNone) is_read[b] = 1;
    for (const BufferId b : g.writes(t))
      if (b != kNone) is_written[b] = 1;
  }
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    if (g.buffers[b].role != Role::scratch)
      work.bytes += static_cast<double>(g.bytes(b)) * (is_read[b] + is_written[b]);
  return work;
}

// What each pass did to the first row's graph.
std::string table_of_passes(const std::vector<PassRecord>& passes) {
  Table table({"pass", "ms", "tasks", "moved per step", "saved"});
  for (const PassRecord& p : passes) {
    if (p.skipped) {
      table.add({p.name, "skipped", "", "", ""});
      continue;
    }
    const auto bytes = [](double b) { return format_bytes(static_cast<std::int64_t>(b)); };
    table.add({p.name, fmt::format("{:.1f}", p.ms), std::to_string(p.tasks), bytes(p.bytes),
               p.bytes_saved > 0 ? bytes(p.bytes_saved) : ""});
  }
  return table.text();
}

nlohmann::json json_of_passes(const std::vector<PassRecord>& passes) {
  nlohmann::json all = nlohmann::json::array();
  for (const PassRecord& p : passes)
    all.push_back({{"pass", p.name},
                   {"skipped", p.skipped},
                   {"ms", p.ms},
                   {"tasks", p.tasks},
                   {"bytes", p.bytes},
                   {"bytes_saved", p.bytes_saved}});
  return all;
}

int bench(const BenchFlags& flags) {
  if (flags.steps < 1 || flags.warm < 0) fail_user("--steps {}: it must be at least 1", flags.steps);
  if (!flags.trace.empty()) check_writable(flags.trace);
  std::vector<Row> rows;
  for (const std::string& name : flags.schedules) {
    const ScheduleChoice schedule = schedule_from_string(name);
    SessionFlags::Start start = flags.session.load();
    SessionOptions options = flags.session.options(schedule);
    options.initial = std::move(start.initial);
    rows.push_back({name, std::make_unique<Session>(std::move(start.graph), std::move(options)), {}, {}});
    rows.back().session->fill_inputs(flags.session.seed + 1);
  }
  measure(rows, flags);

  nlohmann::json out = {{"model", flags.session.model}, {"rows", nlohmann::json::array()}};
  Table table({"schedule", "runs as", "ms/step", "fastest", "speed-up", "memory", "weights hash"});
  bool are_equal = true;
  for (const Row& row : rows) {
    const std::string hash = hash_text(row.session->weights_hash());
    const LeastWork work = least_work(row.session->graph());
    are_equal = are_equal && hash == hash_text(rows[0].session->weights_hash());
    table.add({row.asked, row.session->plan().schedule, fmt::format("{:.2f}", row.median()),
               fmt::format("{:.2f}", row.fastest()), fmt::format("{:.3f}", rows[0].median() / row.median()),
               format_bytes(static_cast<std::int64_t>(row.session->peak_bytes())), hash});
    out["rows"].push_back({{"schedule", row.asked},
                           {"runs_as", row.session->plan().schedule},
                           {"step_ms", row.median()},
                           {"fastest_ms", row.fastest()},
                           {"peak_bytes", row.session->peak_bytes()},
                           {"flops", work.flops},
                           {"least_bytes", work.bytes},
                           {"precision", to_string(row.session->precision())},
                           {"weights_hash", hash}});
  }
  if (!flags.trace.empty()) {
    std::vector<TracedRun> runs;
    for (const Row& row : rows) runs.push_back({row.asked, &row.session->plan(), row.traces, flags.session.device});
    write_file_atomically(flags.trace, perfetto_json(runs));
  }
  const std::vector<PassRecord>& passes = rows[0].session->passes();
  if (flags.passes) out["passes"] = json_of_passes(passes);
  if (flags.session.json)
    fmt::print("{}\n", out.dump());
  else
    fmt::print("{}{}", table.text(), flags.passes ? "\n" + table_of_passes(passes) : "");
  OVERTAKE_CHECK(are_equal, "schedules of {} end with different weights", flags.session.model);
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* c = app.add_subcommand("bench", "measure schedules side by side on random data");
  flags->session.add_to(*c);
  c->add_option("--schedules", flags->schedules, "in-order, ooo, auto; the first is the baseline")
      ->delimiter(',')
      ->capture_default_str();
  c->add_option("--steps", flags->steps, "measured steps of each")->capture_default_str();
  c->add_option("--warm", flags->warm, "steps of each before that")->capture_default_str();
  c->add_option("--trace", flags->trace,
                "timeline of the last step of each, for `overtake report` and ui.perfetto.dev");
  c->add_flag("--passes", flags->passes, "what each pass did: tasks, and bytes that the step's tasks read and write");
  c->footer("Example:\n  overtake bench resnet-18 --batch 16 --schedules in-order,ooo --trace resnet.json");
  c->callback([flags, &exit_code] { exit_code = bench(*flags); });
}

}  // namespace overtake
