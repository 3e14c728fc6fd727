#include "plan/pipeline/named.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/nearest_word.h"
#include "plan/pipeline/cut.h"
#include "plan/pipeline/device_order.h"
#include "plan/pipeline/evaluator.h"
#include "plan/pipeline/list_schedule.h"

namespace overtake {
namespace {

// One order per device, written by fill(device, its order).
PipelineSchedule written(const PipelineProblem& problem, PipelineLayout layout, auto fill) {
  PipelineSchedule schedule{.name = {}, .layout = std::move(layout), .orders = {}};
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    DeviceOrder order(problem.micro_batches);
    fill(d, order);
    schedule.orders.push_back(order.take());
  }
  return schedule;
}

void need_stages(const PipelineProblem& problem, std::string_view name, std::uint32_t per_device) {
  if (problem.blocks.size() / per_device < problem.devices)
    fail_user(
        "pipeline: {} needs {} stages for {} devices, there are {}; cut the model finer (`blocks`), or use "
        "fewer devices",
        name, std::uint64_t{per_device} * problem.devices, problem.devices, problem.blocks.size());
}

// All forwards, then all backwards (arXiv 1811.06965).
PipelineSchedule gpipe(const PipelineProblem& problem, const ScheduleOptions&) {
  return written(problem, contiguous_layout(problem), [&](std::uint32_t d, DeviceOrder& order) {
    order.add_slot(d);
    for (std::uint32_t b = 0; b < problem.micro_batches; ++b) order.forward(0);
    for (std::uint32_t b = 0; b < problem.micro_batches; ++b) order.backward(0);
  });
}

// Forwards until the first gradient is there, then one backward and one forward in turn.
PipelineSchedule one_f_one_b(const PipelineProblem& problem, const ScheduleOptions&) {
  return written(problem, contiguous_layout(problem), [&](std::uint32_t d, DeviceOrder& order) {
    order.add_slot(d);
    for (std::uint32_t b = d + 1; b < problem.devices; ++b) order.forward(0);
    for (std::uint32_t b = 0; b < problem.micro_batches; ++b) {
      order.forward(0);
      order.backward(0);
    }
  });
}

// 1F1B over v chunks per device (arXiv 2104.04473): groups of as many micro-batches as devices pass one chunk after the
// other. The last group may have fewer: it goes as if it were full, with the others left out.
PipelineSchedule interleaved(const PipelineProblem& problem, const ScheduleOptions& options) {
  const std::uint32_t p = problem.devices, v = options.chunks;
  if (v < 2) fail_user("pipeline: interleaved with {} chunks per device; give 2 or more, or use 1f1b", v);
  need_stages(problem, "interleaved", v);
  return written(problem, interleaved_layout(problem, v), [&](std::uint32_t d, DeviceOrder& order) {
    for (std::uint32_t c = 0; c < v; ++c) order.add_slot(c * p + d);
    const std::uint32_t all = (problem.micro_batches + p - 1) / p * p * v;
    const std::uint32_t ahead = std::min(all, 2 * (p - 1 - d) + (v - 1) * p);
    for (std::uint32_t i = 0; i < all + ahead; ++i) {
      if (i < all) order.forward(i / p % v);
      if (i >= ahead) order.backward(v - 1 - (i - ahead) / p % v);
    }
  });
}

// 1F1B with weight gradients put off, on device d those of `lag(d)` micro-batches, after `ahead(d)` forwards.
PipelineSchedule zero_bubble(const PipelineProblem& problem, auto ahead, auto lag) {
  return written(problem, contiguous_layout(problem), [&](std::uint32_t d, DeviceOrder& order) {
    order.add_slot(d);
    for (std::uint32_t b = 0; b < ahead(d); ++b) order.forward(0);
    for (std::uint32_t b = 0; b < problem.micro_batches; ++b) {
      order.forward(0);
      order.input_grad(0);
      if (b >= lag(d)) order.weight_grad();
    }
    order.all_weight_grads();
  });
}

// Handcrafted schedules of Zero Bubble (arXiv 2401.10241): as many micro-batches under way on every device, counting
// those whose weight gradient is to come: p of them here,
PipelineSchedule zb_h1(const PipelineProblem& problem, const ScheduleOptions&) {
  const std::uint32_t p = problem.devices;
  return zero_bubble(
      problem, [=](std::uint32_t d) { return p - 1 - d; }, [](std::uint32_t d) { return d; });
}

// and 2p - 1 here.
PipelineSchedule zb_h2(const PipelineProblem& problem, const ScheduleOptions&) {
  const std::uint32_t p = problem.devices;
  return zero_bubble(
      problem, [=](std::uint32_t d) { return 2 * (p - 1 - d); }, [](std::uint32_t d) { return 2 * d; });
}

// Two chunks per device in a V: the first device starts a micro-batch and has its loss (arXiv 2405.15362). For at least
// 2p micro-batches; with fewer, others are left out.
PipelineSchedule zb_v(const PipelineProblem& problem, const ScheduleOptions&) {
  need_stages(problem, "zb-v", 2);
  const std::uint32_t p = problem.devices, m = std::max(problem.micro_batches, 2 * p);
  return written(problem, v_layout(problem), [&](std::uint32_t d, DeviceOrder& order) {
    constexpr std::uint32_t kDown = 0, kUp = 1;
    order.add_slot(d);
    order.add_slot(2 * p - 1 - d);
    std::uint32_t down = 2 * (p - d) - 1, up = 0;  // forwards so far
    for (std::uint32_t i = 0; i < down; ++i) order.forward(kDown);
    for (std::uint32_t i = 0; i < d; ++i, ++up, ++down) {
      order.forward(kUp);
      order.forward(kDown);
    }
    for (std::uint32_t i = d; i < p; ++i, ++up) {
      order.forward(kUp);
      order.parted_backward(kUp);
    }
    for (; up < m; ++up, ++down) {
      if (down < m) order.forward(kDown);
      order.parted_backward(kDown);
      order.forward(kUp);
      order.parted_backward(kUp);
    }
    for (std::uint32_t i = 0; i < d; ++i) {
      order.input_grad(kDown);
      order.input_grad(kUp);
    }
    for (std::uint32_t i = d; i < p; ++i) {
      order.input_grad(kDown);
      order.weight_grad();
    }
    order.all_weight_grads();
  });
}

// DualPipe's order of one device (DeepSeek-V3's report, arXiv 2412.19437, and the phases its repository names), of
// `half` devices from an end to the middle, the device `near` such an end; slot 0 starts at the end, slot 1 comes back
// to it; n micro-batches pass each.
void fill_dualpipe(DeviceOrder& order, std::uint32_t half, std::uint32_t near, std::uint32_t n) {
  const std::uint32_t far = half - near - 1;
  for (std::uint32_t i = 0; i < 2 * far; ++i) order.forward(0);
  for (std::uint32_t i = 0; i <= near; ++i) {
    order.forward(0);
    order.forward(1);
  }
  for (std::uint32_t i = 0; i < far; ++i) {
    order.input_grad(1);
    order.weight_grad();
    order.forward(1);
  }
  for (std::uint32_t i = 0; i < n + near + 1 - 2 * half; ++i) {
    order.forward_and_backward(0, 1);
    order.forward_and_backward(1, 0);
  }
  for (std::uint32_t i = 0; i < far; ++i) {
    order.backward(1);
    order.forward_and_backward(1, 0);
  }
  // From the middle on weight gradients are put off, to fill what is left of the step.
  for (std::uint32_t i = 0; i < 2 * (near + 1); ++i) {
    if (i <= near)
      order.backward(1 - i % 2);
    else
      order.input_grad(1 - i % 2);
  }
  for (std::uint32_t i = 0; i < far; ++i) {
    order.weight_grad();
    order.input_grad(0);
  }
  order.all_weight_grads();
}

// Two pipelines in opposite directions on the same devices: each has two chunks' weights.
PipelineSchedule dualpipe(const PipelineProblem& problem, const ScheduleOptions&) {
  const std::uint32_t p = problem.devices, m = problem.micro_batches;
  if (p % 2 != 0) fail_user("pipeline: dualpipe on {} devices; use an even number, or dualpipe-v", p);
  if (m < 2 * p) fail_user("pipeline: dualpipe with {} micro-batches on {} devices; give at least {}", m, p, 2 * p);
  return written(problem, two_way_layout(problem), [&](std::uint32_t d, DeviceOrder& order) {
    const std::uint32_t mirror = p - 1 - d, near = std::min(d, mirror);
    const std::uint32_t here = d == near ? 0 : 1;  // the direction that starts at this end
    order.add_slot(near, here, 2);
    order.add_slot(p - 1 - near, 1 - here, 2);
    fill_dualpipe(order, p / 2, near, (m + 1) / 2);
  });
}

// DualPipe cut in half: one direction, down and up again over half as many devices.
PipelineSchedule dualpipe_v(const PipelineProblem& problem, const ScheduleOptions&) {
  const std::uint32_t p = problem.devices, m = problem.micro_batches;
  need_stages(problem, "dualpipe-v", 2);
  if (m < 2 * p) fail_user("pipeline: dualpipe-v with {} micro-batches on {} devices; give at least {}", m, p, 2 * p);
  return written(problem, v_layout(problem), [&](std::uint32_t d, DeviceOrder& order) {
    order.add_slot(d);
    order.add_slot(2 * p - 1 - d);
    fill_dualpipe(order, p, d, m);
  });
}

// Whatever is ready, input gradients before forwards before weight gradients; of forwards the deepest first. No more
// micro-batches under way, weight gradients and all, than devices, or than the cap allows. A weight gradient fills a
// wait also if what is waited for comes before it is done, or only if not: whichever makes the step shorter.
PipelineSchedule fast_forwarded(const PipelineProblem& given, PipelineLayout layout) {
  const PipelineProblem problem = with_sizes(given);
  PipelineSchedule schedule{.name = {}, .layout = std::move(layout), .orders = {}};
  ListScheduler scheduler(problem, schedule.layout);
  const PipelineEvaluator evaluator(problem, schedule.layout);
  ListRule rule;
  for (std::uint32_t c = 0; c < schedule.layout.chunks(); ++c) {
    const double depth = static_cast<double>(c) / schedule.layout.chunks();
    rule.rank.insert(rule.rank.end(), {2 - depth, 0 + depth, 4 - depth});
  }
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const std::int64_t least = scheduler.least_cap(d);
    const std::int64_t most = least * problem.devices;
    rule.caps.push_back(std::clamp(problem.cap(d) - evaluator.weight_bytes(d), least, most));
  }
  const std::int64_t ns = scheduler.run(rule, schedule.orders);
  rule.patience = 1;
  ChunkOrders patient;
  if (scheduler.run(rule, patient) < ns) schedule.orders = std::move(patient);
  return schedule;
}

