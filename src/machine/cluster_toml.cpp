// Reads a machine file. It is TOML; which keys a section has
// is in cluster_fields, what must hold between sections in cluster_check.

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/error.h"
#include "base/nearest_word.h"
#include "base/toml.h"
#include "machine/cluster_check.h"
#include "machine/cluster_fields.h"
#include "overtake/cluster.h"

namespace overtake {
namespace {

constexpr std::int32_t kMaxCount = 1 << 20;

// A key with its value. The library sorts keys by name, and what comes first in the file has the lower number here.
struct Entry {
  std::string key;
  const toml::node* value;
  toml::source_position at;

  int line() const { return static_cast<int>(at.line); }
};
bool is_before(const toml::source_position& a, const toml::source_position& b) {
  return std::tie(a.line, a.column) < std::tie(b.line, b.column);
}
std::vector<Entry> in_file_order(const toml::table& table) {
  std::vector<Entry> entries;
  for (auto&& [key, value] : table) entries.push_back({std::string(key.str()), &value, key.source().begin});
  std::ranges::stable_sort(entries, is_before, &Entry::at);
  return entries;
}

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

// A value as a message shows it.
std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("\"{}\"", text->get());
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return node.is_table() ? "a table" : node.is_array() ? "a list" : "a date or a time";
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// The line of the first section header of a file in the form before TOML ("device NAME"); 0 where it is none.
int line_of_old_form(std::string_view text) {
  for (int line = 1; !text.empty(); ++line) {
    std::string_view rest = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), rest.size() + 1));
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" \t\r")));
    if (rest.empty() || rest.front() == '#') continue;
    for (const std::string_view word : {"cluster", "device", "node", "switch", "link"}) {
      if (!rest.starts_with(word)) continue;
      const std::string_view name = rest.substr(word.size());
      const std::size_t at = name.find_first_not_of(" \t");
      if (at != 0 && at != std::string_view::npos && name[at] != '=' && name[at] != '.') return line;
    }
    return 0;
  }
  return 0;
}

class Reader {
 public:
  Reader(const toml::table& file, const std::string& where) : file_(file), where_(where) {}

