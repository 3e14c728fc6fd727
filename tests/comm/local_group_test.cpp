#include "comm/local/local_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <thread>

#include "exercise.h"
#include "on_all.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;
using Groups = std::vector<std::unique_ptr<Group>>;

// The error of a call, with the rank it blames.
template <class Call>
std::pair<int, std::string> comm_error(const Call& call) {
  try {
    call();
  } catch (const CommError& error) {
    return {error.rank(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {-1, ""};
}

TEST(CommParts, CoverAllOnce) {
  for (const std::size_t count : {0u, 1u, 7u, 8u, 1000u, 1001u}) {
    for (int parts = 1; parts <= 9; ++parts) {
      std::size_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const PartRange range = part_of(count, parts, i);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.end - range.begin, count / static_cast<std::size_t>(parts) + 1);
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

// For whoever waits for ranks by other means.
TEST(CommRanks, AreLookedAfterWithoutATransfer) {
  Groups groups = make_local_groups(3);
  for (const auto& group : groups) EXPECT_EQ(group->check_ranks(), -1);
  groups[2].reset();
  while (groups[0]->check_ranks() < 0) std::this_thread::sleep_for(1ms);  // for ever, where nobody says so
  EXPECT_EQ(groups[0]->check_ranks(), 2);
  float x = 0;
  const auto of_wait = comm_error([&] { groups[0]->wait(groups[0]->all_reduce(&x, 1, DType::f32)); });
  const auto of_check = comm_error([&] { groups[0]->check_ranks(); });
  EXPECT_EQ(of_wait, of_check);
  EXPECT_EQ(of_check.first, 2);
}

class LocalRanks : public testing::TestWithParam<int> {};

TEST_P(LocalRanks, GetSumsInRankOrderWhateverTheChunks) {
  for (const std::size_t chunk_bytes : {1u, 1000u, 4096u, 1u << 20}) {
    if (chunk_bytes == 1 && GetParam() > 3) continue;  // a message per element
    on_all(make_local_groups(GetParam(), {.group = {.chunk_bytes = chunk_bytes}, .on_message = {}}),
           [](Group& group) { EXPECT_EQ(exercise(group, 1, 1), ""); });
  }
}

TEST_P(LocalRanks, GetSumsInRankOrderWhateverTheTiming) {
  std::atomic<unsigned> messages{0};
  const auto delay = [&](int from, int to, std::size_t) {
    std::mt19937 random(static_cast<unsigned>(from * 100 + to) + 10000u * messages++);
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
  };
  on_all(make_local_groups(GetParam(), {.group = {.chunk_bytes = 8192}, .on_message = delay}),
         [](Group& group) { EXPECT_EQ(exercise(group, 2), ""); });
}

INSTANTIATE_TEST_SUITE_P(OneToEight, LocalRanks, testing::Range(1, 9));

// A rank with its data in the way of specials: -0, infinities and NaN keep their meaning.
TEST(LocalGroup, SumsSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  on_all(make_local_groups(2), [&](Group& group) {
    std::vector<float> x = group.rank() == 0 ? std::vector<float>{-0.0f, inf, inf, 1e38f, 1e-45f}
                                             : std::vector<float>{-0.0f, 1.0f, -inf, 3e38f, 1e-45f};
    group.wait(group.all_reduce(x.data(), x.size(), DType::f32));
    EXPECT_TRUE(x[0] == 0.0f && std::signbit(x[0]));
    EXPECT_EQ(x[1], inf);
    EXPECT_TRUE(std::isnan(x[2]));
    EXPECT_EQ(x[3], inf);
    EXPECT_EQ(x[4], 3e-45f);
  });
}

// A link of 1 ms per chunk: an urgent transfer that starts in the middle of a long one is done long before it.
TEST(LocalGroup, UrgentTransfersOvertakeAtChunkBorders) {
  constexpr std::size_t kChunk = 4096, kChunks = 200;
  std::mutex mutex;
  std::vector<std::size_t> sizes;  // of what rank 0 sent
  const auto slow = [&](int from, int, std::size_t bytes) {
    if (bytes == 0) return;
    std::this_thread::sleep_for(1ms);
    const std::lock_guard lock(mutex);
    if (from == 0) sizes.push_back(bytes);
  };
  on_all(make_local_groups(2, {.group = {.chunk_bytes = kChunk}, .on_message = slow}), [&](Group& group) {
    std::vector<float> bulk(kChunk / 4 * kChunks * 2, 1.0f), small(500, 2.0f);
    const auto slow_one = group.all_reduce(bulk.data(), bulk.size(), DType::f32, {.tag = 1, .priority = 0});
    std::this_thread::sleep_for(20ms);
    const auto urgent = group.all_reduce(small.data(), small.size(), DType::f32, {.tag = 2, .priority = 1});
    group.wait(urgent);
    EXPECT_FALSE(group.is_done(slow_one));
    group.wait(slow_one);
    EXPECT_EQ(bulk, std::vector<float>(bulk.size(), 2.0f));
    EXPECT_EQ(small, std::vector<float>(small.size(), 4.0f));
    group.barrier();
  });
  // Both parts of the small one, 250 floats each way, are in the first half of what was sent.
  ASSERT_EQ(sizes.size(), 2 * kChunks + 2);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1000) places.push_back(i);
  }
  ASSERT_EQ(places.size(), 2u);
  EXPECT_GT(places[0], 2u);
  EXPECT_LT(places[1], kChunks);
}

// Of the same priority, what was started first is sent first.
TEST(LocalGroup, EqualPrioritiesKeepTheirOrder) {
  on_all(make_local_groups(2, {.group = {.chunk_bytes = 4096}, .on_message = {}}), [&](Group& group) {
    std::vector<float> first(200'000, 1.0f), second(10, 1.0f);
    if (group.rank() == 0) {
      const auto a = group.send(1, first.data(), first.size(), DType::f32, {.tag = 1});
      const auto b = group.send(1, second.data(), second.size(), DType::f32, {.tag = 2});
      group.wait(b);
      EXPECT_TRUE(group.is_done(a));
    } else {
      const auto a = group.recv(0, first.data(), first.size(), DType::f32, {.tag = 1});
      const auto b = group.recv(0, second.data(), second.size(), DType::f32, {.tag = 2});
      group.wait(a);
      group.wait(b);
    }
  });
}

// Rank 0 starts A and waits for B, rank 1 starts B and only then A: nothing stands in the way of B.
TEST(LocalGroup, TagsMayBeStartedInDifferentOrders) {
  on_all(make_local_groups(2), [](Group& group) {
    std::vector<float> a(100'000, 1.0f), b(100'000, 2.0f);
    TransferHandle first;
    if (group.rank() == 0) {
      first = group.all_reduce(a.data(), a.size(), DType::f32, {.tag = 1});
      group.wait(group.all_reduce(b.data(), b.size(), DType::f32, {.tag = 2}));
    } else {
      group.wait(group.all_reduce(b.data(), b.size(), DType::f32, {.tag = 2}));
      first = group.all_reduce(a.data(), a.size(), DType::f32, {.tag = 1});
    }
    group.wait(first);
    EXPECT_EQ(a, std::vector<float>(a.size(), 2.0f));
    EXPECT_EQ(b, std::vector<float>(b.size(), 4.0f));
  });
}

// A rank that got all it wants may be gone before the sender knows that it has sent it.
TEST(LocalGroup, WhoHasAllMayLeave) {
  for (int round = 0; round < 300; ++round) {
    on_all(make_local_groups(2), [](Group& group) {
      float x = 1.0f;
      if (group.rank() == 0) {
        const auto sent = group.send(1, &x, 1, DType::f32);
        while (!group.is_done(sent)) {  // in the way of the thread that sends
        }
      } else {
        group.wait(group.recv(0, &x, 1, DType::f32));
      }
    });
  }
}

// The n-th of a tag meets the n-th, however far ahead a rank is.
TEST(LocalGroup, OneTagManyTimes) {
  on_all(make_local_groups(3), [](Group& group) {
    std::vector<std::vector<float>> x;
    std::vector<TransferHandle> handles;
    for (int i = 0; i < 50; ++i) x.emplace_back(100, static_cast<float>(i * (group.rank() + 1)));
    for (auto& values : x) handles.push_back(group.all_reduce(values.data(), values.size(), DType::f32, {.tag = 7}));
    for (int i = 49; i >= 0; --i) group.wait(handles[static_cast<std::size_t>(i)]);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(x[static_cast<std::size_t>(i)][99], static_cast<float>(6 * i));
  });
}

TEST(LocalGroup, DifferentPlansAreToldApart) {
  on_all(make_local_groups(3), [](Group& group) {
    std::vector<float> x(101, 1.0f);
    const std::size_t count = group.rank() == 1 ? 101 : 100;
    const auto [rank, text] =
        comm_error([&] { group.wait(group.all_reduce(x.data(), count, DType::f32, {.tag = 5})); });
    EXPECT_NE(text.find("tag 5"), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce of 101 x f32"), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce of 100 x f32"), std::string::npos) << text;
    // The first error wins, and stays.
    EXPECT_EQ(comm_error([&] { group.barrier(); }).second, text);
  });
}

TEST(LocalGroup, WhoLeavesIsNamed) {
  on_all(make_local_groups(3, {.group = {.time_out = 8s}, .on_message = {}}), [](Group& group) {
    group.barrier();
    if (group.rank() == 1) return;
    std::vector<float> x(1000);
    const auto [rank, text] = comm_error([&] { group.wait(group.all_reduce(x.data(), x.size(), DType::f32)); });
    EXPECT_EQ(rank, 1);
    EXPECT_NE(text.find("rank 1: it"), std::string::npos) << text;
    EXPECT_NE(text.find("left the group"), std::string::npos) << text;
  });
}

TEST(LocalGroup, WhoDoesNotComeIsNamedInTime) {
  std::latch started(2), failed(2);
  on_all(make_local_groups(3, {.group = {.time_out = 1h}, .on_message = {}}), [&](Group& group) {
    group.barrier();
    std::vector<float> x(1000);
    if (group.rank() == 2) {
      failed.wait();
      EXPECT_EQ(comm_error([&] { group.barrier(); }).first, 2);
      return;
    }
    const auto handle = group.all_reduce(x.data(), x.size(), DType::f32);
    started.arrive_and_wait();
    const auto [rank, text] = comm_error([&] { group.wait(handle, 2s); });
    failed.count_down();
    EXPECT_EQ(rank, 2);
    EXPECT_NE(text.find("rank 2: "), std::string::npos) << text;
    EXPECT_NE(text.find("it is alive"), std::string::npos) << text;
  });
}

// Also where nobody waits in wait().
TEST(LocalGroup, PatienceEnds) {
  std::latch failed(2);
  on_all(make_local_groups(3, {.group = {.time_out = 1h, .patience = 3s}, .on_message = {}}), [&](Group& group) {
    group.barrier();
    if (group.rank() == 2) {
      failed.wait();
      EXPECT_EQ(comm_error([&] { group.barrier(); }).first, 2);
      return;
    }
    float x = 1;
    std::promise<void> told;
    const auto handle =
        group.all_reduce(&x, 1, DType::f32, {.tag = 3, .priority = 0, .when_done = [&] { told.set_value(); }});
    told.get_future().wait();  // for ever, where patience does not end
    failed.count_down();
    const auto [rank, text] = comm_error([&] { group.wait(handle); });
    EXPECT_EQ(rank, 2);
    EXPECT_NE(text.find("it is alive"), std::string::npos) << text;
  });
}

// Someone who is heard may take longer than the time-out.
TEST(LocalGroup, WhoIsHeardIsWaitedFor) {
  on_all(make_local_groups(2, {.group = {.time_out = 3s}, .on_message = {}}), [](Group& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(7s);
    float x = 1;
    group.wait(group.all_reduce(&x, 1, DType::f32));
    EXPECT_EQ(x, 2);
  });
}

// Sums of some ranks, under the same tag at the same time; parts and order are the members'.
TEST(LocalGroup, SomeRanksAmongThemselves) {
  const std::size_t count = 1003;
  on_all(make_local_groups(4, {.group = {.chunk_bytes = 256}, .on_message = {}}), [&](Group& group) {
    const int me = group.rank();
    for (const std::vector<int>& members : {std::vector<int>{me % 2, me % 2 + 2}, std::vector<int>{3, 1, 0, 2}}) {
      std::vector<float> sum = brought_by<float>(me, 7, count), part = sum, all = sum;
      const auto place = static_cast<int>(std::ranges::find(members, me) - members.begin());
      const auto start = [&](TransferKind kind, std::vector<float>& x, std::uint64_t tag) {
        Request request{kind, x.data(), count, DType::f32, -1, {.tag = tag}};
        request.members = members;
        return group.start(request);
      };
      const TransferHandle handles[] = {start(TransferKind::all_reduce, sum, 1),
                                        start(TransferKind::reduce_scatter, part, 2),
                                        start(TransferKind::all_gather, all, 3)};
      for (const TransferHandle& h : handles) group.wait(h);
      const PartRange own = part_of(count, static_cast<int>(members.size()), place);
      for (std::size_t i = 0; i < count; ++i) {
        float expected = 0;
        for (const int m : members) expected = m == members[0] ? brought(m, 7, i) : expected + brought(m, 7, i);
        std::size_t owner = 0;
        while (i >= part_of(count, static_cast<int>(members.size()), static_cast<int>(owner)).end) ++owner;
        ASSERT_EQ(bits_of(sum[i]), bits_of(expected)) << i;
        ASSERT_EQ(bits_of(part[i]), bits_of(i >= own.begin && i < own.end ? expected : brought(me, 7, i))) << i;
        ASSERT_EQ(bits_of(all[i]), bits_of(brought(members[owner], 7, i))) << i;
      }
    }
  });
}

// A group that goes with transfers under way neither waits for them nor touches their data any more.
TEST(LocalGroup, GoesWithTransfersUnderWay) {
  for (int round = 0; round < 20; ++round) {
    {
      std::vector<std::vector<float>> data(4, std::vector<float>(100'000));
      on_all(make_local_groups(4, {.group = {.chunk_bytes = 4096}, .on_message = {}}), [&](Group& group) {
        std::vector<float>& x = data[static_cast<std::size_t>(group.rank())];
        try {
          const auto handle = group.all_reduce(x.data(), x.size(), DType::f32);
          if (group.rank() != round % 4) group.wait(handle);
        } catch (const CommError& error) {
          EXPECT_EQ(error.rank(), round % 4);
          EXPECT_NE(std::string(error.what()).find("left the group"), std::string::npos) << error.what();
        }
      });
    }
  }
}

}  // namespace
}  // namespace overtake
