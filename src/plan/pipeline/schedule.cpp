#include "plan/pipeline/schedule.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "plan/pipeline/evaluator.h"

namespace overtake {
namespace {

const char* name_of(Kind kind) {
  return kind == Kind::forward ? "forward" : kind == Kind::input_grad ? "input_grad" : "weight_grad";
}

std::string text_of(const ChunkTask& b) {
  return fmt::format("{} of micro-batch {} in chunk {}", name_of(b.kind), b.micro_batch, b.chunk);
}

void check_costs(const std::vector<BlockCosts>& blocks) {
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    const BlockCosts& c = blocks[s];
    const std::int64_t least = std::min(
        {c.forward_ns, c.input_grad_ns, c.weight_grad_ns, c.activation_bytes, c.gradient_bytes, c.weight_bytes});
    if (least < 0) fail_user("pipeline: stage {} has a cost of {}; give 0 or more", s, least);
  }
}

}  // namespace

BlockCosts& BlockCosts::operator+=(const BlockCosts& other) {
  forward_ns += other.forward_ns;
  input_grad_ns += other.input_grad_ns;
  weight_grad_ns += other.weight_grad_ns;
  activation_bytes += other.activation_bytes;
  gradient_bytes += other.gradient_bytes;
  weight_bytes += other.weight_bytes;
  return *this;
}

void check(const PipelineProblem& problem) {
  if (problem.devices == 0) fail_user("pipeline: 0 devices; give at least 1");
  if (problem.micro_batches == 0) fail_user("pipeline: 0 micro-batches; give at least 1");
  if (problem.blocks.size() < problem.devices)
    fail_user("pipeline: {} stages for {} devices; use at most {} devices", problem.blocks.size(), problem.devices,
              problem.blocks.size());
  if (problem.blocks.size() * 3 * problem.micro_batches > std::numeric_limits<std::int32_t>::max())
    fail_user("pipeline: {} stages times {} micro-batches are too many; use fewer micro-batches", problem.blocks.size(),
              problem.micro_batches);
  OVERTAKE_CHECK(problem.copy_sum_ns.empty() || problem.copy_sum_ns.size() == problem.blocks.size(),
                 "times of sums for {} stages of {}", problem.copy_sum_ns.size(), problem.blocks.size());
  if (problem.transfer_ns < 0) fail_user("pipeline: transfers take {} ns; give 0 or more", problem.transfer_ns);
  check_costs(problem.blocks);
  const auto has_all = [&](const auto& by_device) { return by_device.empty() || by_device.size() == problem.devices; };
  OVERTAKE_CHECK(has_all(problem.kind_of_device) && has_all(problem.memory_caps) && has_all(problem.link_ns),
                 "a kind, a cap and links for each of {} devices, or for none", problem.devices);
  for (const std::uint32_t kind : problem.kind_of_device)
    OVERTAKE_CHECK(kind < problem.blocks_of_kind.size(), "there is no kind {} of devices", kind);
  for (const std::vector<BlockCosts>& blocks : problem.blocks_of_kind) {
    OVERTAKE_CHECK(blocks.size() == problem.blocks.size(), "a kind of devices has costs of {} stages, not of {}",
                   blocks.size(), problem.blocks.size());
    check_costs(blocks);
  }
  for (const std::vector<std::int64_t>& links : problem.link_ns) {
    OVERTAKE_CHECK(links.size() == problem.devices, "a device has {} links", links.size());
    if (const std::int64_t least = std::ranges::min(links); least < 0)
      fail_user("pipeline: transfers take {} ns; give 0 or more", least);
  }
}

PipelineProblem with_sizes(PipelineProblem problem) {
  const auto is_empty = [](const BlockCosts& c) { return c.activation_bytes + c.gradient_bytes == 0; };
  if (problem.has_caps() || !std::ranges::all_of(problem.blocks, is_empty)) return problem;
  for (BlockCosts& c : problem.blocks) c.activation_bytes = c.gradient_bytes = 1;
  for (std::vector<BlockCosts>& blocks : problem.blocks_of_kind)
    for (BlockCosts& c : blocks) c.activation_bytes = c.gradient_bytes = 1;
  return problem;
}

double mean_block_ns(const PipelineProblem& problem) {
  std::int64_t sum = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d)
    for (const BlockCosts& c : problem.blocks_on(d)) sum += c.ns();
  return static_cast<double>(sum) / (3 * static_cast<double>(problem.blocks.size() * problem.devices));
}

std::vector<BlockCosts> chunk_costs(const PipelineProblem& problem, const PipelineLayout& layout) {
  const std::uint32_t chunks = layout.chunks();
  std::vector<BlockCosts> costs(layout.device_of.size() * chunks);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const std::size_t c = i % chunks;
    const std::vector<BlockCosts>& blocks = problem.blocks_on(layout.device_of[i / chunks][c]);
    for (std::uint32_t s = layout.first_block[c]; s < layout.first_block[c + 1]; ++s) costs[i] += blocks[s];
  }
  return costs;
}

