#pragma once
// The numbers of Chakra's schema, and how ASTRA-sim reads it.
//
// A file is a stream of messages, each behind its length as a varint: one GlobalMetadata, then Nodes in any order.
// Facts from mlcommons/chakra, schema/protobuf/et_def.proto (version 0.0.4) and src/third_party/utils/protolib.py, and
// from astra-sim/astra-sim, astra-sim/workload/: Workload.cc (node types, attributes; a time of 0 µs is run as 1 ns;
// collectives without a group, or of group 0, are of all ranks; a broadcast is replayed with its duration; where groups
// of processes come from) and feeder_v3/ (both kinds of dependencies count; whole-number attributes of any type will
// do; is_cpu_op is false unless said). comm_size is what a rank puts in (system/collective/Ring.cc: an all-gather ends
// with n times as much, a reduce-scatter with an n-th). An older feeder (mlcommons/chakra, src/feeder) insists on the
// types of attributes that write.cpp uses. `stream` and `tid` come from chakra's converter/pytorch_converter.py.

#include <cstdint>
#include <string_view>

namespace overtake::chakra {

namespace metadata_field {
inline constexpr std::uint32_t version = 1, attribute = 2;
}
namespace node_field {
inline constexpr std::uint32_t id = 1, name = 2, type = 3, control_dependencies = 4, data_dependencies = 5,
                               start_micros = 6, duration_micros = 7, inputs = 8, attribute = 10;
}
namespace io_field {
inline constexpr std::uint32_t values = 1, types = 3;
}
namespace attribute_field {
inline constexpr std::uint32_t name = 1, real64 = 3, real32 = 5, int32 = 7, int64 = 9, uint32 = 11, uint64 = 13,
                               sint32 = 15, sint64 = 17, fixed32 = 19, fixed64 = 21, sfixed32 = 23, sfixed64 = 25,
                               boolean = 27, boolean_list = 28, text = 29;
}

enum class NodeType : std::uint8_t {
  invalid = 0,
  metadata = 1,
  mem_load = 2,
  mem_store = 3,
  compute = 4,
  send = 5,
  recv = 6,
  collective = 7,
  storage = 8,
  batch = 9,
  checkpoint = 10
};

enum class CommType : std::uint8_t {
  all_reduce = 0,
  reduce = 1,
  all_gather = 2,
  gather = 3,
  scatter = 4,
  broadcast = 5,
  all_to_all = 6,
  reduce_scatter = 7,
  reduce_scatter_block = 8,
  barrier = 9
};

inline constexpr std::string_view kVersion = "0.0.4";

// Attributes of ours, which make what we write exact for us; others pass over them. They count in files whose metadata
// name this program as their producer.
namespace own {
inline constexpr std::string_view producer = "producer", program = "overtake", kind = "kind",
                                  micro_batch = "micro_batch", duration_ns = "duration_ns", start_ns = "start_ns",
                                  lane = "lane", place = "place", asynchronous = "is_asynchronous",
                                  collective = "collective", model = "model", schedule = "schedule";
}

// Of tasks in a plan, for what Chakra has and plans have not.
inline constexpr const char *kTypeAttr = "chakra_type", *kCpuAttr = "is_cpu_op", *kTensorAttr = "tensor_size",
                            *kCommTypeAttr = "comm_type", *kCommSizeAttr = "comm_size";

}  // namespace overtake::chakra
