#include "train/installed.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "ops/check_task.h"
#include "plan/detail_of.h"
#include "plan/divide/workload.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "train/own_part.h"

namespace overtake {
namespace {

constexpr std::int32_t kIgnored = -100;  // a label that does not count

}  // namespace

Installed::Installed(Program program, const Workplace& place, std::optional<std::uint64_t> memory_cap,
                     const Installed* before)
    : program_(std::move(program)) {
  Detail whole = detail_of(program_);
  if (place.devices.device_groups)
    connect_devices(whole, place.rank(), place.make_device_group, *place.devices.device_groups);
  const bool is_divided = program_.has_several_devices();
  const Detail mine = is_divided ? own_part(whole, place.devices) : whole;
  Plan train = place_memory(mine.plan, memory_cap);
  Plan evaluate = place_memory(is_divided ? forward_part(mine.plan) : schedule_forward(mine.plan.graph));
  for (const Plan* p : {&train, &evaluate}) {
    verify(*p);
    check_tasks(p->graph);
  }
  shares_memory_ = before != nullptr && have_same_persistent_layout(train, before->plan());
  executor_ = place.backend->make_executor({std::move(train), std::move(evaluate)},
                                           shares_memory_ ? before->parameters().memory() : nullptr);
  parameters_ = std::make_unique<ParameterStore>(program_.step, whole, mine, *executor_, place.groups());
  find_samples(mine, place);
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

void Installed::write_inputs(const std::vector<NamedInput>& inputs, std::int64_t samples) {
  for (const Detail::Input& input : inputs_) {
    const std::string& name = graph().buffer_name(input.buffer);
    const auto given = std::ranges::find(inputs, name, &NamedInput::name);
    if (given == inputs.end())
      fail_user("input {}: model {} needs it, and it is not among those given; give it by that name", name,
                graph().model);
    write_input(input, given->bytes, samples);
  }
}

void Installed::write_input(const Detail::Input& input, std::span<const std::byte> bytes, std::int64_t samples) {
  const Buffer& buffer = graph().buffers[input.buffer];
  const auto to = executor_->bytes(input.buffer);
  const std::size_t each = bytes.size() / static_cast<std::size_t>(own_samples_);  // of a sample
  if (each * static_cast<std::size_t>(own_samples_) != bytes.size() ||
      each * static_cast<std::size_t>(buffer.shape[0]) != to.size())
    fail_user("input {}: {} bytes are given for {} samples, and the model takes {} for each; give {} values of type {}",
              graph().buffer_name(input.buffer), bytes.size(), own_samples_,
              to.size() / static_cast<std::size_t>(buffer.shape[0]), to_string(buffer.shape), to_string(buffer.dtype));
  // Of all samples, of which this process was given its own.
  const std::int64_t index = std::int64_t{input.replica} * program_.spec.micro_batches + input.micro_batch;
  const std::int64_t first = index * of_a_micro_batch_ - first_sample_;
  std::memcpy(to.data(), bytes.data() + static_cast<std::size_t>(first) * each, to.size());
  if (graph().buffer_name(input.buffer) != "labels") return;
  const auto per_sample = static_cast<std::int64_t>(each / sizeof(std::int32_t));
  auto* labels = reinterpret_cast<std::int32_t*>(to.data());
  std::fill(labels + std::clamp<std::int64_t>(samples - first, 0, buffer.shape[0]) * per_sample,
            labels + buffer.shape[0] * per_sample, kIgnored);
}

}  // namespace overtake
