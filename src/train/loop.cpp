#include "train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/seconds_since.h"
#include "plan/divide/workload.h"
#include "run/resume.h"
#include "train/sample_form.h"

namespace overtake {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::ptrdiff_t kKeptTraces = 3;
constexpr std::int64_t kAugmentShift = 2;

void check_finite(const std::vector<NamedTensor>& tensors, const std::string& path) {
  for (const NamedTensor& t : tensors) {
    if (t.type != StoredType::f32) continue;
    for (std::size_t i = 0; i + 4 <= t.bytes.size(); i += 4) {
      float x;
      std::memcpy(&x, t.bytes.data() + i, 4);
      if (!std::isfinite(x))
        fail_user("train: {} is not finite any more; checkpoint {} is left as it was; lower `lr` or set `clip_norm`",
                  t.name, path);
    }
  }
}

TrainingData opened_data(const LoopOptions& o, const SampleForm& form) {
  return {open_dataset(o.data, Split::train, form, o.seed, o.conversion),
          open_dataset(o.data, Split::test, form, o.seed, o.conversion)};
}

SamplerOptions sampler_of(const LoopOptions& options, std::int64_t batch) {
  return {.batch = batch, .seed = options.seed};
}

// Of the whole run.
LearningRateSchedule rates_of(const LoopOptions& options, std::uint64_t steps_per_epoch) {
  return parse_schedule(options.lr_schedule, options.learning_rate, options.warmup,
                        options.steps != 0 ? options.steps : options.epochs * steps_per_epoch);
}

// A checkpoint is JSON: what it keeps of a run must be found in it as it was.
void check_can_be_kept(const LoopOptions& options) {
  const auto check = [&](const std::string& what, const nlohmann::json& value) {
    try {
      static_cast<void>(value.dump());
    } catch (const nlohmann::json::exception&) {
      fail_user("`{} {}`: it is not UTF-8, and a checkpoint could not keep it; rename it, or leave out `save`", what,
                value.is_string() ? value.get<std::string>() : std::string());
    }
  };
  check("model", options.model);
  for (const auto& [name, value] : options.training_settings.items()) check(name, value);
}

std::shared_ptr<CheckpointSaver> made_saver(const LoopOptions& options) {
  if (options.save.empty()) return nullptr;
  check_can_be_kept(options);
  auto saver = std::make_shared<CheckpointSaver>(
      options.save, SaverOptions{.keep = options.keep, .resume = options.resume, .overwrite = options.overwrite});
  if (saver->is_without_lock())
    options.note(
        fmt::format("`save {}`: this file system has no locks; make sure that no other run saves there", options.save));
  return saver;
}

[[noreturn]] void fail_too_few_steps(const LoopOptions& o, std::uint64_t done, std::uint64_t total) {
  const std::string given = o.steps != 0 ? fmt::format("`steps {}`", o.steps)
                                         : fmt::format("`epochs {}`, which is {} steps", o.epochs, total);
  fail_user("{}: the run in {} has done {} steps already; give more, or start anew without `resume`", given, o.resume,
            done);
}

// Samples in a step, of a checkpoint that does not say it: what its network takes, times its pieces.
nlohmann::json batch_of(const CheckpointState& state) {
  if (!state.network) return {};
  const auto pieces = [&](const char* field) {
    const nlohmann::json number = state.settings.value(field, nlohmann::json(1));
    return number.is_number_integer() ? number.get<std::int64_t>() : 1;
  };
  return samples_of(*state.network) * pieces("dp") * pieces("micro_batches");
}

// Fields that have a place of their own among the others.
nlohmann::json with_own_places(nlohmann::json settings, const std::string& model, const nlohmann::json& of_model,
                               std::uint64_t seed) {
  std::string text;
  for (const auto& [name, value] : of_model.items()) {
    if (name == "batch" && value.is_number())
      settings["batch"] = std::llround(value.get<double>());
    else
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value_text(value));
  }
  settings["model"] = model;
  settings["set"] = text;
  settings["seed"] = seed;
  return settings;
}

class Loop {
 public:
  Loop(TrainingRun& run, const LoopOptions& options) : run_(run), options_(options) {
    data_ = options.opened ? *options.opened : opened_data(options, sample_form_of(run.graph()));
    sampler_ = sampler_of(options, run.batch());
    per_epoch_ = Sampler(data_.train->size(), sampler_).batches_per_epoch();
    rates_ = rates_of(options, per_epoch_);
    total_ = rates_.total;
    if (run.is_first()) saver_ = options.saver ? options.saver : made_saver(options);
    if (!options.resume.empty()) resume();
    if (run.steps_done() > total_) fail_too_few_steps(options, run.steps_done(), total_);
  }

