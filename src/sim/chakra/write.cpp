// A plan and its trace to Chakra files. Dependencies go out as those on data; the order of a lane, so that others keep
// it too, as those of control.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/wire_writer.h"
#include "sim/chakra/chakra.h"
#include "sim/chakra/files.h"
#include "sim/chakra/format.h"

namespace overtake {
namespace {

using namespace chakra;

// An attribute, in the type that readers expect.
WireWriter attribute(std::string_view name, std::uint32_t field, std::int64_t value) {
  WireWriter out;
  out.text(attribute_field::name, name).integer(field, value);
  return out;
}
WireWriter attribute(std::string_view name, std::string_view value) {
  WireWriter out;
  out.text(attribute_field::name, name).text(attribute_field::text, value);
  return out;
}

bool is_collective(const Task& task) {
  return task.op == Op::transfer && task.kind != Kind::send && task.kind != Kind::recv;
}

CommType comm_type_of(Kind kind) {
  if (kind == Kind::all_gather) return CommType::all_gather;
  if (kind == Kind::all_to_all) return CommType::all_to_all;
  return kind == Kind::reduce_scatter ? CommType::reduce_scatter : CommType::all_reduce;
}

class PlanWriter {
 public:
  PlanWriter(const Plan& plan, const Trace& trace) : plan_(plan), graph_(plan.graph), deps_(dependencies(plan)) {
    const std::size_t n = graph_.tasks.size();
    span_of_.assign(n, nullptr);
    for (const Span& span : trace.spans) span_of_.at(span.task) = &span;
    lane_of_.assign(n, kNone);
    place_of_.assign(n, 0);
    for (std::uint32_t l = 0; l < plan.lanes.size(); ++l) {
      devices_ = std::max<std::size_t>(devices_, plan.lanes[l].device + std::size_t{1});
      for (std::uint32_t i = 0; i < plan.lanes[l].tasks.size(); ++i) {
        lane_of_[plan.lanes[l].tasks[i]] = l;
        place_of_[plan.lanes[l].tasks[i]] = i;
      }
    }
    pair_messages();
    find_groups();
  }

  std::size_t devices() const { return devices_; }

  std::string file_of(std::size_t device) const {
    WireWriter metadata, out;
    metadata.text(metadata_field::version, kVersion)
        .message(metadata_field::attribute, attribute(own::producer, own::program))
        .message(metadata_field::attribute, attribute(own::model, graph_.model))
        .message(metadata_field::attribute, attribute(own::schedule, plan_.schedule));
    out.append(metadata);
    for (TaskId t = 0; t < graph_.tasks.size(); ++t)
      if (graph_.tasks[t].device == device && lane_of_[t] != kNone) out.append(node_of(t));
    return out.bytes();
  }

  // Of collectives that not all devices take part in: {"1": [0, 1], ...}; empty if there are none.
  std::string groups() const {
    nlohmann::ordered_json out;
    for (const auto& [name, devices] : named_groups_) out[std::to_string(name)] = devices;
    return named_groups_.empty() ? "" : out.dump() + "\n";
  }

 private:
  struct CollectiveParts {
    std::vector<std::uint16_t> devices;  // ascending
    std::int64_t bytes = 0;              // the most that one puts in
    std::uint32_t group = 0;             // its name; 0: all devices
  };
  struct Message {
    TaskId other = kNone;
    std::int64_t tag = 0;
  };

  // Tags count the messages from one device to another, so that no two of them are alike.
  void pair_messages() {
    std::map<BufferId, TaskId> sends;
    std::map<std::pair<std::uint16_t, std::uint16_t>, std::int64_t> next_tag;
    for (TaskId t = 0; t < graph_.tasks.size(); ++t)
      if (is_message(t, Kind::send)) sends.emplace(graph_.writes(t)[0], t);
    for (TaskId t = 0; t < graph_.tasks.size(); ++t) {
      if (!is_message(t, Kind::recv)) continue;
      const auto send = sends.find(graph_.reads(t)[0]);
      OVERTAKE_CHECK(send != sends.end() && !messages_.contains(send->second), "task {} receives what nobody sends",
                     graph_.task_name(t));
      const std::int64_t tag = next_tag[{graph_.tasks[send->second].device, graph_.tasks[t].device}]++;
      messages_[t] = {.other = send->second, .tag = tag};
      messages_[send->second] = {.other = t, .tag = tag};
    }
    for (const auto& [buffer, send] : sends)
      OVERTAKE_CHECK(messages_.contains(send), "task {} sends what nobody receives", graph_.task_name(send));
  }