PipelineEvaluator::PipelineEvaluator(const PipelineProblem& problem, const PipelineLayout& layout)
    : problem_(&problem),
      layout_(layout),
      costs_(chunk_costs(problem, layout)),
      weights_(problem.devices),
      sums_(problem, layout) {
  for (std::uint32_t c = 0; c < chunks(); ++c) {
    std::vector<std::uint32_t> devices;
    for (std::size_t r = 0; r < layout_.device_of.size(); ++r) {
      const std::uint32_t d = layout_.device_of[r][c];
      if (std::ranges::find(devices, d) != devices.end()) continue;
      devices.push_back(d);
      weights_[d] += costs_[r * chunks() + c].weight_bytes;
    }
  }
}

std::int64_t PipelineEvaluator::ready(const ChunkTask& b) const {
  const auto left = [&](Kind kind, std::uint32_t chunk) {
    const std::int64_t at = left_[block_id(*problem_, kind, chunk, b.micro_batch)];
    if (at == kStuck || chunk == b.chunk) return at;
    return at + problem_->transfer(device(chunk, b.micro_batch), device(b.chunk, b.micro_batch));
  };
  if (b.kind == Kind::forward) return b.chunk == 0 ? 0 : left(Kind::forward, b.chunk - 1);
  if (b.kind == Kind::input_grad) {
    const std::int64_t own = ends_[block_id(*problem_, Kind::forward, b.chunk, b.micro_batch)];
    if (own == kStuck || b.chunk + 1 == chunks()) return own;
    const std::int64_t above = left(Kind::input_grad, b.chunk + 1);
    return above == kStuck ? kStuck : std::max(own, above);
  }
  return ends_[block_id(*problem_, Kind::input_grad, b.chunk, b.micro_batch)];
}

std::int64_t PipelineEvaluator::ready_together(const std::vector<ChunkTask>& order, std::size_t first) const {
  std::int64_t at = 0;
  for (std::size_t i = first;; ++i) {
    const ChunkTask& b = order[i];
    // What comes from within the task needs no waiting for.
    const bool is_inside = b.kind == Kind::weight_grad && i > first && order[i - 1].chunk == b.chunk &&
                           order[i - 1].micro_batch == b.micro_batch;
    if (!is_inside) {
      const std::int64_t own = ready(b);
      if (own == kStuck) return kStuck;
      at = std::max(at, own);
    }
    if (!b.is_joined) return at;
  }
}

void PipelineEvaluator::wake(const ChunkOrders& orders, const ChunkTask& done) {
  if (done.kind == Kind::weight_grad || (done.kind == Kind::input_grad && done.chunk == 0)) return;
  const std::uint32_t next = done.kind == Kind::forward ? done.chunk + 1 : done.chunk - 1;
  if (next == chunks()) return;
  const std::uint32_t d = device(next, done.micro_batch);
  for (std::size_t i = next_[d]; i < orders[d].size(); ++i) {
    const ChunkTask& head = orders[d][i];
    if (head.kind == done.kind && head.chunk == next && head.micro_batch == done.micro_batch) awake_.push_back(d);
    if (!head.is_joined) return;
  }
}

std::int64_t PipelineEvaluator::run(const ChunkOrders& orders) {
  const std::size_t blocks = std::size_t{chunks()} * 3 * problem_->micro_batches;
  ends_.assign(blocks, kStuck);
  left_.assign(blocks, kStuck);
  next_.assign(orders.size(), 0);
  free_at_.assign(orders.size(), 0);
  awake_.clear();
  for (std::uint32_t d = static_cast<std::uint32_t>(orders.size()); d-- > 0;) awake_.push_back(d);
  std::size_t done = 0, wanted = 0;
  for (const std::vector<ChunkTask>& order : orders) wanted += order.size();
  while (!awake_.empty()) {
    const std::uint32_t d = awake_.back();
    awake_.pop_back();
    const std::vector<ChunkTask>& order = orders[d];
    while (next_[d] < order.size()) {
      const std::uint32_t first = next_[d];
      const std::int64_t from = ready_together(order, first);
      if (from == kStuck) break;
      std::int64_t end = std::max(from, free_at_[d]);
      std::uint32_t last = first;
      for (;; ++last) {
        const ChunkTask& b = order[last];
        ends_[block_id(*problem_, b)] = end += costs(b).ns(b.kind);
        if (!b.is_joined) break;
      }
      free_at_[d] = end;
      next_[d] = last + 1;
      done += last + 1 - first;
      for (std::uint32_t i = first; i <= last; ++i) {
        left_[block_id(*problem_, order[i])] = end;
        wake(orders, order[i]);
      }
    }
  }
  if (done != wanted) return kStuck;
  const std::int64_t computed = *std::ranges::max_element(free_at_);
  if (sums_.is_empty()) return computed;
  done_.assign(chunks(), 0);
  for (std::uint32_t c = 0; c < chunks(); ++c)
    for (std::uint32_t m = 0; m < problem_->micro_batches; ++m)
      done_[c] = std::max(done_[c], ends_[block_id(*problem_, Kind::weight_grad, c, m)]);
  const std::int64_t summed = sums_.end(done_);
  last_sum_ = summed > computed ? sums_.waited_for() : kNone;
  return std::max(computed, summed);
}

