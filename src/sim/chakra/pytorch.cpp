#include "sim/chakra/pytorch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

namespace overtake::chakra {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 46, kMostElementBytes = 64;

// The items of a list as Python prints it: "[1, 'a, b', [2, 3]]" has three.
std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  if (list.size() < 2 || list.front() != '[' || list.back() != ']') return items;
  list = list.substr(1, list.size() - 2);
  std::size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (quote != 0 && i < list.size()) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '(' || c == '{') {
      ++depth;
    } else if (c == ']' || c == ')' || c == '}') {
      --depth;
    } else if (c == ',' && (depth == 0 || i == list.size())) {
      while (begin < i && list[begin] == ' ') ++begin;
      if (begin < i) items.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return items;
}

std::optional<std::int64_t> bytes_of_tensor(std::string_view tensor) {
  const std::vector<std::string_view> items = items_of(tensor);
  if (items.size() < 5) return {};
  std::array<std::int64_t, 2> numbers{};  // elements, and bytes of each
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string_view text = items[3 + i];
    const char* const end = text.data() + text.size();
    if (std::from_chars(text.data(), end, numbers[i]) != std::from_chars_result{end, std::errc{}}) return {};
  }
  if (numbers[0] < 0 || numbers[0] > kMostElements || numbers[1] < 0 || numbers[1] > kMostElementBytes) return {};
  return numbers[0] * numbers[1];
}

}  // namespace

std::optional<CommType> collective_named(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, CommType>, 9> kNames = {
      {{"allreduce", CommType::all_reduce},
       {"alltoall", CommType::all_to_all},
       {"allgather", CommType::all_gather},
       {"reducescatter", CommType::reduce_scatter},
       {"broadcast", CommType::broadcast},
       {"barrier", CommType::barrier},
       {"scatter", CommType::scatter},
       {"gather", CommType::gather},
       {"sendrecv", CommType::all_to_all}}};
  std::string plain;
  for (const char c : name)
    if (c != '_' && c != '-') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [text, type] : kNames)
    if (plain.find(text) != std::string::npos) return type;
  return {};
}

int layer_of_pytorch(std::string_view name) {
  if (name.find("c10d::") != std::string_view::npos) return 1;
  return name.find("record_param_comms") != std::string_view::npos ? 2 : 3;
}

std::optional<std::int64_t> tensor_bytes(std::string_view values, std::string_view types) {
  const std::vector<std::string_view> value = items_of(values), type = items_of(types);
  std::optional<std::int64_t> sum;
  for (std::size_t i = 0; i < std::min(value.size(), type.size()); ++i) {
    if (type[i].find("Tensor") == std::string_view::npos) continue;
    const bool is_list = type[i].find("GenericList[") != std::string_view::npos;
    for (const std::string_view tensor : is_list ? items_of(value[i]) : std::vector{value[i]}) {
      const std::optional<std::int64_t> bytes = bytes_of_tensor(tensor);
      if (!bytes) continue;
      sum = std::min(sum.value_or(0) + *bytes, kMostElements);
    }
  }
  return sum;
}

}  // namespace overtake::chakra
