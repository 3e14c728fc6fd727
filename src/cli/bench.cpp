#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "cli/bench_rows.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/say.h"
#include "cli/spec_flags.h"
#include "ops/op.h"
#include "report/perfetto.h"
#include "report/table.h"
#include "train/run.h"
#include "train/run_options.h"

namespace overtake {
namespace {

struct BenchFlags {
  SpecFlags spec;
  std::vector<std::string> schedules;  // none: in-order and ooo
  int steps = 10;
  int warm = 2;
  std::string trace;
  bool passes = false;
  bool explain = false;
};

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

BenchRow make_row(const std::string& name, const RunSpec& spec, const BenchFlags& flags) {
  check_spec(spec);
  StartingPoint start = load_start(spec, print_note);
  RunOptions options{.initial = std::move(start.initial), .place = {.note = print_note}};
  if (flags.spec.print_passes) options.compile.print_passes = [](const std::string& text) { say(stderr, "{}", text); };
  BenchRow row{name, std::make_unique<TrainingRun>(std::move(start.graph), spec, std::move(options))};
  row.run->fill_inputs(spec.seed + 1);
  return row;
}

std::vector<BenchRow> make_rows(const RunSpec& spec, const BenchFlags& flags) {
  std::vector<BenchRow> rows;
  if (!spec.plan.empty()) {
    rows.push_back(make_row("", spec, flags));
    rows[0].name = rows[0].run->program().choice().name;
    return rows;
  }
  static const std::vector<std::string> kUsual = {"in-order", "ooo"};
  std::vector<Variant> all;
  if (flags.explain) all = variants(spec);
  if (!flags.explain)
    for (const std::string& name : flags.schedules.empty() ? kUsual : flags.schedules)
      all.emplace_back(Variant{name, spec}).spec.schedule = name;
  for (const Variant& v : all) rows.push_back(make_row(v.name, v.spec, flags));
  return rows;
}

nlohmann::json json_of_row(const BenchRow& row, const std::string& hash) {
  const LeastWork work = least_work(row.run->graph());
  const std::optional<double> idle = row.idle();
  return {{"schedule", row.name},
          {"runs_as", row.run->plan().schedule},
          {"step_ms", row.median()},
          {"fastest_ms", row.fastest()},
          {"predicted_ms", row.predicted()},
          {"idle_between_steps_ms", idle ? nlohmann::json(*idle) : nlohmann::json()},
          {"candidates", json_of_choices(row.run->program())},
          {"peak_bytes", row.run->peak_bytes()},
          {"flops", work.flops},
          {"least_bytes", work.bytes},
          {"precision", to_string(row.run->precision())},
          {"weights_hash", hash}};
}

// A file may be of training, with what benches do not have: those fields are as if not given.
RunSpec as_benches_see(RunSpec spec) {
  for (const Field& field : fields())
    if (!field.is_of(Command::bench)) std::visit([&](auto member) { spec.*member = RunSpec{}.*member; }, field.member);
  return spec;
}

int bench(const BenchFlags& flags) {
  if (flags.steps < 1) fail_user("--steps {}: it must be at least 1", flags.steps);
  if (flags.warm < 0) fail_user("--warm {}: it must be at least 0", flags.warm);
  RunSpec spec = as_benches_see(flags.spec.spec());
  if (!spec.plan.empty() && (flags.explain || !flags.schedules.empty()))
    fail_user("`plan {}`: it has one schedule; leave out --schedules and --explain", spec.plan);
  std::vector<const Field*> given = flags.spec.given();
  std::erase_if(given, [](const Field* field) { return !field->is_of(Command::bench); });
  if (!spec.plan.empty()) spec = with_plan(spec, given);
  flags.spec.check_outputs({{"--trace", flags.trace, kTimeline}});
  std::vector<BenchRow> rows = make_rows(spec, flags);
  flags.spec.save(spec);
  measure(rows, {.steps = flags.steps,
                 .warm = flags.warm,
                 .learning_rate = static_cast<float>(spec.lr),
                 .trace = !flags.trace.empty()});

  nlohmann::json out = {
      {"model", spec.model}, {"data", "random numbers"}, {"spec", json_of(spec)}, {"rows", nlohmann::json::array()}};
  Table table({"schedule", "runs as", "ms/step", "fastest", "predicted", "speed-up", "memory", "weights hash"});
  for (const BenchRow& row : rows) {
    const std::string hash = hash_text(row.run->weights_hash());
    table.add({row.name, row.run->plan().schedule, fmt::format("{:.2f}", row.median()),
               fmt::format("{:.2f}", row.fastest()), row.predicted() > 0 ? fmt::format("{:.2f}", row.predicted()) : "",
               fmt::format("{:.3f}", rows[0].median() / row.median()),
               format_bytes(static_cast<std::int64_t>(row.run->peak_bytes())), hash});
    out["rows"].push_back(json_of_row(row, hash));
  }
  if (!flags.trace.empty()) {
    std::vector<TracedRun> runs;
    for (const BenchRow& row : rows)
      runs.push_back({row.name, &row.run->plan(), row.traces, spec.device, row.step_time()});
    write_file_atomically(flags.trace, perfetto_json(runs));
  }
  std::string text = table.text() + "on random numbers as data, which take as long as others\n";
  if (flags.passes) {
    out["passes"] = json_of_passes(rows[0].run->passes());
    text += "\n" + table_of_passes(rows[0].run->passes());
  }
  if (flags.explain) {
    const Program& program = rows.back().run->program();
    out["reason"] = program.reason;
    out["moves"] = json_of_moves(program, rows.back().run->plan());
    text += "\n" + table_of_choices(program) + "\n\n" + moves_table(program, rows.back().run->plan());
  }
  say("{}", flags.spec.json ? dumped(out) : text);
  // Fusing may change last bits, schedules never.
  const std::size_t first = flags.explain ? rows.size() - 2 : 0;
  for (std::size_t i = first; i < rows.size(); ++i)
    OVERTAKE_CHECK(rows[i].run->weights_hash() == rows[first].run->weights_hash(),
                   "schedules of {} end with different weights", spec.model);
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* c = app.add_subcommand("bench", "measure schedules side by side on random data");
  flags->spec.add_to(*c, Command::bench);
  c->add_option("--schedules", flags->schedules, "in-order, ooo, auto; the first is the baseline")
      ->delimiter(',')
      ->default_str("in-order,ooo");
  c->add_option("--steps", flags->steps, "measured steps of each")->capture_default_str();
  c->add_option("--warm", flags->warm, "steps of each before that")->capture_default_str();
  c->add_option("--trace", flags->trace,
                "timeline of the last step of each, for `overtake report` and ui.perfetto.dev");
  c->add_flag("--passes", flags->passes, "what each pass did: tasks, and bytes that the step's tasks read and write");
  c->add_flag(
      "--explain", flags->explain,
      "instead of --schedules: what graph, fusion and order each bring, what moved where, predicted and measured");
  c->footer("Example:\n  overtake bench resnet-18 --batch 16 --schedules in-order,ooo --trace resnet.json");
  c->callback([flags, &exit_code] { exit_code = bench(*flags); });
}

}  // namespace overtake
