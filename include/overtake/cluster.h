#pragma once
// A cluster as people describe it: kinds of devices, nodes that hold them, switches, and links between them. Plain
// data; its text form is a machine file (docs/machines.md). make_topology() writes out every single device, switch and
// link.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/memory_level.h"
#include "overtake/types.h"

namespace overtake {

// What a collective takes from computation on the same device.
struct CommunicationCost {
  std::int32_t sms = 16;                // held while a collective of rings, trees or exchanges runs
  std::int32_t in_network_sms = 4;      // held while a switch reduces
  double memory_factor = 3;             // device memory bandwidth per byte/s on the link: a ring reads, reads, writes
  double in_network_memory_factor = 2;  // the switch reduces: read once, written once
  bool operator==(const CommunicationCost&) const = default;
};

// Whose kernels a step is planned for.
enum class DeviceTarget : std::uint8_t { gpu, cpu };

// By which table it is computed what the kernels of a device take (src/machine/kernel_times).
enum class KernelGeneration : std::uint8_t { generic, volta, ampere, hopper, cpu };

struct DeviceType {
  std::string name;
  DeviceTarget target = DeviceTarget::gpu;
  std::int64_t f32_flops = 0;  // per second, dense; tf32 and bf16 are as f32 where the file says nothing
  std::int64_t tf32_flops = 0;
  std::int64_t bf16_flops = 0;
  std::vector<MemoryLevel> memories{};  // outermost first
  std::int32_t sms = 1;                 // or cores: what can be busy at once
  KernelGeneration kernels = KernelGeneration::generic;
  std::string profile{};      // a file of measured times; empty for none
  std::string calibration{};  // a file of a few measured kernels, which correct that table; empty for none
  CommunicationCost communication{};

