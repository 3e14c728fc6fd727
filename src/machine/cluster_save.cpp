// Prints a cluster as a machine file.

#include <fmt/ranges.h>

#include "base/error.h"
#include "machine/cluster_fields.h"

#include "base/toml.h"

namespace overtake {
namespace {

std::string print(const Integer& place) {
  const std::string text = print_quantity(*place.value, place.measure);
  return place.measure == Measure::count ? text : toml_string(text);
}
std::string print(const Count& place) { return fmt::format("{}", *place.value); }
std::string print(const Factor& place) { return fmt::format("{}", *place.value); }
std::string print(const Text& place) { return toml_string(*place.value); }
std::string print(const Slots& place) {
  std::vector<std::string> slots;
  for (const DeviceSlot& slot : *place.value) slots.push_back(fmt::format("{} = {}", slot.device, slot.count));
  return fmt::format("{{ {} }}", fmt::join(slots, ", "));
}
std::string print(const Pairs& place) {
  std::vector<std::string> pairs;
  for (const LinkEnds& ends : *place.value)
    pairs.push_back(fmt::format("[{}, {}]", toml_string(path_of(ends.from)), toml_string(path_of(ends.to))));
  return pairs.size() == 1 ? pairs[0] : fmt::format("[{}]", fmt::join(pairs, ", "));
}
std::string print(const Ends& place) { return toml_string(path_of(*place.value)); }
std::string print(const Sizes& place) { return fmt::format("[{}]", fmt::join(*place.value, ", ")); }
template <class Enum>
std::string print(Enum* const& place) {
  return toml_string(to_string(*place));
}
std::string print(const Levels& place);

// Keys that were never given stay away.
bool is_absent(const FieldPlace& place) {
  if (const Integer* integer = std::get_if<Integer>(&place)) return *integer->value == 0 && !integer->may_be_zero;
  if (const Text* text = std::get_if<Text>(&place)) return text->value->empty();
  if (const Sizes* sizes = std::get_if<Sizes>(&place)) return sizes->value->empty();
  if (const Levels* levels = std::get_if<Levels>(&place)) return levels->value->empty();
  return false;
}

// "key = value" of every field that is there.
std::vector<std::string> printed(const std::vector<ClusterField>& fields) {
  std::vector<std::string> lines;
  for (const ClusterField& f : fields)
    if (!is_absent(f.place))
      lines.push_back(
          fmt::format("{} = {}", f.key, std::visit([](const auto& place) { return print(place); }, f.place)));
  return lines;
}

std::string print(const Levels& place) {
  std::vector<std::string> levels;
  for (MemoryLevel& level : *place.value)
    levels.push_back(fmt::format("{{ {} }}", fmt::join(printed(fields_of(level, *place.device)), ", ")));
  return fmt::format("[{}]", fmt::join(levels, ", "));
}

void print_section(std::string& out, std::string_view header, const std::vector<ClusterField>& fields) {
  out += fmt::format("\n{}\n{}\n", header, fmt::join(printed(fields), "\n"));
}

}  // namespace

std::string save_cluster(const Cluster& cluster) {
  Cluster c = cluster;  // tables of fields point to what may be changed
  std::string out;
  if (!c.name.empty()) out += fmt::format("name = {}\n", toml_string(c.name));
  if (c.network != NetworkKind::modelled) out += fmt::format("network = {}\n", print(&c.network));
  for (DeviceType& d : c.devices) print_section(out, fmt::format("[device.{}]", d.name), fields_of(d));
  for (NodeType& n : c.nodes) print_section(out, fmt::format("[node.{}]", n.name), fields_of(n));
  for (SwitchType& s : c.switches)
    print_section(
        out, s.node.empty() ? fmt::format("[switch.{}]", s.name) : fmt::format("[node.{}.switch.{}]", s.node, s.name),
        fields_of(s));
  for (LinkType& l : c.links) {
    std::vector<LinkEnds> pairs{{l.from, l.to}};
    print_section(out, "[[link]]", fields_of(l, pairs));
  }
  for (TorusType& t : c.tori) print_section(out, "[[torus]]", fields_of(t));
  return out;
}

}  // namespace overtake
