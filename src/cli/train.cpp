#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/parallel_flags.h"
#include "cli/rank_traces.h"
#include "cli/session_flags.h"
#include "launch/worker.h"
#include "report/device_time.h"
#include "report/perfetto.h"
#include "train/loop.h"

namespace overtake {
namespace {

constexpr int kInterruptedExit = 130;

volatile std::sig_atomic_t interrupted = 0;

struct TrainFlags {
  SessionFlags session;
  ParallelFlags parallel;
  LoopOptions loop;
  std::string schedule = "auto";
  std::string trace;
};

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

void complete(TrainFlags& flags, const ModelSettings& settings) {
  flags.loop.seed = flags.session.seed;
  flags.loop.learning_rate = flags.session.learning_rate;
  flags.loop.model = flags.session.model;
  flags.loop.model_settings = settings.all();
  flags.loop.training_settings = flags.session.optimizer_json();
  flags.loop.training_settings["lr"] = flags.loop.learning_rate;
  flags.loop.training_settings["lr_schedule"] = flags.loop.lr_schedule;
  flags.loop.training_settings["warmup"] = flags.loop.warmup;
  flags.loop.training_settings["data"] = flags.loop.data;
  flags.loop.training_settings["augment"] = flags.loop.augment;
  flags.loop.training_settings["init"] = flags.session.init;
  flags.loop.training_settings["init_skip"] = flags.session.init_skip;
  flags.loop.training_settings["freeze"] = flags.session.frozen;
  if (is_onnx_file(flags.session.model)) {
    flags.loop.training_settings["loss"] = flags.session.loss;
    flags.loop.training_settings["output"] = flags.session.output;
  }
  flags.loop.keep_traces = !flags.trace.empty();
}

// All that processes of one job must have in common.
std::string identity_of(const TrainFlags& flags) {
  const ParallelOptions& p = flags.parallel.options;
  return nlohmann::json{{"version", OVERTAKE_VERSION},
                        {"model", flags.loop.model},
                        {"settings", flags.loop.model_settings},
                        {"training", flags.loop.training_settings},
                        {"seed", flags.loop.seed},
                        {"steps", flags.loop.steps},
                        {"epochs", flags.loop.epochs},
                        {"save_every", flags.loop.save_every},
                        {"resumes", !flags.loop.resume.empty()},
                        {"saves", !flags.loop.save.empty()},
                        {"traces", !flags.trace.empty()},
                        {"parallel",
                         {p.replicas, p.stages, p.micro_batches, p.pipeline, p.reduce,
                          p.first_k ? to_string(*p.first_k) : "", p.bucket_bytes, p.predict, p.sync_batch_norm}}}
      .dump();
}

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

int train(TrainFlags flags) {
  const ModelSettings settings = flags.session.model_settings();
  complete(flags, settings);
  const ScheduleChoice schedule = schedule_from_string(flags.schedule);
  if (flags.parallel.options.devices() > 1 && schedule != ScheduleChoice::automatic)
    fail_user(
        "--schedule {}: it is for one device; with --dp {} x --pp {} the order comes from --pipeline and --reduce, so "
        "leave it out",
        flags.schedule, flags.parallel.options.replicas, flags.parallel.options.stages);
  if (!flags.trace.empty()) check_writable(flags.trace);
  if (!flags.loop.save.empty()) check_checkpoint_writable(flags.loop.save);
  // Resuming cuts sums into the same pieces, whatever the machine. The first of several processes tells the others.
  std::optional<CheckpointState> before;
  const std::optional<Worker> worker = worker_from_environment();
  if (!flags.loop.resume.empty() && (!worker || worker->rank == 0)) before = checkpoint_facts(flags.loop.resume);
  if (before && flags.session.parts == 0) flags.session.parts = before->settings.value("parts", 0u);

  // All that can be wrong with what was given shows before anything is measured.
  flags.parallel.apply(flags.session);
  SessionFlags::Start start = flags.session.load();
  SessionOptions options = flags.session.options(schedule);
  options.initial = std::move(start.initial);
  options.parallel = flags.parallel.options;
  flags.loop.training_settings["weight_names"] = {{"remove", start.names.remove}, {"add", start.names.add}};
  prepare(flags.loop, sample_form_of(start.graph), flags.parallel.whole_batch(start.graph));
  if (before) check_same_run(*before, flags.loop);
  flags.parallel.connect(options, identity_of(flags));
  const std::shared_ptr<RankGroups> groups = options.backend.groups;
  Session session(std::move(start.graph), std::move(options));
  if (session.is_first())
    fmt::print(stderr, "{}: {} tasks on {} lane(s), schedule {}, {} planned\n", flags.session.model,
               session.graph().tasks.size(), session.plan().lanes.size(), session.plan().schedule,
               format_bytes(static_cast<std::int64_t>(session.peak_bytes())));

  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  ProgressLine progress;
  ClockOffset clock;
  if (groups && !flags.trace.empty()) flags.loop.after_steps = [&] { clock = clock_of_rank(*groups->world); };
  const LoopResult result = run_training(
      session, flags.loop,
      [&](const Progress& p) {
        if (session.is_first()) progress.show(p);
      },
      [] { return interrupted != 0; });

  if (!flags.trace.empty()) {
    const std::string run = flags.session.model + ", " + session.plan().schedule;
    const std::string text =
        groups ? merged_trace(*groups->world, clock, flags.parallel.options, run, session.plan(), result.traces)
               : perfetto_json({{run, &session.plan(), result.traces, flags.session.device}});
    if (session.is_first()) write_file_atomically(flags.trace, text);
  }
  const std::string hash = hash_text(session.weights_hash());
  const int exit_code = result.interrupted ? kInterruptedExit : 0;
  if (!session.is_first()) return exit_code;
  if (result.interrupted)
    fmt::print(stderr, "\nstopped after step {}{}\n", result.steps,
               flags.loop.save.empty() ? "" : fmt::format("; go on with --resume {}", flags.loop.save));
  if (!flags.session.json) {
    fmt::print("steps          {}\n", result.steps);
    fmt::print("loss           {:.6f}\n", result.loss);
    if (result.test.samples > 0) fmt::print("test loss      {:.6f}\n", result.test.loss);
    if (result.test.accuracy >= 0) fmt::print("test accuracy  {:.2f} %\n", 100 * result.test.accuracy);
    fmt::print("step time      {:.2f} ms (median, schedule {})\n", result.step_ms, session.plan().schedule);
    if (flags.parallel.options.predict) print_prediction(session, result.step_ms);
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
    if (flags.parallel.options.predict) {
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
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App* c = app.add_subcommand("train", "train a network");
  flags->session.add_to(*c);
  c->add_option("--data", flags->loop.data,
                "fashion-mnist[:DIR], synthetic[:N], text:FILE, masked-text:FILE, or "
                "npy:X.npy,Y.npy[,XTEST.npy,YTEST.npy] (without test files every tenth sample is the test)")
      ->capture_default_str();
  c->add_option("--steps", flags->loop.steps, "steps in all, those before --resume included; default: by epochs")
      ->check(CLI::PositiveNumber);
  c->add_option("--epochs", flags->loop.epochs, "passes over the data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  c->add_option("--lr-schedule", flags->loop.lr_schedule, "constant, step:EVERY:GAMMA, or cosine[:END]")
      ->capture_default_str();
  c->add_option("--warmup", flags->loop.warmup, "steps of linear warm-up")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c->add_flag("--augment", flags->loop.augment, "flip and shift images at random");
  c->add_option("--schedule", flags->schedule, "of one device: in-order, ooo, or auto (whichever measures faster)")
      ->capture_default_str();
  flags->parallel.add_to(*c);
  c->add_option("--save", flags->loop.save, "checkpoint to write, for example runs/cnn");
  c->add_option("--save-every", flags->loop.save_every, "steps between checkpoints; 0: at the end only")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c->add_option("--resume", flags->loop.resume, "checkpoint to go on from; the result is as if never stopped");
  c->add_option("--trace", flags->trace,
                "timeline of the last steps, of all processes, for `overtake report` and ui.perfetto.dev");
  c->footer(
      "Example:\n  overtake train cnn --data fashion-mnist --epochs 2 --lr 0.05 --save runs/cnn --save-every 200");
  c->callback([flags, &exit_code] { exit_code = train(*flags); });
}

}  // namespace overtake