std::int64_t PipelineEvaluator::peak_activation_bytes(const std::vector<ChunkTask>& order) const {
  std::int64_t live = 0, peak = 0;
  for (const ChunkTask& b : order) {
    const BlockCosts& c = costs(b);
    if (b.kind == Kind::forward) live += c.activation_bytes;
    if (b.kind == Kind::input_grad) live += c.gradient_bytes - c.activation_bytes;
    if (b.kind == Kind::weight_grad) live -= c.gradient_bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

PipelineTimes evaluate(const PipelineProblem& problem, const PipelineSchedule& schedule) {
  check(problem);
  PipelineEvaluator evaluator(problem, schedule.layout);
  PipelineTimes times;
  times.makespan_ns = evaluator.run(schedule.orders);
  times.end_ns = times.start_ns = evaluator.ends();
  times.devices.resize(problem.devices);
  if (times.makespan_ns == PipelineEvaluator::kStuck) {
    times.is_stuck = true;
    for (std::uint32_t d = 0; d < problem.devices; ++d)
      if (const std::uint32_t at = evaluator.ran()[d]; at < schedule.orders[d].size())
        times.why_stuck += fmt::format("{}device {} waits for ever to run {}", times.why_stuck.empty() ? "" : "; ", d,
                                       text_of(schedule.orders[d][at]));
    return times;
  }
  std::int64_t activations = 0;
  for (const BlockCosts& c : problem.blocks) activations += c.activation_bytes;
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    DeviceTimes& device = times.devices[d];
    const std::vector<ChunkTask>& order = schedule.orders[d];
    for (const ChunkTask& b : order) {
      times.start_ns[block_id(problem, b)] = evaluator.start(b);
      device.busy_ns += evaluator.costs(b).ns(b.kind);
    }
    if (!order.empty()) {
      device.start_ns = times.start_ns[block_id(problem, order.front())];
      device.end_ns = times.end_ns[block_id(problem, order.back())];
    }
    times.span_ns = std::max(times.span_ns, device.end_ns - device.start_ns);
    device.bubble_ns = times.makespan_ns - device.busy_ns;
    device.peak_activation_bytes = evaluator.peak_activation_bytes(order);
    device.peak_bytes = device.peak_activation_bytes + evaluator.weight_bytes(d);
    if (activations > 0)
      device.peak_micro_batches =
          static_cast<double>(device.peak_activation_bytes) * problem.devices / static_cast<double>(activations);
  }
  return times;
}

void verify(const PipelineProblem& problem, const PipelineSchedule& schedule) {
  const PipelineLayout& layout = schedule.layout;
  const std::uint32_t m = problem.micro_batches;
  OVERTAKE_CHECK(layout.first_block.size() > 1 && layout.first_block.front() == 0 &&
                     layout.first_block.back() == problem.blocks.size() &&
                     std::ranges::adjacent_find(layout.first_block, std::greater_equal()) == layout.first_block.end(),
                 "{}: chunks do not cover the stages", schedule.name);
  OVERTAKE_CHECK(layout.route_of.empty() || layout.route_of.size() == m, "{}: a route for each micro-batch",
                 schedule.name);
  for (const std::vector<std::uint32_t>& devices : layout.device_of)
    OVERTAKE_CHECK(devices.size() == layout.chunks() && std::ranges::max(devices) < problem.devices,
                   "{}: a device for each chunk", schedule.name);
  for (std::uint32_t b = 0; b < m; ++b)
    OVERTAKE_CHECK(layout.route(b) < layout.device_of.size(), "{}: micro-batch {} has no route", schedule.name, b);
  OVERTAKE_CHECK(schedule.orders.size() == problem.devices, "{}: an order for each device", schedule.name);
  std::vector<std::uint8_t> seen(std::size_t{layout.chunks()} * 3 * m, 0);
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const std::vector<ChunkTask>& order = schedule.orders[d];
    for (std::size_t i = 0; i < order.size(); ++i) {
      const ChunkTask& b = order[i];
      OVERTAKE_CHECK(b.chunk < layout.chunks() && b.micro_batch < m, "{}: there is no {}", schedule.name, text_of(b));
      OVERTAKE_CHECK(layout.device_of[layout.route(b.micro_batch)][b.chunk] == d, "{}: {} is not for device {}",
                     schedule.name, text_of(b), d);
      OVERTAKE_CHECK(seen[block_id(problem, b)]++ == 0, "{}: {} comes twice", schedule.name, text_of(b));
      OVERTAKE_CHECK(!b.is_joined || i + 1 < order.size(), "{}: {} is joined to nothing", schedule.name, text_of(b));
    }
  }
  OVERTAKE_CHECK(std::ranges::find(seen, 0) == seen.end(), "{}: a block is missing", schedule.name);
  const PipelineTimes times = evaluate(problem, schedule);
  OVERTAKE_CHECK(!times.is_stuck, "{}: {}", schedule.name, times.why_stuck);
}

}  // namespace overtake
