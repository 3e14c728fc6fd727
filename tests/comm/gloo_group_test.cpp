#include "comm/gloo/gloo_group.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <filesystem>
#include <latch>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "exercise.h"
#include "processes.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

class GlooGroup : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gloo()) GTEST_SKIP() << "this build has no gloo";
  }
  GlooOptions options(int rank, int size, std::chrono::milliseconds time_out = 60s) const {
    GlooOptions out;
    out.folder = folder_.path();
    out.job = "job";
    out.rank = rank;
    out.size = size;
    out.group = {.time_out = time_out, .chunk_bytes = 8192};
    return out;
  }
  TemporaryFolder folder_;
};

// What a rank says of an error: "<rank at fault> <what>".
std::string said_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const CommError& error) {
    return std::to_string(error.rank()) + " " + error.what();
  } catch (const UserError& error) {
    return std::string("user ") + error.what();
  }
  return "no error";
}

// All-reduces without end; `before_each` is told how many were done.
void reduce_forever(Group& group, std::size_t count, const std::function<void(int)>& before_each) {
  std::vector<float> x(count, 0.0f);
  for (int i = 0;; ++i) {
    before_each(i);
    group.wait(group.all_reduce(x.data(), x.size(), DType::f32, {.tag = 1}));
  }
}

// OVERTAKE_KILLS=200 for a long run.
int kill_rounds() {
  const char* rounds = std::getenv("OVERTAKE_KILLS");
  return rounds == nullptr ? 5 : std::atoi(rounds);
}

class GlooRanks : public GlooGroup, public testing::WithParamInterface<int> {};

TEST_P(GlooRanks, GetSumsInRankOrder) {
  Processes processes;
  for (int rank = 0; rank < GetParam(); ++rank) {
    processes.start([&, rank] { return "differs: " + exercise(*make_gloo_group(options(rank, GetParam(), 30s)), 3); });
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(GetParam()); ++i) EXPECT_EQ(processes.join(i).text, "differs: ");
}

// All who can read the store see it: gloo's addresses have room that it leaves as it was in memory.
TEST_F(GlooGroup, PublishesAddressesAndNothingElse) {
  Processes processes;
  for (int rank = 0; rank < 2; ++rank)
    processes.start([&, rank] { return "differs: " + exercise(*make_gloo_group(options(rank, 2, 30s)), 3); });
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(processes.join(i).text, "differs: ");
  int cards = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (!entry.path().filename().string().starts_with("rank-")) continue;
    ++cards;
    const std::string hex = nlohmann::json::parse(read_file(entry.path())).at("message").get<std::string>();
    std::string message;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
      message += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    for (const auto& address : nlohmann::json::parse(message)) {
      const auto bytes = address.get<std::vector<int>>();
      if (bytes.empty()) continue;  // the rank's own
      ASSERT_GT(bytes.size(), sizeof(sockaddr_storage));
      const std::size_t own = bytes[0] == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
      for (std::size_t i = own; i < sizeof(sockaddr_storage); ++i) EXPECT_EQ(bytes[i], 0) << i;
    }
  }
  EXPECT_EQ(cards, 2);
}

// In the middle of transfers of many chunks, or of few, one process is gone: all others say so at once, not when the
// time-out is over, which is long.
TEST_P(GlooRanks, NameTheOneThatWasKilled) {
  const int killed = GetParam() - 1;
  for (const std::size_t count : {100u, 1'000'000u}) {
    Processes processes;
    for (int rank = 0; rank < GetParam(); ++rank) {
      processes.start([&, rank] {
        GlooOptions mine = options(rank, GetParam());
        mine.job = "job" + std::to_string(count);
        const auto group = make_gloo_group(mine);
        return said_of([&] {
          reduce_forever(*group, count, [&](int i) {
            if (rank != killed || i < 5) return;
            std::thread([] {
              std::this_thread::sleep_for(2ms);
              kill(getpid(), SIGKILL);
            }).detach();
          });
        });
      });
    }
    for (int rank = 0; rank < killed; ++rank) {
      const Said said = processes.join(static_cast<std::size_t>(rank));
      EXPECT_TRUE(said.text.starts_with(fmt::format("{0} rank {0}: ", killed))) << said.text;
      EXPECT_NE(said.text.find("lost it"), std::string::npos) << said.text;
    }
  }
}

// A process that stands still in the middle of everything, with its sockets open.
TEST_P(GlooRanks, NameTheOneThatStalls) {
  const int stalled = 1;
  Processes processes;
  for (int rank = 0; rank < GetParam(); ++rank) {
    processes.start([&, rank] {
      const auto group = make_gloo_group(options(rank, GetParam(), 5s));
      return said_of([&] {
        reduce_forever(*group, 200'000, [&](int i) {
          if (rank == stalled && i == 5) raise(SIGSTOP);
        });
      });
    });
  }
  for (int rank = 0; rank < GetParam(); ++rank) {
    if (rank == stalled) continue;
    const Said said = processes.join(static_cast<std::size_t>(rank));
    EXPECT_TRUE(said.text.starts_with("1 rank 1: ")) << said.text;
    EXPECT_NE(said.text.find("gone or stalled"), std::string::npos) << said.text;
  }
}

