#include "comm/gather.h"

#include <algorithm>

namespace overtake {

std::vector<std::string> gather_texts(Group& group, std::string mine, const TransferOptions& options) {
  std::uint64_t bytes = mine.size();
  if (group.rank() != 0) {
    group.wait(group.send(0, &bytes, sizeof bytes, DType::u8, options));
    if (bytes > 0) group.wait(group.send(0, mine.data(), mine.size(), DType::u8, options));
    return {};
  }
  std::vector<std::string> all = {std::move(mine)};
  for (int rank = 1; rank < group.size(); ++rank) {
    group.wait(group.recv(rank, &bytes, sizeof bytes, DType::u8, options));
    all.emplace_back(bytes, '\0');
    if (bytes > 0) group.wait(group.recv(rank, all.back().data(), bytes, DType::u8, options));
  }
  return all;
}

std::int64_t least_of_all(Group& group, std::int64_t mine, const TransferOptions& options) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()));
  all[static_cast<std::size_t>(group.rank())] = mine;
  group.wait(group.all_gather(all.data(), all.size() * sizeof mine, DType::u8, options));
  return std::ranges::min(all);
}

}  // namespace overtake
