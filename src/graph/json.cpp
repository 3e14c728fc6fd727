// Graph, Plan and Trace as JSON. Rows are arrays in a fixed order of columns, so that a million tasks stay readable by
// machines at a bearable size.

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "overtake/plan.h"

namespace overtake {
namespace {

using nlohmann::json;

constexpr int kFormat = 4;

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(text), "{:02x}", std::to_integer<unsigned>(b));
  return text;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    const char* first = text.data() + 2 * i;
    if (std::from_chars(first, first + 2, value, 16).ptr != first + 2)
      fail_user("graph file: a constant is written as '{}'; save it again", text.substr(2 * i, 2));
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

json attrs_to_json(const Attrs& attrs) {
  json out = json::object();
  for (const auto& [name, value] : attrs.values()) std::visit([&](const auto& v) { out[name] = v; }, value);
  return out;
}

Attrs attrs_from_json(const json& in) {
  Attrs out;
  for (const auto& [name, value] : in.items()) {
    if (value.is_number_integer())
      out.set(name, checked<std::int64_t>(value));
    else if (value.is_number())
      out.set(name, value.get<double>());
    else if (value.is_string())
      out.set(name, value.get<std::string>());
    else
      out.set(name, checked<std::vector<std::int64_t>>(value));
  }
  return out;
}

std::vector<std::int64_t> dims_of(const Shape& s) { return {s.span().begin(), s.span().end()}; }

json to_json(const Graph& g) {
  json out = {{"format", kFormat}, {"model", g.model}, {"parts", g.parts}, {"losses", g.losses}};
  auto& buffers = out["buffers"] = json::array();
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    buffers.push_back({g.buffer_name(b), to_string(x.dtype), to_string(x.role), dims_of(x.shape), to_string(x.layout),
                       x.device, x.inside.buffer, x.inside.channel});
  }
  auto& layers = out["layers"] = json::array();
  for (LayerId l = 0; l < g.layers.size(); ++l) layers.push_back(g.layer_name(l));
  auto& attrs = out["attrs"] = json::array();
  for (const Attrs& a : g.attrs) attrs.push_back(attrs_to_json(a));
  auto& parameters = out["parameters"] = json::array();
  for (const Parameter& p : g.parameters) {
    json parts = json::array();
    for (const StoredPart& part : p.parts)
      parts.push_back({g.string(part.name), part.rows, static_cast<int>(part.init.kind), part.init.scale});
    parameters.push_back({p.buffer, p.gradient, static_cast<int>(p.init.kind), p.init.scale, p.stored_transposed,
                          p.is_frozen, p.copy, p.stored_rows, parts});
    if (p.stored_shape) parameters.back().push_back(dims_of(*p.stored_shape));
  }
  auto& constants = out["constants"] = json::array();
  for (const Constant& c : g.constants) constants.push_back({c.buffer, to_hex(*c.bytes)});
  auto& tasks = out["tasks"] = json::array();
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& x = g.tasks[t];
    tasks.push_back({to_string(x.kind), to_string(x.op), x.layer, x.attrs, x.device, x.micro_batch,
                     std::vector<BufferId>(g.reads(t).begin(), g.reads(t).end()),
                     std::vector<BufferId>(g.writes(t).begin(), g.writes(t).end()), x.is_delayed});
  }
  return out;
}

Graph graph_from_json(const json& in) {
  if (checked<int>(in.at("format")) != kFormat)
    fail_user("graph file: format {} is not known; this build reads format {}", checked<int>(in.at("format")), kFormat);
  Graph g;
  g.model = in.at("model").get<std::string>();
  g.parts = checked<std::uint32_t>(in.at("parts"));
  g.losses = checked<std::vector<BufferId>>(in.at("losses"));
  for (const json& row : in.at("buffers")) {
    const auto dims = checked<std::vector<std::int64_t>>(row.at(3));
    const BufferId b =
        g.add_buffer(row.at(0).get<std::string>(), Shape(dims), dtype_from_string(row.at(1).get<std::string>()),
                     role_from_string(row.at(2).get<std::string>()));
    g.buffers[b].layout = layout_from_string(row.at(4).get<std::string>());
    g.buffers[b].device = checked<std::uint16_t>(row.at(5));
    g.buffers[b].inside = {checked<BufferId>(row.at(6)), checked<std::int64_t>(row.at(7))};
  }
  for (const json& name : in.at("layers")) g.add_layer(name.get<std::string>());
  g.attrs.clear();
  for (const json& row : in.at("attrs")) g.attrs.push_back(attrs_from_json(row));
  for (const json& row : in.at("parameters")) {
    std::vector<StoredPart> parts;
    for (const json& part : row.at(8))
      parts.push_back({g.intern(part.at(0).get<std::string>()),
                       checked<std::int64_t>(part.at(1)),
                       {static_cast<Init::Kind>(checked<int>(part.at(2))), part.at(3).get<double>()}});
    g.parameters.push_back({.buffer = checked<BufferId>(row.at(0)),
                            .gradient = checked<BufferId>(row.at(1)),
                            .copy = checked<BufferId>(row.at(6)),
                            .init = {static_cast<Init::Kind>(checked<int>(row.at(2))), row.at(3).get<double>()},
                            .stored_transposed = row.at(4).get<bool>(),
                            .is_frozen = row.at(5).get<bool>(),
                            .stored_rows = checked<std::int64_t>(row.at(7)),
                            .parts = std::move(parts)});
    if (row.size() > 9) g.parameters.back().stored_shape = Shape(row.at(9).get<std::vector<std::int64_t>>());
  }
  for (const json& row : in.at("constants"))
    g.constants.push_back({checked<BufferId>(row.at(0)),
                           std::make_shared<const std::vector<std::byte>>(from_hex(row.at(1).get<std::string>()))});
  for (const json& row : in.at("tasks")) {
    const auto reads = checked<std::vector<BufferId>>(row.at(6)), writes = checked<std::vector<BufferId>>(row.at(7));
    const TaskId t =
        g.add_task(kind_from_string(row.at(0).get<std::string>()), op_from_string(row.at(1).get<std::string>()),
                   checked<LayerId>(row.at(2)), checked<AttrsId>(row.at(3)), reads, writes);
    g.tasks[t].device = checked<std::uint16_t>(row.at(4));
    g.tasks[t].micro_batch = checked<std::uint32_t>(row.at(5));
    g.tasks[t].is_delayed = row.at(8).get<bool>();
  }
  return g;
}