  LoopResult run(const std::function<void(const Progress&)>& report, const std::function<bool()>& is_interrupted) {
    const std::uint64_t first = run_.steps_done();
    Loader loader = loader_at(first);
    LoopResult result;
    std::vector<double> step_ms;
    const Clock::time_point start = Clock::now();
    Clock::time_point last_report = start;
    double loss_sum = 0, correct = 0, counted = 0;
    std::uint64_t since_report = 0, done = first;
    for (;;) {
      if (is_interrupted()) run_.ask_to_stop();
      // Several processes stop after the same step, the one in which all have heard of it.
      if (!run_.has_ranks()) result.interrupted = result.interrupted || is_interrupted();
      while (!result.interrupted && may_start(done) && !is_traced(done)) {
        const HostBatch& batch = *loader.next();
        run_.start_step(batch, rates_.at(run_.steps_done()));
      }
      if (run_.steps_done() == done && (result.interrupted || done == total_)) break;
      StepResult step = run_.steps_done() > done ? run_.finish_step()
                                                 : run_.step_traced(*loader.next(), rates_.at(run_.steps_done()));
      if (!std::isfinite(step.loss)) fail_not_finite(done);
      ++done;
      result.interrupted = result.interrupted || step.is_asked_to_stop;
      result.loss = step.loss;
      step_ms.push_back(static_cast<double>(step.trace.step_ns) * 1e-6);
      loss_sum += static_cast<double>(step.loss);
      correct += static_cast<double>(step.correct);
      counted += static_cast<double>(step.counted);
      ++since_report;
      keep(result, std::move(step.trace));
      if (options_.save_every != 0 && done % options_.save_every == 0 && done < total_) {
        keep_delayed(result);
        save(step.loss, result);
        if (!result.not_saved.empty())
          options_.note(fmt::format("{}; training goes on, and the next save tries again", result.not_saved));
      }
      if (seconds_since(last_report) > 0.25 || done == total_) {
        const double rate = static_cast<double>(done - first) / seconds_since(start);
        report({.step = done,
                .steps = total_,
                .epoch = (done - 1) / per_epoch_ + 1,
                .steps_since = since_report,
                .loss = loss_sum / static_cast<double>(since_report),
                .accuracy = has_accuracy() ? correct / std::max(counted, 1.0) : -1,
                .samples_per_s = rate * static_cast<double>(run_.batch()),
                .seconds_left = static_cast<double>(total_ - done) / rate});
        last_report = Clock::now();
        loss_sum = correct = counted = 0;
        since_report = 0;
      }
    }
    keep_delayed(result);
    if (options_.after_steps) options_.after_steps();
    if (!options_.save.empty() && run_.steps_done() > first) save(result.loss, result);
    result.steps = run_.steps_done();
    std::ranges::sort(step_ms);
    if (!step_ms.empty()) result.step_ms = step_ms[step_ms.size() / 2];
    if (!result.interrupted) result.test = evaluate(run_, *data_.test);
    return result;
  }

 private:
  Loader loader_at(std::uint64_t step) const {
    const AugmentOptions augment{.flip = options_.augment, .max_shift = options_.augment ? kAugmentShift : 0};
    return Loader(data_.train,
                  {.sampler = sampler_, .augment = augment, .first = run_.first_sample(), .count = run_.own_samples()},
                  {step / per_epoch_, step % per_epoch_});
  }

  // As many steps as the device takes, but none beyond a checkpoint that is not written yet, nor beside one to be
  // traced.
  bool may_start(std::uint64_t done) const {
    const std::uint64_t started = run_.steps_done(), under_way = started - done;
    const bool is_before_save = under_way > 0 && options_.save_every != 0 && started % options_.save_every == 0;
    const bool is_before_trace =
        under_way > 0 && options_.keep_traces && started + std::uint64_t{kKeptTraces} >= total_;
    return started < total_ && under_way < run_.most_under_way() && !is_before_save && !is_before_trace;
  }

  // The last steps, where traces are wanted; they run one by one.
  bool is_traced(std::uint64_t done) const {
    return options_.keep_traces && run_.steps_done() == done && done + std::uint64_t{kKeptTraces} >= total_;
  }

  bool has_accuracy() const { return data_.train->form().label != LabelForm::targets; }

  void keep(LoopResult& result, Trace trace) const {
    if (!options_.keep_traces || trace.spans.empty()) return;
    result.traces.push_back(std::move(trace));
    const auto is_step = [](const Trace& t) { return t.step_ns > 0; };
    while (std::ranges::count_if(result.traces, is_step) > kKeptTraces || !is_step(result.traces.front()))
      result.traces.erase(result.traces.begin());
  }

  // Of ranks also what a step delays when no other follows, or none at once.
  void keep_delayed(LoopResult& result) {
    if (options_.keep_traces && run_.has_ranks() && !result.traces.empty()) keep(result, run_.settle());
  }

