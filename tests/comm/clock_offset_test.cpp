// Clocks of ranks with known offsets, and what is gathered from all ranks.

#include "comm/clock_offset.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>

#include "comm/gather.h"
#include "comm/local/local_group.h"
#include "on_all.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

TEST(ClockOffset, IsExactWhereBothWaysTakeAsLong) {
  // Rank 0's clock shows 1000 more; each way takes 30 in the second round.
  const PingPong rounds[] = {{0, 1090, 100}, {200, 1230, 260}, {300, 1301, 400}};
  const ClockOffset clock = offset_from(rounds);
  EXPECT_EQ(clock.offset_ns, 1000);
  EXPECT_EQ(clock.error_ns, 30);
}

TEST(ClockOffset, IsWithinItsErrorWhateverEachWayTakes) {
  std::mt19937_64 random(7);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t offset = below(2'000'000'000) - 1'000'000'000;
    std::vector<PingPong> rounds;
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), now = below(1'000'000);
    for (int r = 0; r < 5; ++r) {
      const std::int64_t there = below(100'000), back = below(100'000);
      rounds.push_back({now, now + there + offset, now + there + back});
      least = std::min(least, there + back);
      now += 200'000;
    }
    const ClockOffset clock = offset_from(rounds);
    EXPECT_EQ(clock.error_ns, (least + 1) / 2);
    EXPECT_LE(std::abs(clock.offset_ns - offset), clock.error_ns);
  }
}

// One clock for all, which goes on by one whenever it is asked.
std::atomic<std::int64_t> ticks{0};

TEST(ClockOffset, IsFoundOverAGroup) {
  const std::vector<std::int64_t> ahead = {3'000'000'000, -7'000'000'000, 3'000'500'000};
  on_all(make_local_groups(3), [&](Group& group) {
    const std::int64_t mine = ahead[static_cast<std::size_t>(group.rank())];
    const ClockOffset clock = measure_clock_offset(group, {.tag = 5, .now_ns = [mine] { return mine + ++ticks; }});
    EXPECT_LE(std::abs(clock.offset_ns - (ahead[0] - mine)), clock.error_ns) << "rank " << group.rank();
    EXPECT_LT(clock.error_ns, group.rank() == 0 ? 1 : 1000) << "more than was asked in all";
  });
}

TEST(ClockOffset, StatesTheErrorOfALopsidedLink) {
  std::atomic<std::int64_t> now{0};
  const auto slow = [&](int from, int, std::size_t) {
    if (from == 0) now += 4'000'000;
  };
  on_all(make_local_groups(2, {.group = {}, .on_message = slow}), [&](Group& group) {
    const ClockOffset clock = measure_clock_offset(group, {.rounds = 4, .now_ns = [&] { return now.load(); }});
    if (group.rank() == 0) return;
    EXPECT_LE(std::abs(clock.offset_ns), clock.error_ns);  // one clock in truth
    EXPECT_GE(clock.error_ns, 2'000'000);
  });
}

TEST(ClockOffset, DoesNotWaitForARankThatIsGone) {
  auto groups = make_local_groups(3, {.group = {.time_out = 1h}, .on_message = {}});
  groups[2].reset();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&group = *groups[static_cast<std::size_t>(rank)]] {
      try {
        measure_clock_offset(group, {.rounds = 2});
        gather_texts(group, "mine");
        EXPECT_EQ(group.rank(), 1);  // has no business with the one that is gone
      } catch (const CommError& error) {
        EXPECT_EQ(error.rank(), 2) << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Gather, BringsTextsToRankZero) {
  const std::vector<std::string> texts = {"zero", "", std::string(700'000, 'x'), "three"};
  on_all(make_local_groups(4), [&](Group& group) {
    const auto all = gather_texts(group, texts[static_cast<std::size_t>(group.rank())], {.tag = 9});
    EXPECT_EQ(all, group.rank() == 0 ? texts : std::vector<std::string>{});
    const std::int64_t mine[] = {40, -3, std::numeric_limits<std::int64_t>::max(), 7};
    EXPECT_EQ(least_of_all(group, mine[group.rank()], {.tag = 9}), -3);
  });
}

}  // namespace
}  // namespace overtake
