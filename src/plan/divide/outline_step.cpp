#include "plan/divide/outline_step.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {

OutlineProblem::OutlineProblem(const BlockGraph& in_blocks, const PipelineProblem& problem,
                               const PipelineSchedule& in_schedule, const OutlineOptions& in_options)
    : blocks(in_blocks),
      schedule(in_schedule),
      layout(in_schedule.layout),
      options(in_options),
      local(problem.devices),
      micro_batches(problem.micro_batches),
      devices(in_options.kept() * problem.devices) {
  OVERTAKE_CHECK(layout.first_block.back() == blocks.blocks.size(), "a schedule of {} stages for {} blocks",
                 layout.first_block.back(), blocks.blocks.size());
  for (std::uint32_t c = 0; c < layout.chunks(); ++c)
    for (std::uint32_t s = layout.first_block[c]; s < layout.first_block[c + 1]; ++s) chunk_of.push_back(c);
}

OutlineStep::OutlineStep(const OutlineProblem& problem, Outline& out)
    : problem_(problem), in_(problem.blocks), out_(out) {
  const std::size_t buffers = in_.graph.buffers.size();
  writer_.assign(buffers, kNone);
  for (TaskId t = 0; t < in_.graph.tasks.size(); ++t)
    for (const BufferId b : in_.graph.writes(t)) writer_[b] = t;
  is_total_.assign(buffers, 0);
  for (const BlockGraph::Block& block : in_.blocks)
    for (const BufferId b : block.gradients) is_total_[b] = 1;
  for (const BlockGraph::Block& block : in_.blocks) layers_.push_back(graph().add_layer(block.name));
  for (BufferId b = 0; b < buffers; ++b) names_.push_back(graph().intern(in_.graph.buffer_name(b)));
  values_.assign(buffers * problem.options.kept() * problem.micro_batches, kNone);
  copies_.assign(buffers * problem.devices, kNone);
  totals_.resize(buffers * problem.devices);
  graph().model = in_.graph.model;
}

BufferId OutlineStep::add_buffer(BufferId like, std::uint32_t device, Role role, std::int64_t bytes) {
  Buffer b;
  b.name = names_[like];
  b.shape = {bytes};
  b.layout = in_.graph.buffers[like].layout;
  b.dtype = DType::u8;
  b.role = role;
  b.device = static_cast<std::uint16_t>(device);
  graph().buffers.push_back(b);
  out_.buffer_of.push_back(like);
  return static_cast<BufferId>(graph().buffers.size() - 1);
}

BufferId OutlineStep::add_buffer(BufferId like, std::uint32_t device) {
  return add_buffer(like, device, in_.graph.buffers[like].role, in_.graph.bytes(like));
}

TaskId OutlineStep::add_task(Kind kind, Op op, std::uint32_t block, std::uint32_t device, std::uint32_t m,
                             AttrsId attrs, std::span<const BufferId> reads, std::span<const BufferId> writes) {
  const TaskId t = graph().add_task(kind, op, layers_[block], attrs, reads, writes);
  graph().tasks[t].device = static_cast<std::uint16_t>(device);
  graph().tasks[t].micro_batch = m;
  out_.work.emplace_back();
  out_.task_of.push_back(kNone);
  return t;
}

TaskId OutlineStep::add_block(TaskId like, std::uint32_t device, std::uint32_t m, std::span<const BufferId> reads,
                              std::span<const BufferId> writes) {
  const TaskId t = add_task(in_.graph.tasks[like].kind, Op::block, in_.block_of[like], device, m, 0, reads, writes);
  out_.work[t] = in_.work[like];
  out_.task_of[t] = like;
  return t;
}

const OutlineStep::Message& OutlineStep::send(BufferId made, BufferId copy, std::uint32_t m) {
  const BufferId b = out_.buffer_of[made];
  const std::uint32_t from = graph().buffers[made].device, to = graph().buffers[copy].device;
  const BufferId message = add_buffer(b, from, Role::activation, 0);
  const TaskId s = add_task(Kind::send, Op::transfer, maker_of(b), from, m, 0, {&made, 1}, {&message, 1});
  const TaskId v = add_task(Kind::recv, Op::transfer, maker_of(b), to, m, 0, {&message, 1}, {&copy, 1});
  return messages_.emplace_back(Message{s, v, made, from, to});
}

BufferId OutlineStep::operand(BufferId b, std::uint32_t r, std::uint32_t m, std::uint32_t device) {
  return is_persistent(in_.graph.buffers[b].role) ? kept_on(b, r, device) : value_on(b, r, m, device);
}

// A value of a micro-batch where it is made. Inputs are where they are read.
BufferId OutlineStep::value(BufferId b, std::uint32_t r, std::uint32_t m) {
  BufferId& known = values_[(std::size_t{b} * problem_.options.kept() + r) * problem_.micro_batches + m];
  if (known == kNone) {
    const std::uint32_t block = is_made(b) ? maker_of(b) : reader_block(b);
    known = add_buffer(b, problem_.device_of(r, block, m));
  }
  return known;
}

std::uint32_t OutlineStep::reader_block(BufferId b) const {
  for (TaskId t = 0; t < in_.graph.tasks.size(); ++t)
    if (std::ranges::find(in_.graph.reads(t), b) != in_.graph.reads(t).end()) return in_.block_of[t];
  return 0;
}

// The same on a device: itself, or a copy that is sent there once.
BufferId OutlineStep::value_on(BufferId b, std::uint32_t r, std::uint32_t m, std::uint32_t device) {
  const BufferId made = value(b, r, m);
  if (graph().buffers[made].device == device) return made;
  const auto [place, is_new] = received_.try_emplace(std::uint64_t{made} * problem_.devices + device, kNone);
  if (!is_new) return place->second;
  const BufferId copy = add_buffer(b, device);
  place->second = copy;
  if (is_made(b)) send(made, copy, m);  // else an input: the host gives it to whoever reads it
  return copy;
}

// What lives across steps, on a device that updates it; elsewhere (tied weights) a copy that is sent there every
// step.
BufferId OutlineStep::kept_on(BufferId b, std::uint32_t r, std::uint32_t device) {
  BufferId& known = copies_[std::size_t{b} * problem_.devices + device];
  if (known != kNone) return known;
  const std::vector<std::uint32_t> owners = owners_of(b, r);
  if (owners.empty() || std::ranges::find(owners, device) != owners.end()) {
    known = add_buffer(b, device);
    graph().parameters.push_back({.buffer = known, .init = {}});
    return known;
  }
  known = add_buffer(b, device, Role::activation, in_.graph.bytes(b));
  send(kept_on(b, r, owners[0]), known, 0);
  return known;
}

std::vector<std::uint32_t> OutlineStep::owners_of(BufferId b, std::uint32_t r) const {
  std::vector<std::uint32_t> owners;
  if (!is_made(b)) return owners;
  for (const auto& route : problem_.layout.device_of)
    owners.push_back(r * problem_.local + route[problem_.chunk_of[maker_of(b)]]);
  return owners;
}

}  // namespace overtake
