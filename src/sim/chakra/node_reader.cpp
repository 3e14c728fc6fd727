#include "sim/chakra/node_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "sim/chakra/attribute.h"
#include "sim/chakra/pytorch.h"

namespace overtake::chakra {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;
constexpr std::size_t kMostNodes = 0x7fffffff;

// None for those that plans do not have.
std::optional<Kind> collective_kind(CommType type) {
  switch (type) {
    case CommType::all_reduce:
    case CommType::barrier:
      return Kind::all_reduce;
    case CommType::all_gather:
      return Kind::all_gather;
    case CommType::reduce_scatter:
    case CommType::reduce_scatter_block:
      return Kind::reduce_scatter;
    case CommType::all_to_all:
      return Kind::all_to_all;
    default:
      return {};
  }
}

bool is_transfer_kind(Kind kind) { return kind >= Kind::all_reduce && kind <= Kind::recv; }

}  // namespace

LayerId NodeReader::layer_of(std::string_view name) {
  const StringId id = out_.graph.intern(name);
  if (id >= layers_.size()) layers_.resize(id + 1, kNone);
  if (layers_[id] == kNone) layers_[id] = out_.graph.add_layer(name);
  return layers_[id];
}

std::uint32_t NodeReader::lane_of(const Draft& draft, bool is_transfer) {
  enum Sort : std::int64_t { device, stream, memory, replayed, transfers, thread };
  const bool is_asynchronous = is_transfer && (draft.lane >= 0 ? draft.is_asynchronous : draft.stream < 0);
  LaneKey key{1, rank_, device, 0};
  if (draft.lane >= 0)
    key = {0, draft.lane, rank_, is_asynchronous ? 1 : 0};
  else if (draft.is_cpu && !is_transfer)
    key = {1, rank_, thread, draft.thread};
  else if (draft.stream >= 0)
    key = {1, rank_, stream, draft.stream};
  else if (is_transfer)
    key[2] = transfers;
  else if (draft.type == NodeType::collective)
    key[2] = replayed;
  else if (draft.type == NodeType::mem_load || draft.type == NodeType::mem_store)
    key[2] = memory;
  const auto [at, is_new] = lanes_.try_emplace(key, static_cast<std::uint32_t>(out_.lanes.size()));
  if (is_new) out_.lanes.push_back({.rank = rank_, .is_asynchronous = is_asynchronous});
  out_.lanes[at->second].has_order |= draft.has_place || draft.node.start_ns >= 0;
  return at->second;
}

void NodeReader::take_transfer(Draft& draft) {
  Node& node = draft.node;
  const auto need = [&](bool has, std::string_view what) {
    if (!has) out_.fail(node, fmt::format("it communicates, but has no attribute {}; convert the trace anew", what));
  };
  need(draft.comm_size >= 0, "comm_size");
  if (draft.comm_size > kMostBytes)
    out_.fail(node, fmt::format("a transfer of {} bytes; {}", draft.comm_size, kAdvice));
  Transfer transfer{.node = static_cast<std::uint32_t>(out_.nodes.size()),
                    .bytes = draft.comm_size,
                    .priority = draft.priority,
                    .tag = draft.tag,
                    .collective = draft.collective};
  if (draft.type == NodeType::collective) {
    if (!draft.involves_all && draft.group.empty())
      out_.fail(node,
                "involved_dim leaves out a dimension, so that only ASTRA-sim's topology tells who takes part; name the "
                "group by pg_name");
    const std::string_view name = draft.group == "0" ? std::string_view() : draft.group;
    transfer.group =
        group_names_.try_emplace(std::string(name), static_cast<std::uint32_t>(group_names_.size())).first->second;
  } else {
    const bool is_send = draft.type == NodeType::send;
    const std::int64_t self = is_send ? draft.source : draft.destination,
                       peer = is_send ? draft.destination : draft.source;
    need(peer >= 0, is_send ? "comm_dst" : "comm_src");
    if (self >= 0 && self != rank_)
      out_.fail(node,
                fmt::format("it is of rank {} in the file of rank {}; check the names of the files", self, rank_));
    if (peer >= 0xffff) out_.fail(node, fmt::format("there is no rank {}; {}", peer, kAdvice));
    transfer.peer = static_cast<std::uint32_t>(peer);
    node.kind = is_send ? Kind::send : Kind::recv;
  }
  node.transfer = static_cast<std::uint32_t>(out_.transfers.size());
  out_.transfers.push_back(transfer);
}