// Runs a reader and turns what it finds wrong with the text into the user's error.
template <class Read>
auto read_text(std::string_view text, const char* what, Read&& read) {
  try {
    return read(parse_json(text));
  } catch (const json::exception& e) {
    fail_user("{} file: it is damaged or no {} of ours: {}; save it again", what, what, e.what());
  } catch (const InternalError& e) {
    fail_user("{} file: its content does not hold together: {}; save it again", what, e.what());
  }
}

}  // namespace

std::string save_json(const Graph& graph) { return to_json(graph).dump(); }

Graph load_graph_json(std::string_view text) {
  return read_text(text, "graph", [](const json& in) {
    Graph g = graph_from_json(in);
    verify(g);
    return g;
  });
}

std::string save_json(const Plan& plan) {
  json out = {{"schedule", plan.schedule},       {"offsets", plan.offsets},
              {"arena_bytes", plan.arena_bytes}, {"persistent_bytes", plan.persistent_bytes},
              {"live_bytes", plan.live_bytes},   {"graph", to_json(plan.graph)}};
  auto& skipped = out["skipped"] = json::array();
  for (const char s : plan.skipped) skipped.push_back(static_cast<int>(s));
  auto& shares = out["shares"] = json::array();
  for (const Share& s : plan.shares) shares.push_back({s.from, s.to});
  auto& waits = out["waits"] = json::array();
  for (const Wait& w : plan.waits) waits.push_back({w.before, w.after});
  auto& joins = out["joins"] = json::array();
  for (const Join& j : plan.joins) joins.push_back({j.first, j.second});
  auto& lanes = out["lanes"] = json::array();
  for (const Lane& lane : plan.lanes) {
    lanes.push_back({{"device", lane.device}, {"tasks", lane.tasks}});
    if (lane.is_asynchronous) lanes.back()["is_asynchronous"] = true;
  }
  return out.dump();
}

Plan load_plan_json(std::string_view text) {
  return read_text(text, "plan", [](const json& in) {
    Plan plan;
    plan.graph = graph_from_json(in.at("graph"));
    plan.schedule = in.at("schedule").get<std::string>();
    plan.offsets = checked<std::vector<std::uint64_t>>(in.at("offsets"));
    plan.arena_bytes = checked<std::uint64_t>(in.at("arena_bytes"));
    plan.persistent_bytes = checked<std::uint64_t>(in.at("persistent_bytes"));
    plan.live_bytes = checked<std::uint64_t>(in.at("live_bytes"));
    for (const json& s : in.at("skipped")) plan.skipped.push_back(static_cast<char>(checked<int>(s)));
    for (const json& row : in.at("shares"))
      plan.shares.push_back({checked<BufferId>(row.at(0)), checked<BufferId>(row.at(1))});
    for (const json& row : in.at("waits"))
      plan.waits.push_back({checked<TaskId>(row.at(0)), checked<TaskId>(row.at(1))});
    for (const json& row : in.at("joins"))
      plan.joins.push_back({checked<TaskId>(row.at(0)), checked<TaskId>(row.at(1))});
    for (const json& row : in.at("lanes"))
      plan.lanes.push_back({checked<std::uint16_t>(row.at("device")), checked<std::vector<TaskId>>(row.at("tasks")),
                            row.value("is_asynchronous", false)});
    verify(plan);
    return plan;
  });
}

std::string save_json(const Trace& trace) {
  json out = {{"step_ns", trace.step_ns}};
  auto& spans = out["spans"] = json::array();
  for (const Span& s : trace.spans) spans.push_back({s.task, s.lane, s.begin_ns, s.end_ns});
  return out.dump();
}

Trace load_trace_json(std::string_view text) {
  return read_text(text, "trace", [](const json& in) {
    Trace trace;
    trace.step_ns = checked<std::int64_t>(in.at("step_ns"));
    for (const json& row : in.at("spans"))
      trace.spans.push_back({checked<TaskId>(row.at(0)), checked<std::uint32_t>(row.at(1)),
                             checked<std::int64_t>(row.at(2)), checked<std::int64_t>(row.at(3))});
    return trace;
  });
}

}  // namespace overtake
