// Programs as text for people.

#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"
#include "plan/divide/first_k.h"
#include "plan/program.h"
#include "run/field.h"

namespace overtake {
namespace {

constexpr std::size_t kMostDevices = 16;  // of which memory is shown one by one

std::string ms_text(std::int64_t ns) {
  return ns > 0 ? fmt::format("{:.3f} ms", static_cast<double>(ns) * 1e-6) : std::string("-");
}
std::string bytes_text(std::uint64_t bytes) {
  return bytes > 0 ? format_bytes(static_cast<std::int64_t>(bytes)) : std::string("-");
}

std::string memory_text(const PlanChoice& choice) {
  const std::vector<std::uint64_t>& all = choice.peak_bytes;
  if (all.size() < 2) return "";
  if (std::ranges::adjacent_find(all, std::not_equal_to()) == all.end())
    return fmt::format("memory of each device: {}\n", bytes_text(all[0]));
  if (all.size() > kMostDevices)
    return fmt::format("memory of {} devices: {} to {}\n", all.size(), bytes_text(std::ranges::min(all)),
                       bytes_text(std::ranges::max(all)));
  std::vector<std::string> texts;
  for (const std::uint64_t bytes : all) texts.push_back(bytes_text(bytes));
  return fmt::format("memory by device: {}\n", fmt::join(texts, ", "));
}

// Where each chunk of a pipeline begins and which device has it: "0 on 0, 7 on 1".
std::string layout_text(const PipelineLayout& layout) {
  std::vector<std::string> chunks;
  for (std::uint32_t c = 0; c + 1 < layout.first_block.size(); ++c)
    chunks.push_back(fmt::format("{} on {}", layout.first_block[c], layout.device_of.at(0).at(c)));
  return fmt::format("{}", fmt::join(chunks, ", "));
}

class Difference {
 public:
  Difference(const Program& first, const Program& second) : first_(first), second_(second) {}

  std::string run() {
    for (const Field& field : fields()) {
      const nlohmann::json a = value_of(first_.spec, field), b = value_of(second_.spec, field);
      if (a != b) add(std::string(field.name), a.dump(), b.dump());
    }
    add_if_different("machine", first_.machine.name(), second_.machine.name());
    add_if_different("devices", fmt::format("{}", fmt::join(first_.devices, ",")),
                     fmt::format("{}", fmt::join(second_.devices, ",")));
    add_graphs("network", first_.model, second_.model);
    add_graphs("step", first_.step, second_.step);
    if (!first_.choices.empty() && !second_.choices.empty()) add_choices(first_.choice(), second_.choice());
    add_if_different("reason", first_.reason, second_.reason);
    if (save_json(first_.machine) != save_json(second_.machine) && first_.machine.name() == second_.machine.name())
      text_ += fmt::format("machine: two of the name {}, described or measured differently\n", first_.machine.name());
    if (first_.costs != second_.costs) text_ += "costs: tasks take other times\n";
    if (text_.empty() && save_json(first_) != save_json(second_)) text_ = "choices that were not taken differ\n";
    return text_;
  }

 private:
  void add(const std::string& what, const std::string& a, const std::string& b) {
    text_ += fmt::format("{}: {} | {}\n", what, a, b);
  }
  void add_if_different(const std::string& what, const std::string& a, const std::string& b) {
    if (a != b) add(what, a.empty() ? "none" : a, b.empty() ? "none" : b);
  }
  void add_graphs(const std::string& what, const Graph& a, const Graph& b) {
    if (save_json(a) != save_json(b))
      add(what, fmt::format("{} tasks", a.tasks.size()), fmt::format("{} other tasks", b.tasks.size()));
  }

  void add_choices(const PlanChoice& a, const PlanChoice& b) {
    add_if_different("plan", a.name, b.name);
    add_if_different("predicted", ms_text(a.predicted_ns), ms_text(b.predicted_ns));
    add_if_different("measured", ms_text(a.measured_ns), ms_text(b.measured_ns));
    add_if_different("memory", bytes_text(a.most_bytes()), bytes_text(b.most_bytes()));
    add_if_different("reduce", a.reduce, b.reduce);
    add_if_different("first_k", to_string(a.first_k), to_string(b.first_k));
    add_if_different("blocks", layout_text(a.schedule.layout), layout_text(b.schedule.layout));
    std::vector<std::size_t> devices;
    for (std::size_t d = 0; d < std::min(a.schedule.orders.size(), b.schedule.orders.size()); ++d)
      if (a.schedule.orders[d] != b.schedule.orders[d]) devices.push_back(d);
    if (!devices.empty()) text_ += fmt::format("another order on devices {}\n", fmt::join(devices, ", "));
    if (a.side != b.side)
      add("weight gradients on side lanes", std::to_string(a.side.tasks.size()), std::to_string(b.side.tasks.size()));
    if (a.order != b.order)
      add("order of tasks", fmt::format("{} lanes", a.order.lanes.size()),
          fmt::format("{} lanes", b.order.lanes.size()));
  }

  const Program &first_, &second_;
  std::string text_;
};

}  // namespace

std::string table_of_choices(const Program& program) {
  std::string text = fmt::format("{:<36} {:>14} {:>14} {:>12}", "plan", "predicted", "measured", "memory");
  for (std::size_t i = 0; i < program.choices.size(); ++i) {
    const PlanChoice& c = program.choices[i];
    text += fmt::format("\n{:<36} {:>14} {:>14} {:>12}{}{}", c.name, ms_text(c.predicted_ns), ms_text(c.measured_ns),
                        bytes_text(c.most_bytes()), i == program.chosen ? "  chosen" : "", c.fits ? "" : "  too large");
  }
  return text;
}

std::string print(const Program& program) {
  const RunSpec& spec = program.spec;
  return fmt::format("{}: {} tasks, {} x {} devices (data x pipeline) of {}, {} micro-batch{}\n{}\n{}{}{}", spec.model,
                     program.step.tasks.size(), spec.replicas, spec.stages, program.machine.name(), spec.micro_batches,
                     spec.micro_batches == 1 ? "" : "es", table_of_choices(program),
                     program.choices.empty() ? "" : memory_text(program.choice()), program.reason,
                     program.reason.empty() ? "" : "\n");
}

std::string difference(const Program& first, const Program& second) { return Difference(first, second).run(); }

}  // namespace overtake