// A process killed or stopped at any moment, from the roll call on: no hang, and no one else is blamed.
TEST_P(GlooRanks, SurviveAFaultAtAnyMoment) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int round = 0; round < kill_rounds(); ++round) {
    const int killed = static_cast<int>(random() % static_cast<unsigned>(GetParam()));
    Processes processes;
    for (int rank = 0; rank < GetParam(); ++rank) {
      processes.start([&, rank] {
        GlooOptions mine = options(rank, GetParam(), 4s);
        mine.job = "kill" + std::to_string(round);
        return said_of([&] { reduce_forever(*make_gloo_group(mine), 50'000, [](int) {}); });
      });
    }
    const auto moment = std::chrono::microseconds(random() % 120'000);
    std::this_thread::sleep_for(moment);
    const bool is_stopped = random() % 2 == 0;
    processes.send_signal(static_cast<std::size_t>(killed), is_stopped ? SIGSTOP : SIGKILL);
    for (int rank = 0; rank < GetParam(); ++rank) {
      if (rank == killed) continue;
      const Said said = processes.join(static_cast<std::size_t>(rank));
      EXPECT_TRUE(said.text.starts_with(fmt::format("{0} rank {0}: ", killed)))
          << said.text << (is_stopped ? ", stopped" : ", killed") << " after " << moment.count() << " us";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TwoToFour, GlooRanks, testing::Values(2, 3, 4));

TEST_F(GlooGroup, UrgentTransfersOvertake) {
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      std::string order;  // in which they were done
      std::latch are_done(2);
      const auto done = [&](char which) {
        order += which;
        are_done.count_down();
      };
      const auto group = make_gloo_group(options(rank, 2, 20s));
      std::vector<float> bulk(10'000'000, 1.0f), small(1000, 1.0f);
      // The long one can begin when rank 1 starts it, with the urgent one right behind it.
      while (rank == 1 && !std::filesystem::exists(folder_.path() / "waits")) std::this_thread::sleep_for(1ms);
      const auto slow = group->all_reduce(bulk.data(), bulk.size(), DType::f32,
                                          {.tag = 1, .priority = 0, .when_done = [&] { done('s'); }});
      const auto urgent = group->all_reduce(small.data(), small.size(), DType::f32,
                                            {.tag = 2, .priority = 9, .when_done = [&] { done('u'); }});
      if (rank == 0) folder_.write("waits", "");
      group->wait(urgent);
      group->wait(slow);
      are_done.wait();
      return order + (bulk.back() == 2.0f && bulk.front() == 2.0f && small[500] == 2.0f ? "" : ", wrong sum");
    });
  }
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(processes.join(i).text, "us");
}

TEST_F(GlooGroup, NamesTheOneThatLeaves) {
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.start([&, rank] {
      const auto group = make_gloo_group(options(rank, 3));
      std::vector<float> x(1'000'000);
      group->wait(group->broadcast(2, x.data(), x.size(), DType::f32));
      if (rank == 0) return std::string("left");
      return said_of([&] { group->barrier(); });
    });
  }
  EXPECT_EQ(processes.join(0).text, "left");
  for (std::size_t i : {1u, 2u}) {
    const Said said = processes.join(i);
    EXPECT_TRUE(said.text.starts_with("0 rank 0: it ")) << said.text;
    EXPECT_NE(said.text.find("left the group"), std::string::npos) << said.text;
  }
}

TEST_F(GlooGroup, NamesTheOneThatIsAliveButDoesNotCome) {
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.start([&, rank] {
      GlooOptions hasty = options(rank, 3);
      hasty.group.patience = 4s;
      const auto group = make_gloo_group(hasty);
      group->barrier();
      return said_of([&] {
        while (rank == 1) {  // until it hears what the others say of it
          group->check_ranks();
          std::this_thread::sleep_for(10ms);
        }
        group->barrier();
      });
    });
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const Said said = processes.join(i);
    EXPECT_TRUE(said.text.starts_with("1 rank 1: ")) << said.text;
    EXPECT_NE(said.text.find("it is alive"), std::string::npos) << said.text;
  }
}

