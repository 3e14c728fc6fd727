// The text form of a cluster. One table per kind of section says which keys it has; reading and printing both follow
// it.

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "machine/cluster.h"
#include "machine/cluster_fields.h"

namespace overtake {
namespace {

constexpr std::int32_t kMaxCount = 1 << 20;
constexpr std::int64_t kMaxVertices = 1 << 20, kMaxLinks = 1 << 22;

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Cluster parse() {
    for (std::string_view line : split(text_, '\n')) {
      ++line_;
      line = trim(line.substr(0, line.find('#')));
      if (line.empty()) continue;
      if (line.find('=') == std::string_view::npos) {
        begin_section(line);
      } else {
        read_key(line);
      }
    }
    end_section();
    check_names();
    check_links();
    check_reach();
    return std::move(cluster_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(int line, fmt::format_string<Args...> text, Args&&... args) const {
    fail_user("{}:{}: {}", where_, line, fmt::format(text, std::forward<Args>(args)...));
  }

  void begin_section(std::string_view line) {
    std::vector<std::string_view> words;
    for (const std::string_view word : split(line, ' '))
      if (!word.empty()) words.push_back(word);
    // Headers of links right below one another share the keys that follow.
    const bool is_stacked = section_ == "link" && words[0] == "link" && seen_.empty();
    if (!is_stacked) end_section();
    stacked_ = is_stacked ? stacked_ + 1 : 0;
    section_ = words[0];
    section_line_ = line_;
    seen_.clear();
    if (section_ == "cluster") {
      if (words.size() != 2) fail(line_, "cluster: no single name: \"{}\"; write \"cluster NAME\"", line);
      cluster_.name = words[1];
    } else if (section_ == "device") {
      const Header h = header(words, "device NAME", false);
      cluster_.devices.push_back({.name = h.name});
      lines_.devices.push_back(line_);
    } else if (section_ == "node") {
      const Header h = header(words, "node NAME x4", true);
      cluster_.nodes.push_back({.name = h.name, .count = h.count});
      lines_.nodes.push_back(line_);
    } else if (section_ == "switch") {
      const Header h = header(words, "switch NAME x2 or switch NODE/NAME", true, true);
      cluster_.switches.push_back({.node = h.node, .name = h.name, .count = h.count});
      lines_.switches.push_back(line_);
    } else if (section_ == "link") {
      if (words.size() != 3) fail(line_, "link: not two ends: \"{}\"; write \"link NODE/DEVICE SWITCH\"", line);
      cluster_.links.push_back({.from = endpoint(words[1]), .to = endpoint(words[2])});
      lines_.links.push_back(line_);
    } else {
      fail(line_, "unknown section: \"{}\"; write cluster, device, node, switch or link, or a key as \"key = value\"",
           section_);
    }
  }

  struct Header {
    std::string node, name;
    std::int32_t count = 1;
  };
  Header header(const std::vector<std::string_view>& words, std::string_view form, bool may_repeat,
                bool may_be_inside = false) const {
    Header h;
    const bool repeats = may_repeat && words.size() == 3 && words[2].front() == 'x' &&
                         read_number(words[2].substr(1), h.count) && h.count > 0 && h.count <= kMaxCount;
    if (words.size() < 2 || words.size() > 3 || (words.size() == 3 && !repeats))
      fail(line_, "{}: not a name{}; write \"{}\", at most x{}", section_, may_repeat ? " and a repeat count" : "",
           form, kMaxCount);
    const std::size_t slash = may_be_inside ? words[1].find('/') : std::string_view::npos;
    if (slash != std::string_view::npos) h.node = words[1].substr(0, slash);
    h.name = slash == std::string_view::npos ? words[1] : words[1].substr(slash + 1);
    if (!is_name(h.name) || (slash != std::string_view::npos && !is_name(h.node)))
      fail(line_, "{}: not a name: \"{}\"; use letters, digits, - and _", section_, words[1]);
    return h;
  }

  Endpoint endpoint(std::string_view text) const {
    Endpoint e;
    std::string_view rest = text;
    if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
      e.node = rest.substr(0, slash);
      rest.remove_prefix(slash + 1);
    }
    if (const std::size_t dot = rest.find('.'); dot != std::string_view::npos) {
      if (!read_number(rest.substr(dot + 1), e.index) || e.index < 0)
        fail(line_, "link: not an index: \"{}\"; write NODE/DEVICE.0 for the first", text);
      rest = rest.substr(0, dot);
    }
    e.name = rest;
    return e;
  }

  std::vector<Field> fields() {
    if (section_ == "device") return fields_of(cluster_.devices.back());
    if (section_ == "node") return fields_of(cluster_.nodes.back());
    if (section_ == "switch") return fields_of(cluster_.switches.back());
    if (section_ == "link") return fields_of(cluster_.links.back());
    return {};
  }

  void read_key(std::string_view line) {
    const std::size_t at = line.find('=');
    const std::string_view key = trim(line.substr(0, at)), value = trim(line.substr(at + 1));
    if (section_.empty()) fail(line_, "{}: a key before the first section; begin with \"device NAME\"", key);
    const std::vector<Field> known = fields();
    const auto field = std::find_if(known.begin(), known.end(), [&](const Field& f) { return f.key == key; });
    if (field == known.end()) {
      std::string list;
      for (const Field& f : known) list += fmt::format("{}{}", list.empty() ? "" : ", ", f.key);
      fail(line_, "unknown key in section {}: \"{}\"; {}", section_, key,
           known.empty() ? "it has no keys" : "known are " + list);
    }
    if (!seen_.insert(std::string(key)).second) fail(line_, "{}: given twice in this section; keep one", key);
    std::visit([&](const auto& place) { read_value(key, value, place); }, field->place);
  }

  void read_value(std::string_view key, std::string_view value, const Integer& place) const {
    const std::optional<std::int64_t> number = parse_quantity(value, place.measure);
    if (!number)
      fail(line_, "{}: not a number with a known unit: \"{}\"; write a number and one of: {}", key, value,
           unit_list(place.measure));
    if (*number == 0 && !place.may_be_zero) fail(line_, "{}: zero: \"{}\"; it must be more", key, value);
    *place.value = *number;
  }
  void read_value(std::string_view key, std::string_view value, const Count& place) const {
    std::int32_t number = 0;
    if (!read_number(value, number) || number < 1 || number > kMaxCount)
      fail(line_, "{}: not a count: \"{}\"; write a whole number from 1 to {}", key, value, kMaxCount);
    *place.value = number;
  }
  void read_value(std::string_view key, std::string_view value, const Factor& place) const {
    double number = 0;
    if (!read_number(value, number) || !(number >= place.least && number <= place.most))
      fail(line_, "{}: out of range: \"{}\"; write a number from {} to {}", key, value, place.least, place.most);
    *place.value = number;
  }
  void read_value(std::string_view key, std::string_view value, const Text& place) const {
    if (value.empty()) fail(line_, "{}: empty; name a file", key);
    *place.value = value;
  }
  void read_value(std::string_view key, std::string_view value, const Slots& place) const {
    for (const std::string_view part : split(value, ',')) {
      const std::size_t space = part.find(' ');
      DeviceSlot slot{.device = std::string(part.substr(0, space))};
      const std::string_view count = space == std::string_view::npos ? "x1" : trim(part.substr(space));
      if (!is_name(slot.device) || count.front() != 'x' || !read_number(count.substr(1), slot.count) ||
          slot.count < 1 || slot.count > kMaxCount)
        fail(line_, "{}: not a list of devices: \"{}\"; write \"gpu x8\" or \"gpu x8, cpu x2\"", key, value);
      place.value->push_back(slot);
    }
  }
  template <class Enum>
  void read_value(std::string_view key, std::string_view value, Enum* const& place) const {
    std::string known;
    for (int i = 0; i < 4; ++i) {
      const std::string_view name = to_string(static_cast<Enum>(i));
      if (name.empty()) break;
      if (name == value) {
        *place = static_cast<Enum>(i);
        return;
      }
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    }
    fail(line_, "{}: unknown: \"{}\"; write one of: {}", key, value, known);
  }

  // Keys that must be there, and values that follow from others.
  void end_section() {
    for (const Field& f : fields())
      if (f.is_required && !seen_.contains(std::string(f.key)))
        fail(section_line_, "{}: missing in this section {}; add \"{} = ...\"", f.key, section_, f.key);
    if (section_ == "device") {
      DeviceType& d = cluster_.devices.back();
      if (d.tf32_flops == 0) d.tf32_flops = d.f32_flops;
      if (d.bf16_flops == 0) d.bf16_flops = d.f32_flops;
    }
    if (section_ == "link") {
      std::vector<LinkType>& links = cluster_.links;
      for (std::size_t i = links.size() - 1 - stacked_; i + 1 < links.size(); ++i) {
        LinkType shared = links.back();
        shared.from = links[i].from;
        shared.to = links[i].to;
        links[i] = shared;
      }
    }
  }

  void check_names() {
    std::set<std::string> devices;
    for (std::size_t i = 0; i < cluster_.devices.size(); ++i)
      if (!devices.insert(cluster_.devices[i].name).second) fail_twice(lines_.devices[i], cluster_.devices[i].name);
    std::set<std::string> nodes;
    for (std::size_t i = 0; i < cluster_.nodes.size(); ++i) {
      const NodeType& node = cluster_.nodes[i];
      if (!nodes.insert(node.name).second) fail_twice(lines_.nodes[i], node.name);
      for (const DeviceSlot& slot : node.devices) {
        if (!devices.contains(slot.device))
          fail(lines_.nodes[i], "devices: unknown device: \"{}\"; describe it in a section \"device {}\"", slot.device,
               slot.device);
        if (!ends_.emplace(path_of(node.name, slot.device), slot.count).second)
          fail_twice(lines_.nodes[i], path_of(node.name, slot.device));
        vertices_ += std::int64_t{node.count} * slot.count;
      }
      node_counts_[node.name] = node.count;
    }
    if (cluster_.nodes.empty()) fail(line_, "node: no section of this kind; add \"node NAME\" with its devices");
    for (std::size_t i = 0; i < cluster_.switches.size(); ++i) {
      const SwitchType& s = cluster_.switches[i];
      if (!s.node.empty() && !nodes.contains(s.node))
        fail(lines_.switches[i], "switch: unknown node: \"{}\"; describe it in a section \"node {}\"", s.node, s.node);
      if (!ends_.emplace(path_of(s.node, s.name), s.count).second)
        fail_twice(lines_.switches[i], path_of(s.node, s.name));
      vertices_ += std::int64_t{s.count} * (s.node.empty() ? 1 : node_counts_[s.node]);
    }
    if (vertices_ > kMaxVertices)
      fail(lines_.nodes[0], "node: too large: {} devices and switches; at most {}", vertices_, kMaxVertices);
  }
  [[noreturn]] void fail_twice(int line, const std::string& name) const {
    fail(line, "duplicate name: \"{}\"; give each its own", name);
  }

  void check_links() const {
    std::int64_t links = 0;
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const LinkType& l = cluster_.links[i];
      std::int64_t pairs = l.count;
      for (const Endpoint* e : {&l.from, &l.to}) {
        const auto end = ends_.find(path_of(e->node, e->name));
        if (end == ends_.end())
          fail(lines_.links[i],
               "link: unknown end: \"{}\"; write NODE/DEVICE, NODE/SWITCH or SWITCH as in the sections",
               path_of(e->node, e->name));
        if (e->index >= end->second)
          fail(lines_.links[i], "link: index out of range: \"{}.{}\"; there are {}, from 0", end->first, e->index,
               end->second);
        pairs *= e->index >= 0 || l.wiring == Wiring::rail ? 1 : end->second;
      }
      if (!l.from.node.empty() && !l.to.node.empty() && l.from.node != l.to.node)
        fail(lines_.links[i], "link: ends in two kinds of nodes: {} and {}; put a switch outside them between",
             l.from.node, l.to.node);
      if (l.from == l.to && l.from.index >= 0) fail(lines_.links[i], "link: both ends are the same; name two");
      const std::string& node = l.from.node.empty() ? l.to.node : l.from.node;
      links += pairs * (node.empty() ? 1 : node_counts_.at(node));
      if (links > kMaxLinks) fail(lines_.links[i], "link: too many links: {}; at most {}", links, kMaxLinks);
    }
  }