// Gradient fast-forwarding (arXiv 2110.00929): input gradients are sent as soon as they can be, weight gradients fill
// the waits, most of all on the last device, which puts off as many as it can keep. Where that would be slower than
// 1F1B's order with gradients parted, it is that.
PipelineSchedule fast_forward(const PipelineProblem& problem, const ScheduleOptions&) {
  PipelineSchedule filled = fast_forwarded(problem, contiguous_layout(problem));
  PipelineSchedule plain = zero_bubble(
      problem, [&](std::uint32_t d) { return problem.devices - 1 - d; }, [](std::uint32_t) { return 0u; });
  PipelineEvaluator evaluator(problem, plain.layout);
  for (std::uint32_t d = 0; problem.has_caps() && d < problem.devices; ++d)
    if (evaluator.peak_activation_bytes(plain.orders[d]) + evaluator.weight_bytes(d) > problem.cap(d)) return filled;
  return evaluator.run(plain.orders) < evaluator.run(filled.orders) ? plain : filled;
}

// The same on modulo allocation.
PipelineSchedule modulo(const PipelineProblem& problem, const ScheduleOptions& options) {
  if (options.group == 0) fail_user("pipeline: modulo with groups of 0 stages; give at least 1");
  need_stages(problem, "modulo", options.group);
  return fast_forwarded(problem, modulo_layout(problem, options.group));
}