void NodeReader::take(Draft& draft) {
  Node& node = draft.node;
  // Names of ours end with what task_name() adds.
  if (draft.kind) {
    const std::string end =
        fmt::format(".{}{}", to_string(*draft.kind), node.micro_batch == 0 ? "" : fmt::format("#{}", node.micro_batch));
    if (draft.name.ends_with(end)) draft.name.remove_suffix(end.size());
  }
  node.layer = layer_of(draft.name);
  node.kind = draft.kind && !is_transfer_kind(*draft.kind) ? *draft.kind : Kind::forward;
  bool is_transfer = draft.type == NodeType::send || draft.type == NodeType::recv;
  Attrs attrs;
  switch (draft.type) {
    case NodeType::compute:
      break;
    case NodeType::send:
    case NodeType::recv:
      // PyTorch's converter does not write to whom, or from whom, but how long it took.
      if ((draft.type == NodeType::send ? draft.destination : draft.source) >= 0 || node.duration_ns == 0) break;
      is_transfer = false;
      ++replayed_;
      attrs.set(kTypeAttr, static_cast<std::int64_t>(draft.type));
      attrs.set(kCommSizeAttr, std::max(draft.comm_size, std::int64_t{0}));
      break;
    case NodeType::mem_load:
    case NodeType::mem_store:
      node.kind = Kind::load;
      attrs.set(kTensorAttr, node.bytes);
      attrs.set(kTypeAttr, static_cast<std::int64_t>(draft.type));
      break;
    case NodeType::collective: {
      if (draft.comm_type < 0 || draft.comm_type > static_cast<int>(CommType::barrier))
        out_.fail(node, "a collective without a known comm_type; convert the trace anew");
      const auto type = static_cast<CommType>(draft.comm_type);
      // A barrier is an all-reduce of one number, in PyTorch as in MPI.
      if (type == CommType::barrier) draft.comm_size = std::max(draft.comm_size, std::int64_t{4});
      if (const auto kind = collective_kind(type)) {
        node.kind = *kind;
        is_transfer = true;
        break;
      }
      if (node.duration_ns == 0)
        out_.fail(node,
                  fmt::format("collectives of comm_type {} are only replayed, and it has no duration; use a trace "
                              "that was recorded",
                              draft.comm_type));
      attrs.set(kTypeAttr, static_cast<std::int64_t>(draft.type));
      attrs.set(kCommTypeAttr, draft.comm_type);
      attrs.set(kCommSizeAttr, std::max(draft.comm_size, std::int64_t{0}));
      break;
    }
    case NodeType::invalid:
    case NodeType::metadata:
      draft.is_cpu = true;
      if (!draft.input_values.empty()) read_process_groups(draft.input_values);
      [[fallthrough]];
    default:
      attrs.set(kTypeAttr, static_cast<std::int64_t>(draft.type));
  }
  if (draft.is_cpu) attrs.set(kCpuAttr, std::int64_t{1});
  if (!draft.is_cpu && draft.stream < 0) draft.stream = draft.thread;
  if (is_transfer)
    take_transfer(draft);
  else if (!attrs.values().empty())
    node.attrs = out_.graph.add_attrs(attrs);
  node.lane = lane_of(draft, is_transfer);
  out_.has_own_times |= draft.has_own_times;
  out_.nodes.push_back(node);
}

