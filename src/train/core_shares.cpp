#include "train/core_shares.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "train/tags.h"

namespace overtake {
namespace {

struct CoresOfRank {
  std::uint64_t host = 0;
  cpu_set_t cores{};
  unsigned threads = 0;
};

}  // namespace

std::vector<double> core_shares(Group& world, unsigned threads) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  Hash64 host;
  host.add(std::string(name.data()));
  CoresOfRank mine{.host = host.value(), .threads = threads};
  sched_getaffinity(0, sizeof mine.cores, &mine.cores);
  std::vector<CoresOfRank> all(static_cast<std::size_t>(world.size()));
  all[static_cast<std::size_t>(world.rank())] = mine;
  world.wait(world.all_gather(all.data(), all.size() * sizeof mine, DType::u8, {.tag = kSiteTag}));
  const auto cores_of = [](const CoresOfRank& r) { return std::max(1, CPU_COUNT(&r.cores)); };
  std::vector<double> shares;
  for (const CoresOfRank& r : all) {
    double sum = 0;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &r.cores)) continue;
      double wanted = 0;  // threads that would like to be here
      for (const CoresOfRank& other : all)
        if (other.host == r.host && CPU_ISSET(core, &other.cores))
          wanted += static_cast<double>(other.threads) / cores_of(other);
      sum += 1 / std::max(1.0, wanted);
    }
    shares.push_back(sum / cores_of(r));
  }
  return shares;
}

}  // namespace overtake