  bool is_message(TaskId t, Kind kind) const {
    return graph_.tasks[t].op == Op::transfer && graph_.tasks[t].kind == kind && lane_of_[t] != kNone;
  }

  void find_groups() {
    for (TaskId t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (!is_collective(task) || lane_of_[t] == kNone) continue;
      CollectiveParts& parts = collectives_[graph_.attrs_of(task).integer("collective")];
      parts.devices.push_back(task.device);
      parts.bytes = std::max(parts.bytes, graph_.bytes(graph_.reads(t)[0]));
    }
    std::map<std::vector<std::uint16_t>, std::uint32_t> names;
    for (auto& [number, parts] : collectives_) {
      std::ranges::sort(parts.devices);
      if (parts.devices.size() == devices_) continue;
      const auto [at, is_new] = names.try_emplace(parts.devices, static_cast<std::uint32_t>(names.size() + 1));
      parts.group = at->second;
      if (is_new) named_groups_.emplace(parts.group, parts.devices);
    }
  }

  WireWriter node_of(TaskId t) const {
    const Task& task = graph_.tasks[t];
    const Attrs& attrs = graph_.attrs_of(task);
    const Span* span = span_of_[t];
    const auto [data, control] = dependencies_of(t);
    WireWriter out;
    out.integer(node_field::id, t)
        .text(node_field::name, graph_.task_name(t))
        .integer(node_field::type, static_cast<std::int64_t>(type_of(task)))
        .packed(node_field::control_dependencies, control)
        .packed(node_field::data_dependencies, data);
    if (span) {
      out.integer(node_field::start_micros, span->begin_ns / 1000);
      out.integer(node_field::duration_micros, (span->end_ns - span->begin_ns + 500) / 1000);
    }
    const auto add = [&](std::string_view name, std::uint32_t field, std::int64_t value) {
      out.message(node_field::attribute, attribute(name, field, value));
    };
    add("is_cpu_op", attribute_field::boolean, attrs.integer(kCpuAttr, 0));
    out.message(node_field::attribute, attribute(own::kind, to_string(task.kind)));
    if (task.micro_batch != 0) add(own::micro_batch, attribute_field::int64, task.micro_batch);
    if (span) {
      add(own::start_ns, attribute_field::int64, span->begin_ns);
      add(own::duration_ns, attribute_field::int64, span->end_ns - span->begin_ns);
    }
    add(own::lane, attribute_field::int64, lane_of_[t]);
    add(own::place, attribute_field::int64, place_of_[t]);
    if (plan_.lanes[lane_of_[t]].is_asynchronous)
      add(own::asynchronous, attribute_field::boolean, 1);
    else
      add("stream", attribute_field::int64, lane_of_[t]);
    if (attrs.has(kTensorAttr)) add(kTensorAttr, attribute_field::uint64, attrs.integer(kTensorAttr));
    if (attrs.has(kCommTypeAttr)) add(kCommTypeAttr, attribute_field::int64, attrs.integer(kCommTypeAttr));
    if (attrs.has(kCommSizeAttr)) add(kCommSizeAttr, attribute_field::int64, attrs.integer(kCommSizeAttr));
    if (task.op == Op::transfer) add_transfer(t, out);
    return out;
  }

  NodeType type_of(const Task& task) const {
    if (task.op != Op::transfer)
      return static_cast<NodeType>(
          graph_.attrs_of(task).integer(kTypeAttr, static_cast<std::int64_t>(NodeType::compute)));
    if (is_collective(task)) return NodeType::collective;
    return task.kind == Kind::send ? NodeType::send : NodeType::recv;
  }