Draft NodeReader::next_node(WireReader& stream) {
  const WireReader message = stream.next_message();
  Draft draft = read_draft(message, rank_, is_ours_, out_.dependencies);
  if (out_.nodes.size() >= kMostNodes)
    fail_user("{}: node {} '{:.60}': there are too many nodes; {}", message.file(), draft.node.id, draft.name, kAdvice);
  return draft;
}

// Collectives without a comm_type are read again when all others have been: what they are depends on these.
void NodeReader::read_nodes(WireReader stream) {
  const auto is_unsaid = [](const Draft& d) { return d.type == NodeType::collective && d.comm_type < 0; };
  const WireReader beginning = stream;
  Unsaid unsaid;
  for (std::size_t known = out_.dependencies.size(); !stream.is_empty(); known = out_.dependencies.size()) {
    Draft draft = next_node(stream);
    unsaid.has_kernels |= draft.communicates() && !draft.is_cpu;
    if (!is_unsaid(draft)) {
      take(draft);
      continue;
    }
    ++unsaid.count;
    unsaid.innermost = std::max(unsaid.innermost, layer_of_pytorch(draft.name));
    out_.dependencies.resize(known);
  }
  if (unsaid.count == 0) return;
  stream = beginning;
  for (std::size_t known = out_.dependencies.size(); !stream.is_empty(); known = out_.dependencies.size()) {
    Draft draft = next_node(stream);
    if (is_unsaid(draft))
      settle(draft, unsaid);
    else
      out_.dependencies.resize(known);
  }
}

// The host's calls of a collective stand around its kernel, one inside the other: c10d::, record_param_comms, nccl:.
// One of them communicates: the kernel, or where the trace has none the innermost.
void NodeReader::settle(Draft& draft, const Unsaid& unsaid) {
  draft.node.layer = layer_of(draft.name);
  if (draft.is_cpu && (unsaid.has_kernels || layer_of_pytorch(draft.name) < unsaid.innermost)) {
    draft.type = NodeType::compute;
    ++launches_;
    return take(draft);
  }
  const std::optional<CommType> type = collective_named(draft.name);
  if (!type)
    out_.fail(draft.node,
              "a collective without a comm_type, whose name tells of none either (allreduce, allgather, reducescatter, "
              "alltoall, broadcast, barrier); convert the trace anew");
  draft.comm_type = static_cast<std::int64_t>(*type);
  if (draft.comm_size < 0) draft.comm_size = tensor_bytes(draft.input_values, draft.input_types).value_or(-1);
  ++derived_;
  take(draft);
}

void NodeReader::add_notes() {
  if (derived_ > 0)
    out_.notes.push_back(
        fmt::format("{} collectives have no comm_type: the operation is taken from their names, the bytes from the "
                    "tensors among their inputs, as the converter of PyTorch's traces counts them",
                    derived_));
  if (launches_ > 0)
    out_.notes.push_back(
        fmt::format("{} nodes of the host stand around a collective that the trace has as well (c10d::, nccl:): they "
                    "are taken as computations of the host",
                    launches_));
  if (replayed_ > 0)
    out_.notes.push_back(
        fmt::format("{} sends and receives do not say with whom: they take as long as was recorded", replayed_));
}

// PyTorch's node "process_group:init": [{"pg_name": "1", "ranks": [0, 2], ...}, ...], quoted; no ranks: all.
void NodeReader::read_process_groups(std::string_view values) {
  const std::size_t first = values.find("[{"), last = values.rfind("}]");
  if (first == std::string_view::npos || last == std::string_view::npos || last < first) return;
  const auto list = parse_json_or_discard(values.substr(first, last + 2 - first));
  if (!list.is_array()) return;
  for (const auto& item : list) {
    if (!item.is_object() || !item.contains("pg_name") || !item["pg_name"].is_string() || !item.contains("ranks"))
      continue;
    std::vector<std::uint32_t> ranks;
    for (const auto& rank : item["ranks"])
      if (rank.is_number_unsigned() && rank.get<std::uint64_t>() < kNone) ranks.push_back(rank.get<std::uint32_t>());
    std::ranges::sort(ranks);
    ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
    const auto name = item["pg_name"].get<std::string>();
    process_groups_[name == "0" ? "" : name] = std::move(ranks);
  }
}