  void check_reach() const {
    const Topology topology = make_topology(cluster_);
    const Unreachable pair = find_unreachable(topology);
    if (pair.from == pair.to) return;
    std::size_t type = 0;  // the node type of the second device
    for (std::int64_t first = 0; type + 1 < cluster_.nodes.size(); ++type)
      if (first += cluster_.nodes[type].count; first > topology.vertices[pair.to].node) break;
    fail(lines_.nodes[type], "link: missing: {} cannot reach {}; add \"link\" sections that join them through switches",
         topology.vertices[pair.from].name, topology.vertices[pair.to].name);
  }

  std::string_view text_;
  const std::string& where_;
  int line_ = 0;
  Cluster cluster_;
  std::string_view section_;
  int section_line_ = 0;
  std::set<std::string> seen_;  // keys of the section
  std::size_t stacked_ = 0;     // headers of links above this one that share its keys
  struct {
    std::vector<int> devices, nodes, switches, links;
  } lines_;                                          // of the section headers
  std::map<std::string, std::int32_t> ends_;         // what a link may name: how many of it
  std::map<std::string, std::int32_t> node_counts_;  // per node type
  std::int64_t vertices_ = 0;
};

}  // namespace

Cluster parse_cluster(std::string_view text, const std::string& where) { return Parser(text, where).parse(); }

}  // namespace overtake