  // On the step's own batch: the inputs may hold that of a later step already.
  [[noreturn]] void fail_not_finite(std::uint64_t index) {
    Loader loader = loader_at(index);
    for (std::uint64_t under_way = run_.steps_done() - index - 1; under_way > 0; --under_way) run_.finish_step();
    std::uint64_t step = index + 1;
    std::string culprit = run_.is_divided() ? "" : run_.find_non_finite(*loader.next(), index);
    if (culprit.empty() && !run_.is_divided() && index > 0 && has_delayed_tasks(run_.plan())) {
      // A delayed gradient spoils the loss of the step after its own.
      Loader before = loader_at(index - 1);
      culprit = run_.find_non_finite(*before.next(), index - 1);
      step = culprit.empty() ? step : index;
    }
    fail_user(
        "train: a number is not finite at step {}; first made by {}{}; lower `lr`, set `clip_norm`, or look at the "
        "data",
        step,
        culprit.empty() ? (run_.is_divided() ? "one of the devices" : "a task that does not make it again") : culprit,
        saver_ && saver_->newest() ? fmt::format("; checkpoint {} keeps the last good state", options_.save) : "");
  }

  // What cannot be written is for the next save to try again: no work is lost meanwhile.
  void save(float loss, LoopResult& result) {
    CheckpointState state;
    state.step = run_.steps_done();
    state.epoch = state.step / per_epoch_;
    state.batch = state.step % per_epoch_;
    state.seed = options_.seed;
    state.loss = static_cast<double>(loss);
    state.model = options_.model;
    state.model_settings = options_.model_settings;
    state.settings = options_.training_settings;
    state.settings["parts"] = run_.graph().parts;
    state.tensors = run_.tensors();
    if (!run_.is_first()) return;
    state.network = run_.program().model;
    check_finite(state.tensors, options_.save);
    try {
      saver_->save(state);
      result.not_saved.clear();
    } catch (const UserError& error) {
      result.not_saved =
          fmt::format("`save {}`: step {} is not saved: {}; {}", options_.save, state.step, error.what(),
                      saver_->newest() ? fmt::format("the last good one is of step {}", *saver_->newest())
                                       : "there is none before it");
    }
  }

  void resume() {
    CheckpointState state;
    if (run_.is_first()) {
      state = load_checkpoint(options_.resume);
      check_same_run(all_settings(state), state.step, options_);
    }
    run_.restore(state.tensors, state.step, fmt::format("`resume {}`", options_.resume));
  }

  TrainingRun& run_;
  const LoopOptions& options_;
  TrainingData data_;
  SamplerOptions sampler_;
  LearningRateSchedule rates_;
  std::shared_ptr<CheckpointSaver> saver_;  // of the first process, where there is something to save
  std::uint64_t per_epoch_ = 1, total_ = 0;
};

}  // namespace

void open_saver(LoopOptions& options) { options.saver = made_saver(options); }

void prepare(LoopOptions& options, const SampleForm& form, std::int64_t batch) {
  options.opened = opened_data(options, form);
  const Dataset& data = *options.opened->train;
  options.training_settings[std::string(kDataContent)] =
      fmt::format("{} samples of {}", data.size(), data.facts().content);
  options.model_settings["batch"] = batch;
  options.total = rates_of(options, Sampler(data.size(), sampler_of(options, batch)).batches_per_epoch()).total;
}

nlohmann::json all_settings(const CheckpointState& state) {
  nlohmann::json all = with_own_places(state.settings, state.model, state.model_settings, state.seed);
  if (!all.contains("batch"))
    if (nlohmann::json batch = batch_of(state); !batch.is_null()) all["batch"] = batch;
  return all;
}

nlohmann::json all_settings(const LoopOptions& options) {
  return with_own_places(options.training_settings, options.model, options.model_settings, options.seed);
}

std::vector<std::string> check_same_run(const nlohmann::json& kept, std::uint64_t steps, const LoopOptions& options) {
  std::vector<std::string> lines = compare_with_kept(kept, all_settings(options), options.resume);
  if (options.total != 0 && steps > options.total) fail_too_few_steps(options, steps, options.total);
  return lines;
}

EvalResult evaluate(TrainingRun& run, const Dataset& dataset) {
  const auto shared = std::shared_ptr<const Dataset>(&dataset, [](const Dataset*) {});
  // Labels of samples that only fill up the last batch can be left out of the mean; targets cannot.
  const bool drop_last = dataset.form().label == LabelForm::targets && dataset.size() >= run.batch();
  Loader loader(shared, {.sampler = {.batch = run.batch(), .shuffle = false, .drop_last = drop_last},
                         .augment = {},
                         .end_epoch = 1,
                         .first = run.first_sample(),
                         .count = run.own_samples()});
  EvalResult result;
  double loss = 0, correct = 0, counted = 0;
  while (const HostBatch* batch = loader.next()) {
    const StepResult step = run.evaluate(*batch);
    loss += static_cast<double>(step.loss) * static_cast<double>(step.counted);
    correct += static_cast<double>(step.correct);
    counted += static_cast<double>(step.counted);
    result.samples += std::min(run.batch(), dataset.size() - result.samples);
  }
  result.loss = counted > 0 ? loss / counted : 0;
  if (dataset.form().label != LabelForm::targets && counted > 0) result.accuracy = correct / counted;
  return result;
}

LoopResult run_training(TrainingRun& run, const LoopOptions& options,
                        const std::function<void(const Progress&)>& report,
                        const std::function<bool()>& is_interrupted) {
  return Loop(run, options).run(report, is_interrupted);
}

}  // namespace overtake
