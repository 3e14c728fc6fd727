#include <cmath>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/connect_ranks.h"
#include "cli/progress_line.h"
#include "cli/rank_traces.h"
#include "cli/resumed_run.h"
#include "cli/say.h"
#include "cli/spec_flags.h"
#include "launch/worker.h"
#include "plan/simulated_step.h"
#include "report/device_time.h"
#include "report/perfetto.h"
#include "train/measured_machine.h"
#include "train/resumed_network.h"
#include "train/run.h"
#include "train/run_options.h"
#include "train/sample_form.h"

namespace overtake {
namespace {

constexpr int kInterruptedExit = 130, kNotSavedExit = 2;

volatile std::sig_atomic_t interrupted = 0;

// What part of a step each device was predicted to compute nothing.
std::vector<double> predicted_idle(const Program& program) {
  std::vector<double> idle;
  if (program.costs.empty()) return idle;
  const PredictedStep step = simulated_step(program).step;
  for (const DeviceTime& d : device_times(step.outline.plan, step.result.trace))
    idle.push_back(1 - static_cast<double>(d.busy_ns) / static_cast<double>(step.step_ns()));
  return idle;
}

void print_prediction(const TrainingRun& run, double step_ms) {
  const std::optional<double> ms = run.predicted_ms();
  if (!ms) return say("predicted      nothing: --schedule {} measures no tasks\n", run.plan().schedule);
  say("predicted      {:.2f} ms ({:.1f} % {} than measured)\n", *ms, 100 * std::abs(*ms / step_ms - 1),
      *ms < step_ms ? "less" : "more");
  const std::vector<double> idle = predicted_idle(run.program());
  if (idle.size() < 2) return;
  say("predicted idle");
  for (const double part : idle) say(" {:.0f} %", 100 * part);
  say(" of the step, by device\n");
}

// The one that is printed.
StepTime step_time_of(const LoopResult& result) {
  return {std::llround(result.step_ms * 1e6), "median of all trained steps"};
}

// What is trained on, in one line.
std::string line_of_data(const RunSpec& spec, const TrainingData& data) {
  const DataFacts facts = data.train->facts();
  const std::int64_t told_apart = data.train->form().classes;
  std::string classes;
  if (facts.classes > 0) classes = fmt::format(", {} classes", facts.classes);
  if (facts.classes > 0 && told_apart > facts.classes)
    classes += fmt::format(" of the {} that the model tells apart", told_apart);
  return fmt::format(
      "data: {}: {} training samples, {} test samples{}{}", spec.data, data.train->size(), data.test->size(), classes,
      facts.is_made_up ? "; they are made-up numbers, so loss and accuracy say nothing of real data" : "");
}

nlohmann::json json_of_data(const RunSpec& spec, const TrainingData& data) {
  const DataFacts facts = data.train->facts();
  return {{"name", spec.data},
          {"samples", data.train->size()},
          {"test_samples", data.test->size()},
          {"classes", facts.classes},
          {"is_made_up", facts.is_made_up}};
}

std::string line_of_model(const RunSpec& spec, const Graph& model, std::int64_t batch) {
  std::int64_t parameters = 0;
  for (const Parameter& p : model.parameters)
    if (model.buffers[p.buffer].role == Role::weight) parameters += model.buffers[p.buffer].shape.elements();
  return fmt::format("{}: {} parameters, {} samples in a step", spec.model, parameters, batch);
}

// All weights of a run that is resumed come from its checkpoint.
RunSpec without_init(RunSpec spec) {
  spec.init.clear();
  spec.init_skip.clear();
  return spec;
}

int train(const SpecFlags& flags) {
  RunSpec spec = flags.spec();
  const std::optional<Worker> worker = worker_from_environment();
  const bool is_first = !worker || worker->rank == 0;
  const auto note = [&](const std::string& line) {
    if (is_first) print_note(line);
  };
  // Resuming takes all from the checkpoint but what is given. The first of several processes tells the others.
  std::optional<ResumedRun> resumed;
  if (!spec.resume.empty()) {
    resumed = read_resumed(spec, worker);
    spec = resumed_spec(*resumed, spec, flags.given());
  }
  if (!spec.plan.empty()) spec = with_plan(spec, flags.given());
  // All that can be wrong with what was given shows before anything is measured.
  check_spec(spec);
  if (is_first) flags.check_outputs({{"--trace", spec.trace, kTimeline}});
  LoopOptions loop = loop_options(spec, note);
  loop.overwrite = flags.overwrite;
  loop.note = note;
  spec.data = loop.data;
  if (resumed) check_same_run(resumed->settings, resumed->steps, loop);
  if (is_first) open_saver(loop);

  StartingPoint start = load_start(resumed ? without_init(spec) : spec, note);
  loop.training_settings["weight_names"] = {{"remove", start.names.remove}, {"add", start.names.add}};
  if (resumed && resumed->settings.contains("weight_names"))
    loop.training_settings["weight_names"] = resumed->settings["weight_names"];
  const std::int64_t batch = whole_batch(spec, start.graph);
  note(line_of_model(spec, start.graph, batch));
  prepare(loop, sample_form_of(start.graph), batch);
  note(line_of_data(spec, *loop.opened));
  std::string network;
  if (resumed) {
    for (const std::string& line : check_same_run(resumed->settings, resumed->steps, loop)) note(line);
    if (resumed->state && !resumed->state->has_checksum)
      note(
          fmt::format("`resume {}`: an earlier version wrote it, without a checksum over its JSON file: changes to "
                      "that go unnoticed",
                      spec.resume));
    if (resumed->steps == loop.total) {
      if (is_first) say_finished(*resumed, spec, loop, flags.json);
      return 0;
    }
    note(fmt::format("`resume {}`: it goes on after step {} of {}, and is saved {}", spec.resume, resumed->steps,
                     loop.total, spec.save.empty() ? "nowhere; `save` gives it a place" : "to " + spec.save));
  }
  if (resumed && resumed->state) {
    network = changed_network(*resumed->state, start.graph, spec.resume);
    if (!network.empty())
      print_note(fmt::format("`resume {}`: its network is not that of {} any more; it goes on as it was saved",
                             spec.resume, spec.model));
    resumed->state.reset();  // its memory is needed for training
  }
  RunOptions options{.initial = std::move(start.initial),
                     .place = {.steps = loop.total - (resumed ? resumed->steps : 0), .note = print_note}};
  if (flags.print_passes) options.compile.print_passes = [](const std::string& text) { say(stderr, "{}", text); };
  const RunSpec as_given = spec;
  connect_ranks(spec, options.place);
  const std::shared_ptr<RankGroups> groups = options.place.groups;
  if (!spec.resume.empty())
    take_network(start.graph, options.initial, shared_text(groups.get(), [&] { return network; }));
  TrainingRun run(std::move(start.graph), spec, std::move(options));
  if (run.is_first()) flags.save(as_given);
  if (run.is_first()) flags.save_plan(run.program());
  if (run.is_first())
    say(stderr, "{}: {} tasks on {} lane(s), schedule {}, {} planned\n", spec.model, run.graph().tasks.size(),
        run.plan().lanes.size(), run.plan().schedule, format_bytes(static_cast<std::int64_t>(run.peak_bytes())));

  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  ProgressLine progress;
  ClockOffset clock;
  if (groups && !spec.trace.empty()) loop.after_steps = [&] { clock = clock_of_rank(*groups->world); };
  const LoopResult result = run_training(
      run, loop,
      [&](const Progress& p) {
        if (run.is_first()) progress.show(p);
      },
      [] { return interrupted != 0; });

  if (!spec.trace.empty()) {
    const std::string name = spec.model + ", " + run.plan().schedule;
    const std::string text =
        groups ? merged_trace(*groups->world, clock, spec, name, run.plan(), result.traces, step_time_of(result))
               : perfetto_json({{name, &run.plan(), result.traces, spec.device, step_time_of(result)}});
    if (run.is_first()) write_file_atomically(spec.trace, text);
  }
  const std::string hash = hash_text(run.weights_hash());
  const int exit_code = !result.not_saved.empty() ? kNotSavedExit : result.interrupted ? kInterruptedExit : 0;
  if (!run.is_first()) return exit_code;
  if (result.interrupted)
    say(stderr, "\nstopped after step {}{}\n", result.steps,
        loop.saver && loop.saver->newest() ? fmt::format("; go on with --resume {}", spec.save) : "");
  if (!flags.json) {
    say("steps          {}\n", result.steps);
    say("loss           {:.6f}\n", result.loss);
    if (result.test.samples > 0) say("test loss      {:.6f}\n", result.test.loss);
    if (result.test.accuracy >= 0) say("test accuracy  {:.2f} %\n", 100 * result.test.accuracy);
    say("step time      {:.2f} ms (median, schedule {})\n", result.step_ms, run.plan().schedule);
    if (spec.predict) print_prediction(run, result.step_ms);
    say("memory         {}\n", format_bytes(static_cast<std::int64_t>(run.peak_bytes())));
    say("weights hash   {}\n", hash);
  } else {
    nlohmann::json out = {{"steps", result.steps},
                          {"loss", result.loss},
                          {"step_ms", result.step_ms},
                          {"peak_bytes", run.peak_bytes()},
                          {"weights_hash", hash},
                          {"schedule", run.plan().schedule},
                          {"interrupted", result.interrupted},
                          {"data", json_of_data(spec, *loop.opened)},
                          {"spec", json_of(spec)}};
    if (spec.predict) {
      const std::optional<double> ms = run.predicted_ms();
      out["predicted_ms"] = ms ? nlohmann::json(*ms) : nlohmann::json();
      out["predicted_idle"] = predicted_idle(run.program());
    }
    if (const PlanChoice& choice = run.program().choice(); spec.replicas > 1) {
      out["reduce"] = choice.reduce;
      if (choice.reduce == "first-k") {
        out["first_k"] = choice.first_k.k;
        out["first_k_from"] = choice.first_k.from;
      }
    }
    if (result.test.samples > 0) out["test_loss"] = result.test.loss;
    if (result.test.accuracy >= 0) out["accuracy"] = result.test.accuracy;
    if (loop.saver) out["saved_step"] = loop.saver->newest() ? nlohmann::json(*loop.saver->newest()) : nlohmann::json();
    say("{}", dumped(out));
  }
  if (!result.not_saved.empty()) say(stderr, "overtake: {}\n", with_flags(result.not_saved));
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