  Cluster read() {
    for (const Entry& entry : in_file_order(file_)) {
      if (entry.key == "name") {
        read_value(entry.key, *entry.value, Text{&cluster_.name});
      } else if (entry.key == "network") {
        read_value(entry.key, *entry.value, &cluster_.network);
      } else if (entry.key == "device") {
        for (const Entry& section : sections(entry, "device")) read_device(section);
      } else if (entry.key == "node") {
        for (const Entry& section : sections(entry, "node")) read_node(section);
      } else if (entry.key == "switch") {
        for (const Entry& section : sections(entry, "switch")) switches_.push_back({"", section});
      } else if (entry.key == "link") {
        read_links(entry);
      } else if (entry.key == "torus") {
        read_tori(entry);
      } else {
        fail(entry.line(),
             "unknown key: \"{}\"; a machine has a name, a network and sections [device.NAME], [node.NAME], "
             "[switch.NAME], [node.NODE.switch.NAME], [[link]] and [[torus]]{}",
             entry.key, did_you_mean(entry.key, {"name", "network", "device", "node", "switch", "link", "torus"}));
      }
    }
    read_switches();
    check_cluster(cluster_, lines_, where_);
    return std::move(cluster_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(int line, fmt::format_string<Args...> text, Args&&... args) const {
    fail_user("{}:{}: {}", where_, line, fmt::format(text, std::forward<Args>(args)...));
  }

  // The sections [path.NAME].
  std::vector<Entry> sections(const Entry& entry, const std::string& path) const {
    const toml::table* table = entry.value->as_table();
    if (table == nullptr)
      fail(entry.line(), "{}: not a section: {}; begin one with [{}.NAME]", path, shown(*entry.value), path);
    std::vector<Entry> all = in_file_order(*table);
    for (const Entry& section : all) {
      if (!section.value->is_table())
        fail(section.line(), "{}.{}: not a section: {}; begin one with [{}.NAME]", path, section.key,
             shown(*section.value), path);
      if (!is_name(section.key))
        fail(section.line(), "{}: not a name: \"{}\"; use letters, digits, - and _", path, section.key);
    }
    return all;
  }

  void read_device(const Entry& section) {
    DeviceType& d = cluster_.devices.emplace_back();
    d.name = section.key;
    read_keys(*section.value->as_table(), section.line(), fmt::format("[device.{}]", d.name),
              [&] { return fields_of(d); });
    if (d.tf32_flops == 0) d.tf32_flops = d.f32_flops;
    if (d.bf16_flops == 0) d.bf16_flops = d.f32_flops;
  }

  void read_node(const Entry& section) {
    const toml::table& table = *section.value->as_table();
    NodeType& n = cluster_.nodes.emplace_back();
    n.name = section.key;
    lines_.nodes.push_back(section.line());
    read_keys(
        table, section.line(), fmt::format("[node.{}]", n.name), [&] { return fields_of(n); }, "switch");
    for (const Entry& entry : in_file_order(table))
      if (entry.key == "switch")
        for (const Entry& inner : sections(entry, fmt::format("node.{}.switch", n.name)))
          switches_.push_back({n.name, inner});
  }

  // Those of nodes and those outside, in the order of the file.
  void read_switches() {
    std::ranges::stable_sort(switches_, is_before, [](const SwitchSection& s) { return s.section.at; });
    for (const auto& [node, section] : switches_) {
      SwitchType& s = cluster_.switches.emplace_back();
      s.node = node;
      s.name = section.key;
      lines_.switches.push_back(section.line());
      const std::string header =
          node.empty() ? fmt::format("[switch.{}]", s.name) : fmt::format("[node.{}.switch.{}]", node, s.name);
      read_keys(*section.value->as_table(), section.line(), header, [&] { return fields_of(s); });
    }
  }

  void read_links(const Entry& entry) {
    const toml::array* all = entry.value->as_array();
    if (all == nullptr)
      fail(entry.line(), "link: not a list of links: {}; begin each with [[link]]", shown(*entry.value));
    for (const toml::node& node : *all) {
      const toml::table* table = node.as_table();
      if (table == nullptr) fail(line_of(node), "link: not a section: {}; begin each with [[link]]", shown(node));
      LinkType link;
      std::vector<LinkEnds> pairs;
      read_keys(*table, line_of(node), "[[link]]", [&] { return fields_of(link, pairs); });
      for (const LinkEnds& ends : pairs) {
        link.from = ends.from;
        link.to = ends.to;
        cluster_.links.push_back(link);
        lines_.links.push_back(line_of(*table->get("between")));
      }
    }
  }

  void read_tori(const Entry& entry) {
    const toml::array* all = entry.value->as_array();
    if (all == nullptr)
      fail(entry.line(), "torus: not a list of tori: {}; begin each with [[torus]]", shown(*entry.value));
    for (const toml::node& node : *all) {
      const toml::table* table = node.as_table();
      if (table == nullptr) fail(line_of(node), "torus: not a section: {}; begin each with [[torus]]", shown(node));
      TorusType& torus = cluster_.tori.emplace_back();
      read_keys(*table, line_of(node), "[[torus]]", [&] { return fields_of(torus); });
      lines_.tori.push_back(line_of(node));
    }
  }

  // Reads the fields of a section in their own order, so that what they tell of each other holds: a device with a
  // profile needs no rates. `also` is a key that somebody else reads.
  template <class Fields>
  void read_keys(const toml::table& table, int line, const std::string& section, const Fields& fields,
                 std::string_view also = "") const {
    const std::vector<ClusterField> known = fields();
    for (const Entry& entry : in_file_order(table)) {
      if (entry.key == also || std::ranges::find(known, entry.key, &ClusterField::key) != known.end()) continue;
      std::string list;
      for (const ClusterField& f : known) list += fmt::format("{}{}", list.empty() ? "" : ", ", f.key);
      fail(entry.line(), "unknown key in {}: \"{}\"; known are {}{}", section, entry.key, list,
           did_you_mean(entry.key, known, [](const ClusterField& f) { return f.key; }));
    }
    for (const ClusterField& f : known)
      if (const toml::node* value = table.get(f.key))
        std::visit([&](const auto& place) { read_value(f.key, *value, place); }, f.place);
    for (const ClusterField& f : fields())
      if (f.is_required && !table.contains(f.key))
        fail(line, "{}: missing in {}; add \"{} = ...\"", f.key, section, f.key);
  }

  void read_value(std::string_view key, const toml::node& node, const Integer& place) const {
    std::optional<std::int64_t> number;
    if (const auto* text = node.as_string()) number = parse_quantity(text->get(), place.measure);
    if (const auto* whole = node.as_integer(); whole != nullptr && whole->get() >= 0) number = whole->get();
    if (!number && place.measure == Measure::count)
      fail(line_of(node), "{}: not a count: {}; write a whole number", key, shown(node));
    if (!number)
      fail(line_of(node), "{}: not a number with a known unit: {}; write a number and, in the same quotes, one of: {}",
           key, shown(node), unit_list(place.measure));
    if (*number == 0 && !place.may_be_zero) fail(line_of(node), "{}: zero: {}; it must be more", key, shown(node));
    *place.value = *number;
  }
  void read_value(std::string_view key, const toml::node& node, const Count& place) const {
    const auto* whole = node.as_integer();
    if (whole == nullptr || whole->get() < 1 || whole->get() > kMaxCount)
      fail(line_of(node), "{}: not a count: {}; write a whole number from 1 to {}", key, shown(node), kMaxCount);
    *place.value = static_cast<std::int32_t>(whole->get());
  }
  void read_value(std::string_view key, const toml::node& node, const Factor& place) const {
    const std::optional<double> number = node.is_number() ? node.value<double>() : std::nullopt;
    if (!number || !(*number >= place.least && *number <= place.most))
      fail(line_of(node), "{}: out of range: {}; write a number from {} to {}", key, shown(node), place.least,
           place.most);
    *place.value = *number;
  }
  void read_value(std::string_view key, const toml::node& node, const Text& place) const {
    const auto* text = node.as_string();
    if (text == nullptr || text->get().empty())
      fail(line_of(node), "{}: no text: {}; write one in quotes", key, shown(node));
    *place.value = text->get();
  }
  void read_value(std::string_view key, const toml::node& node, const Slots& place) const {
    const toml::table* table = node.as_table();
    if (table == nullptr || table->empty())
      fail(line_of(node), "{}: not devices with their numbers: {}; write {{ gpu = 8 }} or {{ gpu = 8, cpu = 2 }}", key,
           shown(node));
    for (const Entry& entry : in_file_order(*table)) {
      if (!is_name(entry.key))
        fail(entry.line(), "{}: not a name: \"{}\"; use letters, digits, - and _", key, entry.key);
      DeviceSlot& slot = place.value->emplace_back();
      slot.device = entry.key;
      read_value(fmt::format("{}.{}", key, entry.key), *entry.value, Count{&slot.count});
    }
  }
  void read_value(std::string_view key, const toml::node& node, const Levels& place) const {
    const toml::array* levels = node.as_array();
    if (levels == nullptr || levels->empty() || !levels->is_homogeneous<toml::table>())
      fail(line_of(node),
           "{}: not a list of memories: {}; write [{{ capacity = \"80 GB\", bandwidth = \"3.35 TB/s\" }}], outermost "
           "first",
           key, shown(node));
    for (const toml::node& level : *levels) {
      MemoryLevel& place_of_level = place.value->emplace_back();
      read_keys(*level.as_table(), line_of(level), fmt::format("a {} of [device.{}]", key, place.device->name),
                [&] { return fields_of(place_of_level, *place.device); });
    }
  }
  void read_value(std::string_view key, const toml::node& node, const Pairs& place) const {
    const toml::array* list = node.as_array();
    if (list == nullptr || list->empty()) fail_pair(key, node);
    if (list->is_homogeneous<std::string>()) return place.value->push_back(ends_of(key, *list));
    for (const toml::node& pair : *list) {
      if (!pair.is_array()) fail_pair(key, pair);
      place.value->push_back(ends_of(key, *pair.as_array()));
    }
  }
  void read_value(std::string_view key, const toml::node& node, const Ends& place) const {
    if (!node.is_string()) fail(line_of(node), "{}: not devices: {}; write \"NODE/DEVICE\"", key, shown(node));
    *place.value = end_of(key, node);
  }
  void read_value(std::string_view key, const toml::node& node, const Sizes& place) const {
    const toml::array* sizes = node.as_array();
    if (sizes == nullptr || sizes->empty())
      fail(line_of(node), "{}: not sizes: {}; write one per dimension, such as [4, 4, 8]", key, shown(node));
    for (const toml::node& size : *sizes) read_value(key, size, Count{&place.value->emplace_back()});
  }
  template <class Enum>
  void read_value(std::string_view key, const toml::node& node, Enum* const& place) const {
    std::string known;
    for (int i = 0;; ++i) {
      const std::string_view name = to_string(static_cast<Enum>(i));
      if (name.empty()) break;
      if (const auto* text = node.as_string(); text != nullptr && text->get() == name) {
        *place = static_cast<Enum>(i);
        return;
      }
      known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", name);
    }
    fail(line_of(node), "{}: unknown: {}; write one of: {}", key, shown(node), known);
  }

  [[noreturn]] void fail_pair(std::string_view key, const toml::node& node) const {
    fail(line_of(node), "{}: not two ends: {}; write [\"NODE/DEVICE\", \"SWITCH\"], or a list of such pairs", key,
         shown(node));
  }
  LinkEnds ends_of(std::string_view key, const toml::array& pair) const {
    if (pair.size() != 2 || !pair.is_homogeneous<std::string>()) fail_pair(key, pair);
    return {end_of(key, pair[0]), end_of(key, pair[1])};
  }
  Endpoint end_of(std::string_view key, const toml::node& node) const {
    Endpoint end;
    const std::string& text = node.as_string()->get();
    std::string_view rest = text;
    if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
      end.node = rest.substr(0, slash);
      rest.remove_prefix(slash + 1);
    }
    if (const std::size_t dot = rest.find('.'); dot != std::string_view::npos) {
      const std::string_view index = rest.substr(dot + 1);
      const auto [at, error] = std::from_chars(index.data(), index.data() + index.size(), end.index);
      if (error != std::errc() || at != index.data() + index.size() || end.index < 0)
        fail(line_of(node), "{}: not an index: \"{}\"; write NODE/DEVICE.0 for the first", key, text);
      rest = rest.substr(0, dot);
    }
    end.name = rest;
    return end;
  }

  struct SwitchSection {
    std::string node;  // empty: outside
    Entry section;
  };

  const toml::table& file_;
  const std::string& where_;
  Cluster cluster_;
  ClusterLines lines_;
  std::vector<SwitchSection> switches_;
};

}  // namespace

Cluster parse_cluster(std::string_view text, const std::string& where) {
  if (const int line = line_of_old_form(text))
    fail_user(
        "{}:{}: this is the form that cluster files had before; machine files are TOML now, docs/machines.md "
        "says how each line is written in it",
        where, line);
  const toml::table file = parse_toml(text, where, "docs/machines.md has an example");
  return Reader(file, where).read();
}

}  // namespace overtake
