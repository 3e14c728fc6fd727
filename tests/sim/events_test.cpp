#include "sim/events.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "base/philox.h"

namespace overtake {
namespace {

std::uint32_t random(std::uint32_t& counter) { return philox({7, 7}, counter++, 0)[0]; }

TEST(Events, ComeByTimeThenId) {
  EventQueue queue;
  for (const Event& e : {Event{5, 1, 0}, Event{3, 9, 0}, Event{5, 0, 2}, Event{5, 0, 1}, Event{1, 4, 0}}) queue.push(e);
  const std::vector<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>> expected = {
      {1, 4, 0}, {3, 9, 0}, {5, 0, 1}, {5, 0, 2}, {5, 1, 0}};
  for (const auto& e : expected) {
    EXPECT_EQ(std::tuple(queue.top().time_ns, queue.top().id, queue.top().data), e);
    queue.pop();
  }
  EXPECT_TRUE(queue.empty());
}

// Against an ordered set, with looks ahead after which nearer events come in, and many at one time.
TEST(Events, AgreeWithAnOrderedSet) {
  for (const std::uint32_t range : {3u, 100u, 5'000'000u}) {
    EventQueue queue;
    std::multiset<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>> expected;
    std::uint32_t counter = range;
    std::int64_t now = 0;
    for (int i = 0; i < 20000; ++i) {
      if (expected.empty() || random(counter) % 100 < (i < 12000 ? 52 : 40)) {
        const Event e{now + random(counter) % range, random(counter) % 50, random(counter) % 2};
        queue.push(e);
        expected.insert({e.time_ns, e.id, e.data});
      }
      if (expected.empty()) continue;
      const Event top = queue.top();
      ASSERT_EQ(std::tuple(top.time_ns, top.id, top.data), *expected.begin());
      if (random(counter) % 2 == 0) continue;
      now = top.time_ns;
      queue.pop();
      expected.erase(expected.begin());
      ASSERT_EQ(queue.size(), expected.size());
    }
  }
}

TEST(Events, NeverGoBack) {
  EventQueue queue;
  queue.push({10, 0, 0});
  queue.top();
  queue.push({4, 0, 0});  // before one that was only looked at
  EXPECT_EQ(queue.top().time_ns, 4);
  queue.pop();
  EXPECT_THROW(queue.push({3, 0, 0}), InternalError);
}

}  // namespace
}  // namespace overtake