constexpr std::array kSchedules{
    NamedSchedule{"gpipe", "all forwards, then all backwards", gpipe},
    NamedSchedule{"1f1b", "a backward and a forward in turn: at most as many micro-batches under way as devices",
                  one_f_one_b},
    NamedSchedule{"interleaved", "1f1b with several chunks of the model on every device", interleaved},
    NamedSchedule{"zb-h1", "1f1b with weight gradients put off, in the memory of 1f1b", zb_h1},
    NamedSchedule{"zb-h2", "more forwards ahead and weight gradients put off, in twice the memory", zb_h2, true},
    NamedSchedule{"zb-v", "two chunks per device, down and up again, weight gradients parted, in the memory of 1f1b",
                  zb_v, true},
    NamedSchedule{"dualpipe", "two pipelines in opposite directions, weights twice", dualpipe},
    NamedSchedule{"dualpipe-v", "dualpipe cut in half: two chunks per device, down and up again", dualpipe_v},
    NamedSchedule{"fast-forward", "ours: input gradients are sent at once, weight gradients fill the waits",
                  fast_forward},
    NamedSchedule{"modulo", "ours: fast-forward with stages dealt out to devices in turn", modulo},
};

}  // namespace

std::span<const NamedSchedule> named_schedules() { return kSchedules; }

PipelineSchedule make_schedule(std::string_view name, const PipelineProblem& problem, const ScheduleOptions& options) {
  check(problem);
  const auto found = std::ranges::find(kSchedules, name, &NamedSchedule::name);
  if (found == kSchedules.end()) {
    std::string names;
    for (const NamedSchedule& s : kSchedules) names += fmt::format("{}{}", names.empty() ? "" : ", ", s.name);
    fail_user("`pipeline {}`: no schedule is called so; use one of {}, or search{}", name, names,
              did_you_mean(name, kSchedules, [](const NamedSchedule& s) { return s.name; }));
  }
  PipelineSchedule schedule = found->make(problem, options);
  schedule.name = name;
  return schedule;
}

}  // namespace overtake
