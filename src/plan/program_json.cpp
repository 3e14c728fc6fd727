// Plan files: a program as JSON.

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "ops/check_task.h"
#include "overtake/version.h"
#include "plan/detail_of.h"
#include "plan/program.h"
#include "run/field.h"

namespace overtake {

using nlohmann::json;

OVERTAKE_JSON_STRUCT(ChunkTask, kind, is_joined, chunk, micro_batch)
OVERTAKE_JSON_STRUCT(PipelineLayout, first_block, device_of, route_of)
OVERTAKE_JSON_STRUCT(PipelineSchedule, name, layout, orders)
OVERTAKE_JSON_STRUCT(Lane, device, tasks, is_asynchronous)
OVERTAKE_JSON_STRUCT(Wait, before, after)
OVERTAKE_JSON_STRUCT(Join, first, second)
OVERTAKE_JSON_STRUCT(SideWork, tasks, waits)
OVERTAKE_JSON_STRUCT(TaskOrder, schedule, lanes, waits, joins, delayed)

namespace {

constexpr int kFormat = 1;
constexpr std::string_view kKind = "overtake-plan";

// [ns, compute_ns, memory_ns, load, joint_ns, beside_ns]
json to_json(const TaskCost& c) { return {c.ns, c.compute_ns, c.memory_ns, c.load, c.joint_ns, c.beside_ns}; }
TaskCost cost_from(const json& row) {
  return {.ns = checked<std::int64_t>(row.at(0)),
          .compute_ns = checked<std::int64_t>(row.at(1)),
          .memory_ns = checked<std::int64_t>(row.at(2)),
          .load = row.at(3).get<double>(),
          .beside_ns = checked<std::int64_t>(row.at(5)),
          .joint_ns = checked<std::int64_t>(row.at(4))};
}

json json_of_costs(const Program& p) {
  json all = json::array();
  for (const std::vector<TaskCost>& kind : p.costs) {
    json rows = json::array();
    for (const TaskCost& c : kind) rows.push_back(to_json(c));
    all.push_back(std::move(rows));
  }
  return all;
}
std::vector<std::vector<TaskCost>> costs_from(const json& in) {
  std::vector<std::vector<TaskCost>> all;
  for (const json& kind : in) {
    all.emplace_back();
    for (const json& row : kind) all.back().push_back(cost_from(row));
  }
  return all;
}

json to_json(const PlanChoice& c, bool is_chosen) {
  json out = {{"name", c.name},
              {"predicted_ns", c.predicted_ns},
              {"measured_ns", c.measured_ns},
              {"peak_bytes", c.peak_bytes},
              {"fits", c.fits},
              {"won_rounds", c.won_rounds},
              {"reason", c.reason}};
  if (!is_chosen) return out;
  out["schedule"] = c.schedule;
  out["reduce"] = c.reduce;
  out["first_k"] = to_string(c.first_k);
  out["side"] = c.side;
  out["order"] = c.order;
  return out;
}

PlanChoice choice_from(const json& in) {
  PlanChoice c{.name = in.at("name").get<std::string>(),
               .predicted_ns = checked<std::int64_t>(in.at("predicted_ns")),
               .measured_ns = checked<std::int64_t>(in.at("measured_ns")),
               .peak_bytes = checked<std::vector<std::uint64_t>>(in.at("peak_bytes")),
               .fits = in.at("fits").get<bool>(),
               .won_rounds = checked<int>(in.at("won_rounds")),
               .reason = in.at("reason").get<std::string>()};
  if (!in.contains("schedule")) return c;
  c.schedule = checked<PipelineSchedule>(in.at("schedule"));
  c.reduce = in.at("reduce").get<std::string>();
  c.first_k = first_k_from_string(in.at("first_k").get<std::string>());
  c.side = checked<SideWork>(in.at("side"));
  c.order = checked<TaskOrder>(in.at("order"));
  return c;
}

// The step's constants are the model's, not copies of them: fingerprints tell constants apart by where they lie.
void share_constants(const Graph& model, Graph& step) {
  for (Constant& mine : step.constants)
    for (const Constant& c : model.constants)
      if (*c.bytes == *mine.bytes) mine.bytes = c.bytes;
}

Program program_from(const json& in) {
  Program p;
  p.spec = spec_from_json(in.at("spec"));
  p.machine = load_machine_json(in.at("machine").dump());
  p.devices = checked<std::vector<std::uint32_t>>(in.at("devices"));
  p.model = load_graph_json(in.at("model").dump());
  p.step = load_graph_json(in.at("step").dump());
  share_constants(p.model, p.step);
  p.costs = costs_from(in.at("costs"));
  for (const json& choice : in.at("choices")) p.choices.push_back(choice_from(choice));
  p.chosen = checked<std::size_t>(in.at("chosen"));
  p.reason = in.at("reason").get<std::string>();
  return p;
}

// What dividing a step, block by block, needs.
void verify_outline(const Program& p) {
  for (const KindCount& k : kinds_of(p.machine, p.devices))
    OVERTAKE_CHECK(k.kind < p.costs.size() && p.costs[k.kind].size() == p.step.tasks.size(),
                   "it does not say what tasks take on devices of kind {}", k.kind);
  OVERTAKE_CHECK(!p.choice().schedule.orders.empty(), "it does not say in which order devices work");
  const OutlinePlanner planner(p);
  verify(planner->problem(), p.choice().schedule);
  verify(planner->outline(p.choice()).plan);
}

}  // namespace

std::string save_choices(const Program& p) {
  json out = {{"chosen", p.chosen}, {"reason", p.reason}, {"costs", json_of_costs(p)}};
  for (const PlanChoice& c : p.choices) out["choices"].push_back(to_json(c, true));
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

void take_choices(Program& p, std::string_view text) {
  const json in = parse_json(text);
  p.chosen = checked<std::size_t>(in.at("chosen"));
  p.reason = in.at("reason").get<std::string>();
  p.costs = costs_from(in.at("costs"));
  p.choices.clear();
  for (const json& choice : in.at("choices")) p.choices.push_back(choice_from(choice));
}

Fingerprint fingerprint(const Program& p) {
  Fingerprint print = fingerprint(p.step);
  Hash64 hash(print.hash);
  for (const PlanChoice& c : p.choices) hash.add(to_json(c, true).dump());
  for (const std::vector<TaskCost>& kind : p.costs)
    for (const TaskCost& c : kind) hash.add(to_json(c).dump());
  hash.add(fmt::format("{} {}", p.chosen, p.reason));
  print.hash = hash.value();
  return print;
}

std::string save_json(const Program& p) {
  json out = {{"kind", kKind},
              {"format", kFormat},
              {"version", std::string(version())},
              {"spec", json_of(p.spec)},
              {"machine", parse_json(save_json(p.machine))},
              {"devices", p.devices},
              {"chosen", p.chosen},
              {"reason", p.reason},
              {"model", parse_json(save_json(p.model))},
              {"step", parse_json(save_json(p.step))}};
  out["costs"] = json_of_costs(p);
  json& choices = out["choices"] = json::array();
  for (std::size_t i = 0; i < p.choices.size(); ++i) choices.push_back(to_json(p.choices[i], i == p.chosen));
  return out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Program load_program_json(std::string_view text, const std::string& where) {
  const json in = parse_json_or_discard(text);
  if (in.is_discarded()) fail_user("{}: it is damaged: it is not JSON; write it again with `overtake plan`", where);
  if (!in.is_object() || in.value("kind", json()) != kKind)
    fail_user("{}: it is no plan of Overtake's; write one with `overtake plan MODEL -o FILE`", where);
  if (in.value("format", json()) != kFormat || in.value("version", json()) != version())
    fail_user("{}: it was written by Overtake {}, and this is {}; write it again with `overtake plan`", where,
              in.value("version", json()).dump(), version());
  try {
    Program program = program_from(in);
    OVERTAKE_CHECK(!program.choices.empty(), "it decides nothing");
    verify(program);
    check_tasks(program.step);
    if (program.is_outlined()) verify_outline(program);
    return program;
  } catch (const json::exception& e) {
    fail_user("{}: it is damaged: {}; write it again with `overtake plan`", where, e.what());
  } catch (const InternalError& e) {
    fail_user("{}: its content does not hold together: {}; write it again with `overtake plan`", where, e.reason());
  } catch (const std::exception& e) {
    fail_user("{}: it is damaged: {}; write it again with `overtake plan`", where, e.what());
  }
}

}  // namespace overtake
