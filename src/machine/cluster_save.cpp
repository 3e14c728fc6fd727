// Prints a cluster in its text form.

#include "base/error.h"
#include "machine/cluster_fields.h"

namespace overtake {
namespace {

std::string print(const Integer& place) { return print_quantity(*place.value, place.measure); }
std::string print(const Count& place) { return fmt::format("{}", *place.value); }
std::string print(const Factor& place) { return fmt::format("{}", *place.value); }
std::string print(const Text& place) { return *place.value; }
std::string print(const Slots& place) {
  std::string text;
  for (const DeviceSlot& slot : *place.value)
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", slot.device, slot.count);
  return text;
}
template <class Enum>
std::string print(Enum* const& place) {
  return std::string(to_string(*place));
}

// Keys that were never given stay away.
bool is_absent(const FieldPlace& place) {
  if (const Integer* integer = std::get_if<Integer>(&place)) return *integer->value == 0 && !integer->may_be_zero;
  if (const Text* text = std::get_if<Text>(&place)) return text->value->empty();
  return false;
}

template <class Section>
void print_fields(std::string& out, Section section) {
  for (const Field& f : fields_of(section)) {
    if (is_absent(f.place)) continue;
    out += fmt::format("  {} = {}\n", f.key, std::visit([](const auto& place) { return print(place); }, f.place));
  }
}

std::string print(const Endpoint& e) {
  return path_of(e.node, e.name) + (e.index < 0 ? "" : fmt::format(".{}", e.index));
}

}  // namespace

std::string save_cluster(const Cluster& cluster) {
  std::string out;
  if (!cluster.name.empty()) out += fmt::format("cluster {}\n", cluster.name);
  for (const DeviceType& d : cluster.devices) {
    out += fmt::format("\ndevice {}\n", d.name);
    print_fields(out, d);
  }
  for (const NodeType& n : cluster.nodes) {
    out += fmt::format("\nnode {} x{}\n", n.name, n.count);
    print_fields(out, n);
  }
  for (const SwitchType& s : cluster.switches) {
    out += fmt::format("\nswitch {} x{}\n", path_of(s.node, s.name), s.count);
    print_fields(out, s);
  }
  for (const LinkType& l : cluster.links) {
    out += fmt::format("\nlink {} {}\n", print(l.from), print(l.to));
    print_fields(out, l);
  }
  return out;
}

}  // namespace overtake