// A host that slept, say: nobody heard anybody, and nobody is to blame.
TEST_F(GlooGroup, GoesOnAfterAllWereStopped) {
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.start([&, rank] {
      const auto group = make_gloo_group(options(rank, 3, 3s));
      return said_of([&] {
        // All go on for a while after they went on, however long that takes.
        for (int left = 20; left > 0;) {
          group->barrier();
          folder_.write("at-work-" + std::to_string(rank), "");
          std::uint8_t is_over = std::filesystem::exists(folder_.path() / "went-on") ? 1 : 0;
          group->wait(group->broadcast(0, &is_over, 1, DType::u8));
          left -= is_over;
          std::this_thread::sleep_for(10ms);
        }
      });
    });
  }
  for (const char* rank : {"at-work-0", "at-work-1", "at-work-2"})
    while (!std::filesystem::exists(folder_.path() / rank)) std::this_thread::sleep_for(10ms);
  for (std::size_t i = 0; i < 3; ++i) processes.send_signal(i, SIGSTOP);
  std::this_thread::sleep_for(5s);  // longer than the time-out
  for (std::size_t i = 0; i < 3; ++i) processes.send_signal(i, SIGCONT);
  folder_.write("went-on", "");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(processes.join(i).text, "no error");
}

TEST_F(GlooGroup, NamesTheOneThatNeverStarts) {
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] { return said_of([&] { make_gloo_group(options(rank, 3, 3s)); }); });
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(says(processes.join(i).text, {"2 rank 2: it did not come within 3 s", "3 ranks"}));
  }
}

TEST_F(GlooGroup, TellsWorldsOfDifferentSizesApart) {
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    const int size = rank == 1 ? 4 : 3;
    processes.start([&, rank, size] { return said_of([&] { make_gloo_group(options(rank, size)); }); });
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        says(processes.join(i).text, {"user rank ", "another number of ranks than rank", "start all ranks with"}));
  }
}

TEST_F(GlooGroup, TellsTwoProcessesWithOneRank) {
  Processes processes;
  for (const int rank : {0, 1, 1}) {
    processes.start([&, rank] { return said_of([&] { make_gloo_group(options(rank, 3)); }); });
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(says(processes.join(i).text, {"user rank 1: two processes have this rank: process ", " and process "}));
  }
}

TEST_F(GlooGroup, TellsDifferentJobsApart) {
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      GlooOptions mine = options(rank, 2);
      mine.identity = rank == 0 ? "resnet50" : "bert";
      return said_of([&] { make_gloo_group(mine); });
    });
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(says(processes.join(i).text, {"user rank ", "another job than rank", "resnet50", "bert"}));
  }
}

// A rank that dies while the others connect.
TEST_F(GlooGroup, NamesTheOneThatDiesWhileConnecting) {
  Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.start([&, rank] {
      if (rank == 1) {
        std::thread([this] {
          while (!std::filesystem::exists(folder_.path() / "job" / "rank-1")) std::this_thread::yield();
          kill(getpid(), SIGKILL);
        }).detach();
      } else {
        while (!std::filesystem::exists(folder_.path() / "job" / "rank-1")) std::this_thread::yield();
      }
      return said_of([&] { make_gloo_group(options(rank, 3, 5s))->barrier(); });
    });
  }
  for (std::size_t i : {0u, 2u}) {
    const Said said = processes.join(i);
    EXPECT_TRUE(said.text.starts_with("1 rank 1: ")) << said.text;
  }
}

TEST_F(GlooGroup, BadOptionsAreUserErrors) {
  const auto error_with = [&](const std::function<void(GlooOptions&)>& change) {
    GlooOptions bad = options(0, 1);
    change(bad);
    Processes process;  // of its own, because gloo does not give back all memory when it throws
    process.start([&] { return said_of([&] { make_gloo_group(bad); }); });
    return process.join(0).text;
  };
  EXPECT_TRUE(says(error_with([](GlooOptions& o) { o.rank = 3; }), {"rank 3", "0 to 0"}));
  EXPECT_TRUE(says(error_with([](GlooOptions& o) { o.job = ""; }), {"job id ''", "its own"}));
  EXPECT_TRUE(says(error_with([](GlooOptions& o) { o.job = "../x"; }), {"job id '../x'"}));
  EXPECT_TRUE(
      says(error_with([](GlooOptions& o) { o.interface = "nonet7"; }), {"no network interface nonet7", "ip address"}));
  EXPECT_TRUE(says(error_with([](GlooOptions& o) { o.address = "203.0.113.9"; }), {"no address 203.0.113.9"}));
  EXPECT_TRUE(says(error_with([](GlooOptions& o) { o.folder = "/proc/none"; }), {"/proc/none/job", "cannot make"}));
}

TEST(NoGloo, SaysWhatToInstall) {
  if (has_gloo()) GTEST_SKIP() << "this build has gloo";
  EXPECT_TRUE(says(user_error([] { make_gloo_group({}); }), {"no gloo", "libgloo-dev"}));
}

}  // namespace
}  // namespace overtake
