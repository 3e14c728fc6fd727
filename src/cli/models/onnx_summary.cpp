#include "cli/models/onnx_summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "base/printable.h"
#include "train/weights.h"

namespace overtake {
namespace {

using nlohmann::json;

json values_json(const std::vector<onnx::ValueInfo>& values) {
  json all = json::array();
  for (const onnx::ValueInfo& v : values) {
    json shape = json::array();
    for (const onnx::Dimension& d : v.dims)
      shape.push_back(d.value >= 0 ? json(d.value) : json(printable_name(d.symbol)));
    all.push_back({{"name", printable_name(v.name)}, {"type", onnx::to_string(v.type)}, {"shape", std::move(shape)}});
  }
  return all;
}

// What users call a layer: activations by their function.
std::string kind_of(const Graph& g, const Task& t) {
  return t.op == Op::activation ? g.attrs_of(t).text("function") : std::string(to_string(t.op));
}

// Layers that compute something; what only moves or joins numbers says little.
std::map<std::string, int> layers_of(const Graph& g) {
  constexpr Op kPlumbing[] = {Op::add,    Op::mul,    Op::reshape, Op::transpose,     Op::slice,
                              Op::concat, Op::expand, Op::reduce,  Op::cross_entropy, Op::mse};
  std::map<std::string, int> counts;
  for (const Task& t : g.tasks)
    if (std::ranges::find(kPlumbing, t.op) == std::end(kPlumbing)) ++counts[kind_of(g, t)];
  return counts;
}

json tensor_json(const std::string& name, const std::vector<std::int64_t>& shape) {
  return {{"name", printable_name(name)}, {"shape", shape}};
}

// "3 tensors, 1,234 numbers: a.weight [3, 4], b.bias [4], ..., z.bias [10]"
std::string tensors_text(const json& tensors) {
  constexpr std::size_t kFirst = 3;
  std::vector<std::string> shown;
  std::int64_t numbers = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto shape = tensors[i]["shape"].get<std::vector<std::int64_t>>();
    numbers += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    if (i < kFirst || i + 1 == tensors.size())
      shown.push_back(fmt::format("{} [{}]", tensors[i]["name"].get<std::string>(), fmt::join(shape, ", ")));
    else if (i == kFirst)
      shown.push_back("...");
  }
  return fmt::format("{} tensors, {} numbers: {}", tensors.size(), numbers, fmt::join(shown, ", "));
}

std::string values_text(const json& values) {
  std::vector<std::string> all;
  for (const json& v : values) {
    std::vector<std::string> dims;
    for (const json& d : v["shape"]) dims.push_back(d.is_string() ? d.get<std::string>() : d.dump());
    all.push_back(
        fmt::format("{} [{}] {}", v["name"].get<std::string>(), fmt::join(dims, ", "), v["type"].get<std::string>()));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string counts_text(const json& counts) {
  std::vector<std::string> all;
  for (const auto& [kind, count] : counts.items()) all.push_back(fmt::format("{} {}", count.get<int>(), kind));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

json onnx_summary(const onnx::File& file, const Network& network, const Graph& recognised) {
  const Graph& g = network.graph;
  json out = {{"inputs", values_json(file.inputs)}, {"outputs", values_json(file.outputs)}};
  for (const char* kind : {"trained", "frozen", "statistics", "constants"}) out[kind] = json::array();
  for (const Parameter& p : g.parameters) {
    const bool is_weight = g.buffers[p.buffer].role == Role::weight;
    out[!is_weight    ? "statistics"
        : p.is_frozen ? "frozen"
                      : "trained"]
        .push_back(tensor_json(g.buffer_name(p.buffer), stored_dims(g, p)));
  }
  for (const Constant& c : g.constants) {
    const Shape& s = g.buffers[c.buffer].shape;
    if (s.elements() > 1)
      out["constants"].push_back(tensor_json(g.buffer_name(c.buffer), {s.span().begin(), s.span().end()}));
  }
  const std::map<std::string, int> before = layers_of(g), after = layers_of(recognised);
  out["layers"] = after;
  out["put_together"] = json::object();
  for (const auto& [kind, count] : after) {
    const auto known = before.find(kind);
    const int made = count - (known == before.end() ? 0 : known->second);
    if (made > 0) out["put_together"][kind] = made;
  }
  return out;
}

std::string text_of(const json& summary) {
  std::string text;
  const auto line = [&](const char* title, const std::string& what) {
    text += fmt::format("{:<13} {}\n", title, what);
  };
  line("inputs", values_text(summary["inputs"]));
  line("outputs", values_text(summary["outputs"]));
  for (const auto& [kind, title] : {std::pair("trained", "trained"), std::pair("frozen", "not trained"),
                                    std::pair("statistics", "statistics"), std::pair("constants", "constants")})
    if (!summary[kind].empty()) line(title, tensors_text(summary[kind]));
  if (!summary["layers"].empty()) line("layers", counts_text(summary["layers"]));
  if (!summary["put_together"].empty()) line("put together", counts_text(summary["put_together"]));
  return text;
}

}  // namespace overtake