  // Of the outermost memory, where tensors lie; 0 where the description does not tell.
  std::int64_t memory_bytes() const { return memories.empty() ? 0 : memories.front().bytes; }
  std::int64_t memory_bytes_per_s() const { return memories.empty() ? 0 : memories.front().bytes_per_s; }
  bool operator==(const DeviceType&) const = default;
};

struct DeviceSlot {
  std::string device;  // a DeviceType
  std::int32_t count = 1;
  bool operator==(const DeviceSlot&) const = default;
};

struct NodeType {
  std::string name;
  std::int32_t count = 1;
  std::vector<DeviceSlot> devices{};
  bool operator==(const NodeType&) const = default;
};

enum class ReductionMode : std::uint8_t {
  none,
  push,  // devices send, the switch adds and sends the sum to all
  pull   // each device loads sums of its share through the switch and stores them to all (NVLS)
};

// What a switch that adds can do. Sums per second are at most entries * entry_bytes / round_trip.
struct Reduction {
  ReductionMode mode = ReductionMode::none;
  std::int64_t entries = 0;  // sums the switch holds at once
  std::int64_t entry_bytes = 0;
  std::int64_t round_trip_ns = 0;  // for which an entry is held
  std::int64_t fixed_ns = 0;       // before the first byte
  double efficiency = 1;           // share of the link's bandwidth that is payload
  bool operator==(const Reduction&) const = default;
};

struct SwitchType {
  std::string node;  // the NodeType each of whose nodes has its own; empty: of the cluster
  std::string name;
  std::int32_t count = 1;
  Reduction reduction{};
  bool operator==(const SwitchType&) const = default;
};

enum class LinkKind : std::uint8_t { ici, nvlink, pcie, ethernet, infiniband };  // networks last
enum class Wiring : std::uint8_t {
  all,   // each of the one side with each of the other
  rail,  // the i-th of the one side (in its node) with the i-th of the other
  block  // the nodes in as many blocks as there are switches on the other side, one for each block
};

// "leaf", "dgx/h100" (all of them in a node) or "dgx/h100.3" (the fourth).
struct Endpoint {
  std::string node;  // empty: of the cluster
  std::string name;
  std::int32_t index = -1;  // -1: all
  bool operator==(const Endpoint&) const = default;
};

// Both directions have the bandwidth. Ends in one node type: inside every such node.
struct LinkType {
  Endpoint from, to;
  LinkKind kind = LinkKind::ethernet;
  Wiring wiring = Wiring::all;
  std::int32_t count = 1;       // parallel links; a flow takes one of them
  std::int64_t bandwidth = 0;   // bytes/s in each direction, of one link
  std::int64_t latency_ns = 0;  // of one hop
  double oversubscription = 1;  // the bandwidth is divided by this
  bool operator==(const LinkType&) const = default;
};

// Devices that are joined to their neighbours along each dimension, the last to the first, and pass on what is for
// others: a ring, a 2-D torus, a 3-D torus. They are taken in their own order, along the last dimension first.
struct TorusType {
  Endpoint devices;                   // all of a kind in a kind of node
  std::vector<std::int32_t> shape{};  // empty: as equal as their number allows
  std::int32_t dimensions = 3;        // where there is no shape
  LinkKind kind = LinkKind::ici;
  std::int64_t bandwidth = 0;  // bytes/s in each direction, of one link between neighbours
  std::int64_t latency_ns = 0;
  bool operator==(const TorusType&) const = default;
};

enum class NetworkKind : std::uint8_t {
  modelled,  // as its links say
  ideal      // every transfer takes no time, whatever they say
};

struct Cluster {
  std::string name;
  NetworkKind network = NetworkKind::modelled;
  std::vector<DeviceType> devices;
  std::vector<NodeType> nodes;
  std::vector<SwitchType> switches;
  std::vector<LinkType> links;
  std::vector<TorusType> tori{};
  bool operator==(const Cluster&) const = default;
};

// The sizes of a torus of so many devices along its dimensions, the largest last.
std::vector<std::int32_t> shape_of(const TorusType& torus, std::int64_t devices);

// Every device, switch and directed link. Vertices are numbered from 0, devices first.
struct Vertex {
  std::string name;            // "dgx.0/h100.3", "leaf.2"
  std::uint32_t type = 0;      // in Cluster::devices or Cluster::switches
  std::uint32_t node = kNone;  // number of the node, over all node types; kNone: outside
};
struct DirectedLink {
  std::uint32_t from = 0, to = 0;  // vertices
  LinkKind kind = LinkKind::ethernet;
  std::int64_t bandwidth = 0;  // bytes/s, oversubscription taken off
  std::int64_t latency_ns = 0;
};
struct Torus {
  std::vector<std::uint32_t> devices;  // by place: the last dimension counts fastest
  std::vector<std::uint32_t> shape;
  // Per place and dimension: the link to the next device there; kNone where there is no other.
  std::vector<std::uint32_t> forward;
};
struct Topology {
  std::vector<Vertex> vertices;
  std::uint32_t device_count = 0;
  std::uint32_t node_count = 0;
  std::vector<DirectedLink> links;  // 2i and 2i + 1 are the two directions of one cable
  std::vector<Torus> tori{};

  bool is_device(std::uint32_t vertex) const { return vertex < device_count; }
};

// The cluster must be one that parse_cluster would accept.
Topology make_topology(const Cluster& cluster);

// Two devices with no way between them; only devices of a torus forward, to others of it. Equal ids: every device
// reaches every other.
struct Unreachable {
  std::uint32_t from = 0, to = 0;
};
Unreachable find_unreachable(const Topology& topology);

// `where` (a file's name) begins every message. A cluster that parses is whole: every name is known, all devices reach
// one another, no bandwidth is zero.
Cluster parse_cluster(std::string_view text, const std::string& where);
std::string save_cluster(const Cluster& cluster);  // parse_cluster(save_cluster(c)) == c

// A file, or a preset with or without a number of nodes: "dgx-h100", "dgx-h100:4".
Cluster load_cluster(const std::string& file_or_preset);
std::vector<std::string> preset_names();
std::string_view preset_text(std::string_view name);  // a machine file with its sources; empty when there is none such

std::string describe(const Cluster& cluster);  // a few lines for people

std::string_view to_string(DeviceTarget);
std::string_view to_string(KernelGeneration);
std::string_view to_string(LinkKind);
std::string_view to_string(ReductionMode);
std::string_view to_string(Wiring);
std::string_view to_string(NetworkKind);

}  // namespace overtake