void NodeReader::read(const std::string& path, std::string_view content) {
  rank_ = static_cast<std::uint16_t>(out_.files.size());
  OVERTAKE_CHECK(out_.files.size() < 0xffff, "{}: more ranks than devices can be", path);
  out_.files.push_back(path);
  is_ours_ = false;
  first_transfer_ = out_.transfers.size();
  group_names_.clear();
  process_groups_.clear();
  if (content.empty()) fail_user("{}: it is empty; {}", path, kAdvice);
  if (content.starts_with("\x1f\x8b")) fail_user("{}: it is compressed; unpack it with gunzip", path);

  WireReader stream(std::as_bytes(std::span(content)), path, kAdvice);
  for (WireReader field = stream.next_message(); field.next();) {
    if (field.field() == metadata_field::version) {
      field.text();
    } else if (field.field() == metadata_field::attribute) {
      const Attribute a = read_attribute(field.message());
      if (a.name == own::producer) is_ours_ = a.text == own::program;
      if (is_ours_ && a.name == own::model) out_.graph.model = a.text;
      if (is_ours_ && a.name == own::schedule) out_.schedule = a.text;
    } else {
      field.fail("what should be GlobalMetadata has other fields");
    }
  }
  read_nodes(stream);

  // Now that it is known who belongs to the groups of this file.
  std::vector<std::uint32_t> group_of(group_names_.size());
  for (const auto& [name, index] : group_names_) {
    const auto known = process_groups_.find(name);
    const Group group{.name = name,
                      .ranks = known == process_groups_.end() ? std::vector<std::uint32_t>{} : known->second};
    const auto [at, is_new] = groups_.try_emplace(group, static_cast<std::uint32_t>(out_.groups.size()));
    if (is_new) out_.groups.push_back(group);
    group_of[index] = at->second;
  }
  for (std::size_t i = first_transfer_; i < out_.transfers.size(); ++i)
    if (out_.transfers[i].peer == kNone) out_.transfers[i].group = group_of[out_.transfers[i].group];
}

// Where a file does not say who is in a group, another may.
void NodeReader::complete_groups() {
  for (Transfer& transfer : out_.transfers) {
    if (transfer.peer != kNone || !out_.groups[transfer.group].ranks.empty()) continue;
    const std::string& name = out_.groups[transfer.group].name;
    const std::uint32_t rank = out_.nodes[transfer.node].rank;
    for (auto at = groups_.lower_bound({.name = name, .ranks = {}}); at != groups_.end() && at->first.name == name;
         ++at)
      if (std::ranges::binary_search(at->first.ranks, rank)) transfer.group = at->second;
  }
}

Nodes NodeReader::finish() {
  std::vector<Node>& nodes = out_.nodes;
  complete_groups();
  add_notes();
  // Lanes in the order of their keys.
  std::vector<std::uint32_t> lane_number(lanes_.size());
  std::vector<LaneOrigin> lanes;
  for (const auto& [key, lane] : lanes_) {
    lane_number[lane] = static_cast<std::uint32_t>(lanes.size());
    lanes.push_back(out_.lanes[lane]);
  }
  out_.lanes = std::move(lanes);
  for (Node& node : nodes) node.lane = lane_number[node.lane];
  std::ranges::sort(nodes, {}, [](const Node& n) { return std::pair(n.id, n.rank); });
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i > 0 && nodes[i].id == nodes[i - 1].id && nodes[i].rank == nodes[i - 1].rank)
      out_.fail(nodes[i], fmt::format("another one has its id; {}", kAdvice));
    if (nodes[i].transfer != kNone) out_.transfers[nodes[i].transfer].node = static_cast<std::uint32_t>(i);
  }
  return std::move(out_);
}

}  // namespace overtake::chakra
