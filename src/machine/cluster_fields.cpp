#include "machine/cluster_fields.h"

#include "base/error.h"

namespace overtake {

std::vector<ClusterField> fields_of(DeviceType& d) {
  const bool is_described = d.profile.empty();  // what is measured needs no description
  CommunicationCost& c = d.communication;
  return {{"target", &d.target},
          {"profile", Text{&d.profile}},
          {"f32", Integer{&d.f32_flops, Measure::flops}, is_described},
          {"tf32", Integer{&d.tf32_flops, Measure::flops}},
          {"bf16", Integer{&d.bf16_flops, Measure::flops}},
          {"memory", Levels{&d.memories, &d}, is_described},
          {"sms", Count{&d.sms}},
          {"kernels", &d.kernels},
          {"calibration", Text{&d.calibration}},
          {"collective_sms", Count{&c.sms}},
          {"in_network_sms", Count{&c.in_network_sms}},
          {"collective_memory_factor", Factor{&c.memory_factor, 0, 100}},
          {"in_network_memory_factor", Factor{&c.in_network_memory_factor, 0, 100}}};
}
std::vector<ClusterField> fields_of(MemoryLevel& level, const DeviceType& device) {
  const bool is_described = device.profile.empty();
  return {{"name", Text{&level.name}},
          {"capacity", Integer{&level.bytes, Measure::bytes}, is_described},
          {"bandwidth", Integer{&level.bytes_per_s, Measure::bytes_per_s}, is_described}};
}
std::vector<ClusterField> fields_of(NodeType& n) {
  return {{"count", Count{&n.count}}, {"devices", Slots{&n.devices}, true}};
}
std::vector<ClusterField> fields_of(SwitchType& s) {
  Reduction& r = s.reduction;
  const bool adds = r.mode != ReductionMode::none;
  return {{"count", Count{&s.count}},
          {"reduction", &r.mode},
          {"table", Integer{&r.entries, Measure::count}, adds},
          {"entry", Integer{&r.entry_bytes, Measure::bytes}, adds},
          {"round_trip", Integer{&r.round_trip_ns, Measure::nanoseconds}, adds},
          {"fixed_cost", Integer{&r.fixed_ns, Measure::nanoseconds, true}},
          {"efficiency", Factor{&r.efficiency, 1e-3, 1}}};
}
std::vector<ClusterField> fields_of(LinkType& l, std::vector<LinkEnds>& pairs) {
  const bool is_network = l.kind == LinkKind::ethernet || l.kind == LinkKind::infiniband;
  return {{"between", Pairs{&pairs}, true},
          {"kind", &l.kind, true},
          {"bandwidth", Integer{&l.bandwidth, is_network ? Measure::bits_per_s : Measure::bytes_per_s}, true},
          {"latency", Integer{&l.latency_ns, Measure::nanoseconds, true}, true},
          {"count", Count{&l.count}},
          {"wiring", &l.wiring},
          {"oversubscription", Factor{&l.oversubscription, 1, 1e6}}};
}

std::vector<ClusterField> fields_of(TorusType& t) {
  return {{"devices", Ends{&t.devices}, true},
          {"shape", Sizes{&t.shape}},
          {"dimensions", Count{&t.dimensions}},
          {"kind", &t.kind, true},
          {"bandwidth", Integer{&t.bandwidth, Measure::bytes_per_s}, true},
          {"latency", Integer{&t.latency_ns, Measure::nanoseconds, true}, true}};
}

std::string path_of(const std::string& node, const std::string& name) {
  return node.empty() ? name : node + "/" + name;
}
std::string path_of(const Endpoint& end) {
  return path_of(end.node, end.name) + (end.index < 0 ? "" : fmt::format(".{}", end.index));
}

}  // namespace overtake
