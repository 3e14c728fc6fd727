#include "comm/roll_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

TEST(FileStore, GivesANameToOneOnly) {
  const TemporaryFolder folder;
  std::atomic<int> winner{-1}, winners{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      FileStore store(folder.path() / "a" / "b");
      if (store.put("name", "value " + std::to_string(i))) {
        winner = i;
        ++winners;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  FileStore store(folder.path() / "a" / "b");
  EXPECT_EQ(store.get("name"), "value " + std::to_string(winner));
  EXPECT_EQ(store.get("other"), std::nullopt);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "a" / "b"), {}), 1);
}

// Calls the roll as several ranks at once: what each got, or its error.
std::vector<std::string> call(const TemporaryFolder& folder, const std::vector<RollCall>& ranks) {
  std::vector<std::string> out(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      FileStore store(folder.path());
      try {
        for (const std::string& message : call_roll(store, ranks[i])) out[i] += message + "|";
      } catch (const CommError& error) {
        out[i] = fmt::format("lost {}: {}", error.rank(), error.what());
      } catch (const UserError& error) {
        out[i] = fmt::format("user: {}", error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

TEST(RollCall, BringsAllMessagesToAll) {
  const TemporaryFolder folder;
  const std::string odd("\0\xff\n\"", 4);
  const std::string all = "first|" + odd + "||";
  const auto got = call(folder, {{0, 3, "m", "first", 60s}, {1, 3, "m", odd, 60s}, {2, 3, "m", "", 60s}});
  EXPECT_EQ(got, (std::vector<std::string>{all, all, all}));
}

TEST(RollCall, TellsWhatDoesNotFitOnAllRanks) {
  const auto all_say = [](const std::vector<RollCall>& ranks, std::initializer_list<std::string_view> parts) {
    const TemporaryFolder folder;
    for (const std::string& text : call(folder, ranks)) EXPECT_TRUE(says(text, parts));
  };
  all_say({{0, 2, "m", "", 60s}, {1, 3, "m", "", 60s}}, {"user: rank ", "another number of ranks than rank "});
  all_say({{0, 3, "m", "", 60s}, {0, 3, "m", "", 60s}, {1, 3, "m", "", 60s}}, {"user: rank 0: two processes"});
  all_say({{0, 2, "resnet", "", 60s}, {1, 2, "bert", "", 60s}}, {"user: rank ", "another job", "resnet", "bert"});
  all_say({{0, 3, "m", "", 2s}, {2, 3, "m", "", 2s}}, {"lost 1: rank 1: it did not come within 2 s"});
  all_say({{2, 2, "m", "", 60s}}, {"user: rank 2: there are 2 ranks: the number must be 0 to 1"});
}

TEST(RollCall, RefusesACardThatIsNone) {
  for (const char* text : {"", "{ no card", "[]", "{\"protocol\": \"new\"}"}) {
    const TemporaryFolder folder;
    folder.write("rank-1", text);
    EXPECT_TRUE(says(call(folder, {{0, 2, "m", "", 60s}})[0], {"user: rank 1: its card cannot be read"}));
  }
}

TEST(RollCall, TheFirstErrorIsEveryones) {
  const TemporaryFolder folder;
  FileStore store(folder.path());
  EXPECT_STREQ(first_of_all(store, CommError(3, "rank 3: \"gone\"")).what(), "rank 3: \"gone\"");
  const CommError later = first_of_all(store, CommError(1, "rank 1: closed"));
  EXPECT_EQ(later.rank(), 3);
  EXPECT_STREQ(later.what(), "rank 3: \"gone\"");
}

}  // namespace
}  // namespace overtake
