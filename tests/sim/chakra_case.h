#pragma once
// Chakra files made in memory, for tests, by a writer that shares nothing with ours:
//
//   trace({node(3, "gemm", 4).on_data({1}).duration(7).flag("is_cpu_op", false)})
//
// is the content of a file with one node, of type COMP_NODE.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace overtake::chakra_case {

inline std::string varint(std::uint64_t value) {
  std::string out;
  do {
    const auto low = static_cast<unsigned char>(value & 0x7f);
    value >>= 7;
    out += static_cast<char>(value != 0 ? low | 0x80 : low);
  } while (value != 0);
  return out;
}
inline std::string behind_length(std::string_view bytes) { return varint(bytes.size()) + std::string(bytes); }
inline std::string number_field(unsigned field, std::int64_t value) {
  return varint(field * 8) + varint(static_cast<std::uint64_t>(value));
}
inline std::string bytes_field(unsigned field, std::string_view bytes) {
  return varint(field * 8 + 2) + behind_length(bytes);
}

struct NodeBytes {
  std::string bytes;

  NodeBytes& add(std::string_view more) {
    bytes += more;
    return *this;
  }
  // Dependencies on data packed, of control one by one: both are right.
  NodeBytes& on_data(const std::vector<std::uint64_t>& ids) {
    std::string packed;
    for (const std::uint64_t id : ids) packed += varint(id);
    return add(bytes_field(5, packed));
  }
  NodeBytes& after(const std::vector<std::uint64_t>& ids) {
    for (const std::uint64_t id : ids) add(number_field(4, static_cast<std::int64_t>(id)));
    return *this;
  }
  NodeBytes& start(std::int64_t micros) { return add(number_field(6, micros)); }
  NodeBytes& duration(std::int64_t micros) { return add(number_field(7, micros)); }
  NodeBytes& attribute(std::string_view name, std::string_view value) {
    return add(bytes_field(10, bytes_field(1, name) + std::string(value)));
  }
  // As int64_val, unless another field is named: 7 int32, 11 uint32, 13 uint64, 15 and 17 with signs in the last bit.
  NodeBytes& number(std::string_view name, std::int64_t value, unsigned field = 9) {
    return attribute(name, number_field(field, value));
  }
  NodeBytes& flag(std::string_view name, bool value) { return attribute(name, number_field(27, value ? 1 : 0)); }
  NodeBytes& text(std::string_view name, std::string_view value) { return attribute(name, bytes_field(29, value)); }
  NodeBytes& message(std::int64_t source, std::int64_t destination, std::int64_t tag, std::int64_t size) {
    return number("comm_src", source, 7)
        .number("comm_dst", destination, 7)
        .number("comm_tag", tag, 7)
        .number("comm_size", size);
  }
  NodeBytes& collective(std::int64_t type, std::int64_t size) {
    return number("comm_type", type).number("comm_size", size);
  }
};

enum Type { kMetadata = 1, kLoad = 2, kStore = 3, kCompute = 4, kSend = 5, kRecv = 6, kCollective = 7 };
enum Comm { kAllReduce = 0, kAllGather = 2, kBroadcast = 5, kReduceScatter = 7, kBarrier = 9 };

inline NodeBytes node(std::uint64_t id, std::string_view name, int type) {
  return {number_field(1, static_cast<std::int64_t>(id)) + bytes_field(2, name) + number_field(3, type)};
}

inline std::string trace(const std::vector<NodeBytes>& nodes) {
  std::string out = behind_length(bytes_field(1, "0.0.4"));
  for (const NodeBytes& n : nodes) out += behind_length(n.bytes);
  return out;
}

// Some bytes cut off, lost, doubled or changed.
inline std::vector<std::string> damaged(std::vector<std::string> files, std::mt19937& random) {
  for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
    std::string& file = files[random() % files.size()];
    const std::size_t at = random() % (file.size() + 1), length = std::min<std::size_t>(random() % 9, file.size() - at);
    switch (random() % 6) {
      case 0:
        file.resize(at);
        break;
      case 1:
        file.erase(at, length);
        break;
      case 2:
        file.insert(at, file.substr(random() % (at + 1), length));
        break;
      case 3:
        if (at < file.size()) file[at] = static_cast<char>(file[at] ^ (1 << (random() % 8)));
        break;
      case 4:
        for (std::size_t k = at; k < at + length; ++k) file[k] = static_cast<char>(random());
        break;
      default:
        if (at < file.size()) file[at] = static_cast<char>(random() % 12);
    }
  }
  return files;
}

}  // namespace overtake::chakra_case