  void add_transfer(TaskId t, WireWriter& out) const {
    const Task& task = graph_.tasks[t];
    const Attrs& attrs = graph_.attrs_of(task);
    const auto add = [&](std::string_view name, std::uint32_t field, std::int64_t value) {
      out.message(node_field::attribute, attribute(name, field, value));
    };
    if (is_collective(task)) {
      const std::int64_t number = attrs.integer("collective");
      const CollectiveParts& parts = collectives_.at(number);
      add(own::collective, attribute_field::int64, number);
      add("comm_type", attribute_field::int64, static_cast<std::int64_t>(comm_type_of(task.kind)));
      add("comm_size", attribute_field::int64, parts.bytes);
      if (parts.group != 0) out.message(node_field::attribute, attribute("pg_name", std::to_string(parts.group)));
    } else {
      const Message& message = messages_.at(t);
      const bool is_send = task.kind == Kind::send;
      const TaskId send = is_send ? t : message.other, recv = is_send ? message.other : t;
      add("comm_src", attribute_field::int32, graph_.tasks[send].device);
      add("comm_dst", attribute_field::int32, graph_.tasks[recv].device);
      add("comm_tag", attribute_field::int32, message.tag);
      add("comm_size", attribute_field::int64, graph_.bytes(graph_.reads(send)[0]));
    }
    const std::int64_t priority = attrs.integer("priority", 0);
    if (priority != 0) add("comm_priority", attribute_field::int32, priority);
  }

  struct TaskDependencies {
    std::vector<TaskId> data, control;
  };
  TaskDependencies dependencies_of(TaskId t) const {
    TaskDependencies out;
    for (const TaskId before : deps_.of(t)) {
      if (lane_of_[before] == kNone) continue;
      if (is_message(t, Kind::recv) && messages_.at(t).other == before) continue;
      if (graph_.tasks[before].device != graph_.tasks[t].device)
        fail_user(
            "task {} of device {} waits for {} of device {}, and no transfer connects them: Chakra traces have no "
            "such dependency",
            graph_.task_name(t), graph_.tasks[t].device, graph_.task_name(before), graph_.tasks[before].device);
      out.data.push_back(before);
    }
    const Lane& lane = plan_.lanes[lane_of_[t]];
    if (lane.is_asynchronous || place_of_[t] == 0) return out;
    const TaskId previous = lane.tasks[place_of_[t] - 1];
    if (std::ranges::find(out.data, previous) == out.data.end()) out.control.push_back(previous);
    return out;
  }

  const Plan& plan_;
  const Graph& graph_;
  Dependencies deps_;
  std::size_t devices_ = 0;
  std::vector<const Span*> span_of_;  // per task; null where there is none
  std::vector<std::uint32_t> lane_of_, place_of_;
  std::map<std::int64_t, CollectiveParts> collectives_;
  std::map<std::uint32_t, std::vector<std::uint16_t>> named_groups_;
  std::map<TaskId, Message> messages_;
};

}  // namespace

void write_chakra(const Plan& plan, const Trace& trace, const std::filesystem::path& prefix) {
  const PlanWriter writer(plan, trace);
  std::filesystem::path stem = prefix;
  const auto old = find_files(stem);
  if (!old.empty() && old.rbegin()->first >= writer.devices())
    fail_user(
        "{}: it would belong to the trace of ranks 0 to {} that is to be written; remove it, or choose another name",
        old.rbegin()->second.string(), writer.devices() - 1);
  if (!stem.parent_path().empty()) create_folders(stem.parent_path());
  for (std::size_t device = 0; device < writer.devices(); ++device)
    write_file_atomically(file_of_rank(stem, device), writer.file_of(device));
  if (const std::string groups = writer.groups(); !groups.empty())
    write_file_atomically(stem.string() + ".groups.json", groups);
}

}  // namespace overtake
