#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/connect_ranks.h"
#include "cli/rank_traces.h"
#include "cli/spec_flags.h"
#include "launch/worker.h"
#include "report/device_time.h"
#include "report/perfetto.h"
#include "train/run_options.h"

namespace overtake {
namespace {

constexpr int kInterruptedExit = 130;

volatile std::sig_atomic_t interrupted = 0;

// One line that is written over on a terminal, a line now and then elsewhere.
class ProgressLine {
 public:
  void show(const Progress& p) {
    const bool is_last = p.step == p.steps;
    if (!is_terminal_ && !is_last && p.step < next_) return;
    next_ = p.step + std::max<std::uint64_t>(1, p.steps / 20);
    const std::string accuracy = p.accuracy < 0 ? "" : fmt::format("  accuracy {:5.1f} %", 100 * p.accuracy);
    const std::string line =
        fmt::format("step {}/{}  epoch {}  loss {:.4f}{}  {:.0f} samples/s  {} left", p.step, p.steps, p.epoch, p.loss,
                    accuracy, p.samples_per_s, format_duration(p.seconds_left));
    if (is_terminal_)
      fmt::print(stderr, "\r\033[K{}{}", line, is_last ? "\n" : "");
    else
      fmt::print(stderr, "{}\n", line);
    std::fflush(stderr);
  }

 private:
  bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  std::uint64_t next_ = 0;
};

// Of several devices, what part of a step each was predicted to compute nothing.
std::vector<double> predicted_idle(const Session& session) {
  std::vector<double> idle;
  if (!session.predicted()) return idle;
  const PredictedStep& step = *session.predicted();
  for (const DeviceTime& d : device_times(step.outline.plan, step.result.trace))
    idle.push_back(1 - static_cast<double>(d.busy_ns) / static_cast<double>(step.step_ns()));
  return idle;
}

void print_prediction(const Session& session, double step_ms) {
  const std::optional<double> ms = session.predicted_ms();
  if (!ms) return fmt::print("predicted      nothing: --schedule {} measures no tasks\n", session.plan().schedule);
  fmt::print("predicted      {:.2f} ms ({:.1f} % {} than measured)\n", *ms, 100 * std::abs(*ms / step_ms - 1),
             *ms < step_ms ? "less" : "more");
  const std::vector<double> idle = predicted_idle(session);
  if (idle.size() < 2) return;
  fmt::print("predicted idle");
  for (const double part : idle) fmt::print(" {:.0f} %", 100 * part);
  fmt::print(" of the step, by device\n");
}

int train(const SpecFlags& flags) {
  const RunSpec spec = flags.spec();
  if (!spec.trace.empty()) check_writable(spec.trace);
  if (!spec.save.empty()) check_checkpoint_writable(spec.save);
  flags.check_saving();
  // All that can be wrong with what was given shows before anything is measured.
  SessionOptions options = session_options(spec);
  options.note = print_note;
  if (flags.print_passes) options.print_passes = [](const std::string& text) { fmt::print(stderr, "{}", text); };
  LoopOptions loop = loop_options(spec);
  // Resuming cuts sums into the same pieces, whatever the machine. The first of several processes tells the others.
  std::optional<CheckpointState> before;
  const std::optional<Worker> worker = worker_from_environment();
  if (!spec.resume.empty() && (!worker || worker->rank == 0)) before = checkpoint_facts(spec.resume);
  if (before && options.parts == 0) options.parts = before->settings.value("parts", 0u);

  StartingPoint start = load_start(spec, print_note);
  options.initial = std::move(start.initial);
  loop.training_settings["weight_names"] = {{"remove", start.names.remove}, {"add", start.names.add}};
  prepare(loop, sample_form_of(start.graph), whole_batch(spec, start.graph));
  if (before)
    for (const std::string& line : check_same_run(*before, loop)) print_note(line);
  connect_ranks(options, spec);
  const std::shared_ptr<RankGroups> groups = options.backend.groups;
  Session session(std::move(start.graph), std::move(options));
  if (session.is_first()) flags.save(spec);
  if (session.is_first())
    fmt::print(stderr, "{}: {} tasks on {} lane(s), schedule {}, {} planned\n", spec.model,
               session.graph().tasks.size(), session.plan().lanes.size(), session.plan().schedule,
               format_bytes(static_cast<std::int64_t>(session.peak_bytes())));

  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  ProgressLine progress;
  ClockOffset clock;
  if (groups && !spec.trace.empty()) loop.after_steps = [&] { clock = clock_of_rank(*groups->world); };
  const LoopResult result = run_training(
      session, loop,
      [&](const Progress& p) {
        if (session.is_first()) progress.show(p);
      },
      [] { return interrupted != 0; });

  if (!spec.trace.empty()) {
    const std::string run = spec.model + ", " + session.plan().schedule;
    const std::string text =
        groups ? merged_trace(*groups->world, clock, session.parallel(), run, session.plan(), result.traces)
               : perfetto_json({{run, &session.plan(), result.traces, spec.device}});
    if (session.is_first()) write_file_atomically(spec.trace, text);
  }
  const std::string hash = hash_text(session.weights_hash());
  const int exit_code = result.interrupted ? kInterruptedExit : 0;
  if (!session.is_first()) return exit_code;
  if (result.interrupted)
    fmt::print(stderr, "\nstopped after step {}{}\n", result.steps,
               spec.save.empty() ? "" : fmt::format("; go on with --resume {}", spec.save));
  if (!flags.json) {
    fmt::print("steps          {}\n", result.steps);
    fmt::print("loss           {:.6f}\n", result.loss);
    if (result.test.samples > 0) fmt::print("test loss      {:.6f}\n", result.test.loss);
    if (result.test.accuracy >= 0) fmt::print("test accuracy  {:.2f} %\n", 100 * result.test.accuracy);
    fmt::print("step time      {:.2f} ms (median, schedule {})\n", result.step_ms, session.plan().schedule);
    if (spec.predict) print_prediction(session, result.step_ms);
    fmt::print("memory         {}\n", format_bytes(static_cast<std::int64_t>(session.peak_bytes())));
    fmt::print("weights hash   {}\n", hash);
  } else {
    nlohmann::json out = {{"steps", result.steps},
                          {"loss", result.loss},
                          {"step_ms", result.step_ms},
                          {"peak_bytes", session.peak_bytes()},
                          {"weights_hash", hash},
                          {"schedule", session.plan().schedule},
                          {"interrupted", result.interrupted}};
    if (spec.predict) {
      const std::optional<double> ms = session.predicted_ms();
      out["predicted_ms"] = ms ? nlohmann::json(*ms) : nlohmann::json();
      out["predicted_idle"] = predicted_idle(session);
    }
    if (session.parallel().replicas > 1) out["reduce"] = session.parallel().reduce;
    if (const auto& late = session.parallel().first_k; late && session.parallel().replicas > 1) {
      out["first_k"] = late->k;
      out["first_k_from"] = late->from;
    }
    if (result.test.samples > 0) out["test_loss"] = result.test.loss;
    if (result.test.accuracy >= 0) out["accuracy"] = result.test.accuracy;
    fmt::print("{}\n", out.dump());
  }
  return exit_code;
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SpecFlags>();
  CLI::App* c = app.add_subcommand("train", "train a network");
  flags->add_to(*c, Command::train);
  c->footer(
      "Example:\n  overtake train cnn --data fashion-mnist --epochs 2 --lr 0.05 --save runs/cnn --save-every 200");
  c->callback([flags, &exit_code] { exit_code = train(*flags); });
}

}  // namespace overtake
