// Chakra files to a plan.

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "sim/chakra/chakra.h"
#include "sim/chakra/files.h"
#include "sim/chakra/node_reader.h"
#include "sim/chakra/order.h"

namespace overtake {
namespace {

using namespace chakra;

// Tasks and buffers. Dependencies are waits, of eight bytes each; only communication has buffers, for the sizes, and
// what ranks put in is shared by all transfers of a size.
class GraphBuilder {
 public:
  GraphBuilder(Nodes& in, const Matches& matches) : in_(in), matches_(matches), graph_(in.graph) {}

  void build() {
    for (std::uint32_t i = 0; i < in_.transfers.size(); ++i)
      if (node_of(i).kind == Kind::send) messages_.emplace(i, add_buffer(node_of(i).rank, 0, Role::activation));
    for (const Node& node : in_.nodes) {
      const bool is_transfer = node.transfer != kNone;
      const TaskId t =
          is_transfer ? add_transfer(node) : graph_.add_task(node.kind, Op::block, node.layer, node.attrs, {}, {});
      graph_.tasks[t].device = node.rank;
      graph_.tasks[t].micro_batch = node.micro_batch;
    }
  }

 private:
  const Node& node_of(std::uint32_t transfer) const { return in_.nodes[in_.transfers[transfer].node]; }

  BufferId add_buffer(std::uint16_t rank, std::int64_t bytes, Role role) {
    const BufferId b = graph_.add_buffer("data", {bytes}, DType::u8, role);
    graph_.buffers[b].device = rank;
    return b;
  }

  TaskId add_transfer(const Node& node) {
    const Transfer& t = in_.transfers[node.transfer];
    const std::uint32_t other = matches_.other[node.transfer];
    Attrs attrs;
    if (t.priority != 0) attrs.set("priority", t.priority);
    BufferId read = kNone, write = kNone;
    if (node.kind == Kind::recv) {
      read = messages_.at(other);
      write = add_buffer(node.rank, t.bytes, Role::activation);
    } else {
      const auto [at, is_new] = inputs_.try_emplace({node.rank, t.bytes}, kNone);
      if (is_new) at->second = add_buffer(node.rank, t.bytes, Role::input);
      read = at->second;
    }
    if (node.kind == Kind::send) {
      write = messages_.at(node.transfer);
    } else if (node.kind != Kind::recv) {
      const Collective& collective = matches_.collectives[other];
      attrs.set("collective", collective.number);
      const auto n = std::ssize(collective.members);
      const std::int64_t result = node.kind == Kind::all_gather       ? t.bytes * n
                                  : node.kind == Kind::reduce_scatter ? (t.bytes + n - 1) / n
                                                                      : t.bytes;
      write = add_buffer(node.rank, result, Role::activation);
    }
    return graph_.add_task(node.kind, Op::transfer, node.layer, graph_.add_attrs(attrs), {read}, {write});
  }

  const Nodes& in_;
  const Matches& matches_;
  Graph& graph_;
  std::map<std::uint32_t, BufferId> messages_;  // by the transfer that sends
  std::map<std::pair<std::uint16_t, std::int64_t>, BufferId> inputs_;
};

Trace recorded_trace(const Nodes& in) {
  Trace out;
  std::int64_t base = std::numeric_limits<std::int64_t>::max();
  for (const Node& node : in.nodes)
    if (node.start_ns >= 0) base = std::min(base, node.start_ns);
  if (in.has_own_times) base = 0;
  for (TaskId t = 0; t < in.nodes.size(); ++t) {
    const Node& node = in.nodes[t];
    if (node.start_ns < 0) continue;
    const std::int64_t begin = node.start_ns - base;
    out.spans.push_back({.task = t, .lane = node.lane, .begin_ns = begin, .end_ns = begin + node.duration_ns});
    out.step_ns = std::max(out.step_ns, out.spans.back().end_ns);
  }
  return out;
}

// Whether a task of the trace is a computation, of the device or of the host.
bool computes(const Graph& g, const Task& task) { return task.op == Op::block && !g.attrs_of(task).has(kTypeAttr); }

// Computations of which the trace does not tell how long they take, and from what that could be computed.
void note_untimed(const Nodes& in, ChakraPlan& out) {
  const Graph& g = out.plan.graph;
  std::size_t computations = 0, untimed = 0, on_devices = 0;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (!computes(g, g.tasks[t])) continue;
    ++computations;
    const Node& node = in.nodes[t];
    if (node.duration_ns > 0 || node.operations > 0 || node.bytes > 0) continue;
    ++untimed;
    if (g.attrs_of(g.tasks[t]).integer(kCpuAttr, 0) == 0) ++on_devices;
  }
  out.has_times = untimed < computations || computations == 0;
  if (out.has_times && on_devices == 0) return;
  out.notes.push_back(fmt::format(
      "{} of {} computations have neither duration_micros nor num_ops and tensor_size, so they take no time: "
      "record the trace together with a profile of the devices, or write num_ops and tensor_size, from which "
      "the rates of the machine's devices give a time",
      untimed, computations));
}

ChakraPlan to_plan(Nodes nodes) {
  const Matches matches = match(nodes);
  if (const std::size_t uneven = even_out(nodes, matches); uneven > 0)
    nodes.notes.push_back(fmt::format(
        "{} all-to-alls have ranks that send different amounts: each is taken as if all sent the most", uneven));
  Order ordered = order(nodes, matches);
  ChakraPlan out;
  out.recorded = recorded_trace(nodes);
  for (const Node& node : nodes.nodes) {
    out.durations_ns.push_back(node.duration_ns);
    out.operations.push_back(node.operations);
    out.bytes.push_back(node.bytes);
  }
  out.notes = std::move(nodes.notes);
  GraphBuilder(nodes, matches).build();
  out.plan.graph = std::move(nodes.graph);
  note_untimed(nodes, out);
  out.plan.schedule = nodes.schedule.empty() ? "as traced" : nodes.schedule;
  out.plan.lanes = std::move(ordered.lanes);
  out.plan.waits = std::move(ordered.waits);
  return out;
}

}  // namespace

ChakraPlan read_chakra(const std::filesystem::path& prefix) {
  std::filesystem::path stem = prefix;
  const auto files = find_files(stem);
  if (files.empty())
    fail_user("{}: there is no such file; name a Chakra trace by what its files have in common, PREFIX of PREFIX.0.et",
              file_of_rank(stem, 0).string());
  const std::uint64_t last = files.rbegin()->first;
  if (last >= 0xffff) fail_user("{}: there can be ranks 0 to 65534", files.rbegin()->second.string());
  NodeReader reader;
  for (std::uint64_t rank = 0; rank <= last; ++rank) {
    const auto at = files.find(rank);
    if (at == files.end())
      fail_user("{}: it is missing: there are {} files of ranks up to {}, and a trace has all ranks from 0",
                file_of_rank(stem, rank).string(), files.size(), last);
    reader.read(at->second.string(), read_file(at->second));
  }
  return to_plan(reader.finish());
}

ChakraPlan read_chakra(std::span<const ChakraFile> files) {
  NodeReader reader;
  for (const ChakraFile& file : files) reader.read(file.path, file.content);
  return to_plan(reader.finish());
}

}  // namespace overtake
