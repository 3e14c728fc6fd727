#include "train/installed.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "exec/plain_values.h"
#include "plan/detail_of.h"
#include "plan/divide/workload.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "train/data.h"
#include "train/own_part.h"

namespace overtake {
namespace {

std::string shape_of_a_sample(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.span().subspan(1), ", "));
}

}  // namespace

Installed::Installed(Program program, const Workplace& place, std::optional<std::uint64_t> memory_cap,
                     const Installed* before)
    : program_(std::move(program)) {
  PassRunner runner;
  Detail whole = detail_of(program_, runner);
  if (place.devices.device_groups) {
    whole = runner.run(Pass<Detail>{"turns", with_checked_turns}, std::move(whole));
    channels_ = channels_of(whole.plan);
  }
  const bool is_divided = program_.has_several_devices();
  const auto own = [&](const Detail& of) { return is_divided ? own_part(of, place.devices) : of; };
  const Detail mine = runner.run(Pass<Detail>{"own_part", own}, whole);
  const auto forward = [&](Plan p) { return is_divided ? forward_part(std::move(p)) : schedule_forward(p.graph); };
  const auto in_memory = [&](Plan p) { return place_memory(std::move(p), memory_cap); };
  const auto evaluating = [](Plan p) { return place_memory(std::move(p)); };
  Plan train = runner.run(Pass<Plan>{"memory", in_memory}, mine.plan);
  Plan evaluate = runner.run(Pass<Plan>{"forward", forward}, mine.plan);
  evaluate = runner.run(Pass<Plan>{"memory", evaluating}, std::move(evaluate));
  passes_ = runner.records();
  // Connecting writes to what GPUs of several ranks have in memory, so theirs is not taken over.
  shares_memory_ =
      before != nullptr && !place.devices.device_groups && have_same_persistent_layout(train, before->plan());
  executor_ = place.backend->make_executor({std::move(train), std::move(evaluate)},
                                           shares_memory_ ? before->parameters().memory() : nullptr);
  parameters_ = std::make_unique<ParameterStore>(program_.step, whole, mine, *executor_, place.groups());
  find_samples(mine, place);
}

void Installed::connect(const Workplace& place) {
  if (place.devices.device_groups)
    connect_channels(channels_, place.rank(), place.make_device_group, *place.devices.device_groups);
  executor_->connect();
}

void Installed::find_samples(const Detail& mine, const Workplace& place) {
  const RunSpec& spec = program_.spec;
  of_a_micro_batch_ = samples_of(program_.step);
  const std::int64_t of_a_replica = of_a_micro_batch_ * spec.micro_batches;
  batch_ = own_samples_ = of_a_replica * spec.replicas;
  if (place.groups() != nullptr) {
    own_samples_ = of_a_replica;
    first_sample_ = of_a_replica * (place.rank() / static_cast<std::int64_t>(spec.stages));
  }
  inputs_ = mine.inputs;
  for (const Detail::Loss& loss : mine.losses) counts_rows_.push_back(loss.index == 0);
  counts_rows_.resize(mine.plan.graph.losses.size(), 0);
}

void Installed::write_inputs(const std::vector<Input>& inputs, std::int64_t samples) {
  check_inputs(inputs);
  for (const Detail::Input& to : inputs_) {
    const auto from = std::ranges::find(inputs, graph().buffer_name(to.buffer), &Input::name);
    write_input(to, *from, samples);
  }
}

// Against the model's own inputs: those of a process may be fewer.
void Installed::check_inputs(const std::vector<Input>& inputs) const {
  const Graph& model = program_.model;
  std::vector<std::string> names;
  for (BufferId b = 0; b < model.buffers.size(); ++b) {
    if (model.buffers[b].role != Role::input) continue;
    const std::string& name = names.emplace_back(model.buffer_name(b));
    const auto given = std::ranges::find(inputs, name, &Input::name);
    if (given == inputs.end())
      fail_user("`input {}`: model {} needs it, and it is not among those given; give it by that name", name,
                model.model);
    const Shape& shape = model.buffers[b].shape;
    const std::int64_t values = own_samples_ * (shape.elements() / shape[0]);
    const DType type = model.buffers[b].dtype;
    if (given->type != type || std::ssize(given->bytes) != values * bytes_of(type))
      fail_user(
          "`input {}`: {} values of type {} are given, and the model takes {} of type {}: {} samples of {}; give as "
          "many of that type",
          name, std::ssize(given->bytes) / bytes_of(given->type), to_string(given->type), values, to_string(type),
          own_samples_, shape_of_a_sample(shape));
  }
  for (const Input& input : inputs)
    if (std::ranges::find(names, input.name) == names.end())
      fail_user("`input {}`: model {} has none of that name; give its inputs {}", input.name, model.model,
                fmt::join(names, ", "));
}

void Installed::write_input(const Detail::Input& to, const Input& from, std::int64_t samples) {
  const Buffer& buffer = graph().buffers[to.buffer];
  const std::span<std::byte> memory = executor_->bytes(to.buffer);
  // Of all samples, of which this process was given its own.
  const std::int64_t index = std::int64_t{to.replica} * program_.spec.micro_batches + to.micro_batch;
  const std::int64_t first = index * of_a_micro_batch_ - first_sample_;
  const std::size_t each = from.bytes.size() / static_cast<std::size_t>(own_samples_);  // of a sample
  const auto mine =
      from.bytes.subspan(static_cast<std::size_t>(first) * each, static_cast<std::size_t>(buffer.shape[0]) * each);
  if (from.is_channels_last) {
    OVERTAKE_CHECK(mine.size() == memory.size(), "input {} lies in {} bytes", from.name, memory.size());
    std::ranges::copy(mine, memory.begin());
  } else {
    from_plain(buffer, mine, memory);
  }
  if (from.name != "labels") return;
  const auto per_sample = static_cast<std::int64_t>(each / sizeof(std::int32_t));
  auto* labels = reinterpret_cast<std::int32_t*>(memory.data());
  std::fill(labels + std::clamp<std::int64_t>(samples - first, 0, buffer.shape[0]) * per_sample,
            labels + buffer.shape[0] * per_sample, kNotCounted);
}

}  // namespace overtake
