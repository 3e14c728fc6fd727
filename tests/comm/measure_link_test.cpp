// What is measured of a link that tests slow down.

#include "train/measure_link.h"
#include "base/available_cores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "comm/local/local_group.h"
#include "exec/executor.h"
#include "train/core_shares.h"

namespace overtake {
namespace {

// A link out of every rank, on which a message takes so long, and then so much more by its bytes. Nobody waits for
// that: every rank has a clock that messages move on, as the last thing that it heard of was sent by then.
class SlowLinks {
 public:
  SlowLinks(int ranks, double latency, double bytes_per_s)
      : latency_(latency),
        bytes_per_s_(bytes_per_s),
        clock_(static_cast<std::size_t>(ranks), 0.0),
        link_(static_cast<std::size_t>(ranks), 0.0) {}

  void pass(int from, int to, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto sender = static_cast<std::size_t>(from), receiver = static_cast<std::size_t>(to);
    link_[sender] = std::max(link_[sender], clock_[sender]) + latency_ + static_cast<double>(bytes) / bytes_per_s_;
    clock_[receiver] = std::max(clock_[receiver], link_[sender]);
  }
  double now(std::size_t rank) {
    const std::lock_guard lock(mutex_);
    return clock_[rank];
  }

 private:
  const double latency_, bytes_per_s_;
  std::mutex mutex_;
  std::vector<double> clock_, link_;  // by rank: its time, and until when its link is taken
};

std::vector<LinkTimes> measure_slowed(int ranks, LinkUse use, double latency, double bytes_per_s) {
  SlowLinks links(ranks, latency, bytes_per_s);
  LocalOptions options;
  options.on_message = [&](int from, int to, std::size_t bytes) { links.pass(from, to, bytes); };
  auto groups = make_local_groups(ranks, options);
  std::vector<LinkTimes> all(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r, mine = std::move(groups[r])] {
      all[r] = measure_link(*mine, use, [&links, r] { return links.now(r); });
    });
  for (std::thread& t : threads) t.join();
  return all;
}

// What ranks say to one another besides takes its time on the link as well, so a link may seem slower than it is made.
TEST(MeasureLink, FindsBandwidthAndLatency) {
  for (const int ranks : {2, 3})
    for (const LinkUse use : {LinkUse::messages, LinkUse::sums}) {
      SCOPED_TRACE(testing::Message() << ranks << (use == LinkUse::sums ? " sums" : " messages"));
      const std::vector<LinkTimes> all = measure_slowed(ranks, use, 2e-3, 50e6);
      for (const LinkTimes& link : all) {  // the same for all
        EXPECT_EQ(link.latency_ns, all[0].latency_ns);
        EXPECT_EQ(link.bytes_per_s, all[0].bytes_per_s);
        EXPECT_EQ(link.busy_cores, all[0].busy_cores);
      }
      EXPECT_GT(1e-6 * static_cast<double>(all[0].latency_ns), use == LinkUse::messages ? 1.9 : 0.9);
      EXPECT_LT(1e-6 * static_cast<double>(all[0].latency_ns), 30);
      EXPECT_LT(static_cast<double>(all[0].bytes_per_s), 55e6);
      EXPECT_GT(static_cast<double>(all[0].bytes_per_s), 5e6);
      EXPECT_GE(all[0].busy_cores, 0);
    }
}

// Threads of one process have the same cores.
TEST(CoreShares, AreOfThoseWhoWantThem) {
  const unsigned cores = available_cores();
  for (const auto& [threads, expected] : {std::pair(cores, 0.5), std::pair(2 * cores, 0.25)}) {
    auto groups = make_local_groups(2);
    std::vector<std::vector<double>> shares(2);
    std::vector<std::thread> ranks;
    for (std::size_t r = 0; r < 2; ++r)
      ranks.emplace_back([&, r, wanted = threads] { shares[r] = core_shares(*groups[r], wanted); });
    for (std::thread& t : ranks) t.join();
    for (const std::vector<double>& of_all : shares) {
      ASSERT_EQ(of_all.size(), 2u);
      for (const double share : of_all) EXPECT_NEAR(share, expected, 1e-9);
    }
  }
}

TEST(MeasureLink, TellsAFastLinkFromASlowOne) {
  const LinkTimes slow = measure_slowed(2, LinkUse::sums, 0, 10e6)[0];
  const LinkTimes fast = measure_slowed(2, LinkUse::sums, 0, 200e6)[0];
  EXPECT_GT(fast.bytes_per_s, 4 * slow.bytes_per_s);
}

}  // namespace
}  // namespace overtake
