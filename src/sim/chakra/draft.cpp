#include "sim/chakra/draft.h"

#include "base/error.h"
#include "sim/chakra/attribute.h"

namespace overtake::chakra {
namespace {

constexpr std::int64_t kMostNs = std::int64_t{1} << 62;

// Of a computation; another program's attribute of that name says nothing.
std::optional<Kind> kind_named(std::string_view text) {
  for (int k = 0; k <= static_cast<int>(Kind::load); ++k)
    if (to_string(static_cast<Kind>(k)) == text) return static_cast<Kind>(k);
  return {};
}

}  // namespace

Draft read_draft(WireReader message, std::uint16_t rank, bool is_ours, std::vector<std::uint64_t>& dependencies) {
  if (message.is_empty()) message.fail("an empty node");
  Draft draft;
  Node& node = draft.node;
  node.rank = rank;
  std::int64_t type = 0, start_micros = 0, duration_micros = 0, own_duration = -1;
  std::vector<std::uint64_t> on_data;
  node.first_dependency = static_cast<std::uint32_t>(dependencies.size());
  const auto take_attribute = [&](const Attribute& a) {
    const auto number = [&](std::string_view name, std::int64_t& value) {
      if (a.name != name || !a.integer) return false;
      value = *a.integer;
      return true;
    };
    std::int64_t n = 0;
    if (number("is_cpu_op", n)) {
      draft.is_cpu = n != 0;
    } else if (number("involved_dim", n)) {
      draft.involves_all = n != 0;
    } else if (a.name == "pg_name") {
      draft.group = a.text;
    } else if (number("comm_size", draft.comm_size) || number("comm_type", draft.comm_type) ||
               number("comm_src", draft.source) || number("comm_dst", draft.destination) ||
               number("comm_tag", draft.tag) || number("comm_priority", draft.priority) ||
               number("stream", draft.stream) || number("tid", draft.thread) || number("num_ops", node.operations) ||
               number("tensor_size", node.bytes) || !is_ours) {
      return;
    } else if (number(own::place, node.place)) {
      draft.has_place = true;
    } else if (number(own::asynchronous, n)) {
      draft.is_asynchronous = n != 0;
    } else if (number(own::micro_batch, n)) {
      node.micro_batch = static_cast<std::uint32_t>(n);
    } else if (a.name == own::kind) {
      draft.kind = kind_named(a.text);
    } else {
      number(own::duration_ns, own_duration) || number(own::start_ns, node.start_ns) || number(own::lane, draft.lane) ||
          number(own::collective, draft.collective);
    }
  };
  while (message.next()) {
    switch (message.field()) {
      case node_field::id:
        node.id = static_cast<std::uint64_t>(message.integer());
        break;
      case node_field::name:
        draft.name = message.text();
        break;
      case node_field::type:
        type = message.integer();
        break;
      case node_field::control_dependencies:
        message.each_integer([&](std::int64_t id) { dependencies.push_back(static_cast<std::uint64_t>(id)); });
        break;
      case node_field::data_dependencies:
        message.each_integer([&](std::int64_t id) { on_data.push_back(static_cast<std::uint64_t>(id)); });
        break;
      case node_field::start_micros:
        start_micros = message.integer();
        break;
      case node_field::duration_micros:
        duration_micros = message.integer();
        break;
      case node_field::inputs:
        for (WireReader io = message.message(); io.next();) {
          if (io.field() == io_field::values) draft.input_values = io.text();
          if (io.field() == io_field::types) draft.input_types = io.text();
        }
        break;
      case node_field::attribute:
        take_attribute(read_attribute(message.message()));
        break;
      default:
        break;
    }
  }
  node.controls = static_cast<std::uint32_t>(dependencies.size() - node.first_dependency);
  dependencies.insert(dependencies.end(), on_data.begin(), on_data.end());
  node.dependencies = node.controls + static_cast<std::uint32_t>(on_data.size());
  const auto fail = [&](std::string_view what) {
    fail_user("{}: node {} '{:.60}': {}; {}", message.file(), node.id, draft.name, what, kAdvice);
  };
  if (dependencies.size() >= kNone) fail("there are too many dependencies");
  if (type < 0 || type > static_cast<int>(NodeType::checkpoint))
    fail(fmt::format("there is no type {} of nodes", type));
  draft.type = static_cast<NodeType>(type);
  // Ours where there are any, else those in whole microseconds.
  const auto to_ns = [&](std::int64_t own_ns, std::int64_t micros, std::string_view what) {
    if (micros < 0 || micros > kMostNs / 1000 || own_ns > kMostNs) fail(fmt::format("its {} is out of range", what));
    return own_ns >= 0 ? own_ns : micros * 1000;
  };
  draft.has_own_times = node.start_ns >= 0;
  const bool is_timed = node.start_ns >= 0 || start_micros != 0;
  node.start_ns = is_timed ? to_ns(node.start_ns, start_micros, "time of start") : -1;
  node.duration_ns = to_ns(own_duration, duration_micros, "duration");
  if (node.operations < 0 || node.bytes < 0) fail("num_ops or tensor_size is negative");
  return draft;
}

}  // namespace overtake::chakra
