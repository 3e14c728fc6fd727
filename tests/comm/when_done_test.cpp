// The callback of a transfer: once, when it is done or has failed, on both backends.

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "comm/gloo/gloo_group.h"
#include "comm/local/local_group.h"
#include "processes.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

// What was told, and what the group said when it was.
class Told {
 public:
  // A callback that asks after the transfer. The handle may come later than the call.
  std::function<void()> ask(Group& group, std::shared_ptr<std::promise<TransferHandle>> handle) {
    return [this, &group, handle] {
      std::string answer;
      try {
        answer = group.is_done(handle->get_future().get()) ? "done" : "not done";
      } catch (const CommError& error) {
        answer = "rank " + std::to_string(error.rank());
      }
      const std::lock_guard lock(mutex_);
      answers_.push_back(answer);
      changed_.notify_all();
    };
  }
  // All answers, when there are so many and no more come within a moment.
  std::vector<std::string> after(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_.size() >= count; });
    changed_.wait_for(lock, 20ms, [&] { return answers_.size() > count; });
    return answers_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> answers_;
};

// Transfers of a kind, all with a callback that asks after them.
TransferHandle start_asking(Group& group, Told& told, Request request) {
  const auto promise = std::make_shared<std::promise<TransferHandle>>();
  request.options.when_done = told.ask(group, promise);
  const TransferHandle handle = group.start(request);
  promise->set_value(handle);
  return handle;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += text + "|";
  return out;
}

// Every rank runs these; each returns what it was told, as "done|done|...".
std::string told_when_done(Group& group) {
  Told told;
  std::vector<std::vector<float>> data;
  for (const std::size_t count : {0u, 1u, 50'000u}) data.emplace_back(count, 1.0f);
  std::vector<TransferHandle> handles;
  for (std::vector<float>& x : data) {
    handles.push_back(
        start_asking(group, told, {TransferKind::all_reduce, x.data(), x.size(), DType::f32, -1, {.tag = 1}}));
  }
  if (group.size() > 1) {
    const auto kind = group.rank() == 0 ? TransferKind::send : TransferKind::recv;
    if (group.rank() < 2) {
      handles.push_back(
          start_asking(group, told, {kind, data[2].data(), 0, DType::f32, group.rank() == 0 ? 1 : 0, {.tag = 2}}));
    }
  }
  for (const TransferHandle& handle : handles) group.wait(handle);
  const std::string out = joined(told.after(handles.size()));
  group.barrier();
  return data[2] == std::vector<float>(50'000, static_cast<float>(group.size())) ? out : "wrong sum";
}

std::string dones(int rank, int size) { return size > 1 && rank < 2 ? "done|done|done|done|" : "done|done|done|"; }

// Rank 1 goes while the others reduce.
std::string told_when_failed(Group& group) {
  Told told;
  std::vector<float> x(1'000'000, 1.0f), y(3);
  const TransferHandle all_here = group.start({TransferKind::barrier, nullptr, 0, DType::u8, -1, {.tag = 9}});
  if (group.rank() == 1) {
    group.wait(all_here);
    return "left";
  }
  std::size_t started = 0;
  std::string refused;  // where others have told of the fault before
  for (const Request& request : {Request{TransferKind::all_reduce, x.data(), x.size(), DType::f32, -1, {.tag = 1}},
                                 Request{TransferKind::recv, y.data(), 3, DType::f32, 1, {.tag = 2}}}) {
    try {
      start_asking(group, told, request);
      ++started;
    } catch (const CommError& error) {
      refused += "rank " + std::to_string(error.rank()) + "|";
    }
  }
  return joined(told.after(started)) + refused;
}

// One transfer starts the next.
std::string told_in_a_chain(Group& group) {
  constexpr int kLinks = 50;
  std::vector<float> x(1000, 1.0f);
  std::promise<void> end;
  int started = 0;
  std::function<void()> next = [&] {
    if (++started > kLinks) return end.set_value();
    group.all_reduce(x.data(), x.size(), DType::f32, {.tag = 3, .when_done = next});
  };
  next();
  end.get_future().wait();
  group.barrier();
  return x[999] == std::ldexp(1.0f, kLinks) ? "right" : "wrong sum";  // of two ranks
}

class LocalWhenDone : public testing::TestWithParam<int> {
 protected:
  // What each rank's function returned.
  static std::vector<std::string> on_all(int size, const std::function<std::string(Group&)>& run) {
    auto groups = make_local_groups(size, {.group = {.time_out = 60s, .chunk_bytes = 8192}, .on_message = {}});
    std::vector<std::string> out(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      threads.emplace_back([&, i, mine = std::move(groups[i])] { out[i] = run(*mine); });
    }
    for (std::thread& thread : threads) thread.join();
    return out;
  }
};

TEST_P(LocalWhenDone, IsCalledOnce) {
  const auto told = on_all(GetParam(), told_when_done);
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_EQ(told[static_cast<std::size_t>(rank)], dones(rank, GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(OneToThree, LocalWhenDone, testing::Range(1, 4));

TEST_F(LocalWhenDone, IsCalledWhenTheGroupFails) {
  EXPECT_EQ(on_all(3, told_when_failed), (std::vector<std::string>{"rank 1|rank 1|", "left", "rank 1|rank 1|"}));
}

TEST_F(LocalWhenDone, MayStartTheNext) {
  EXPECT_EQ(on_all(2, told_in_a_chain), (std::vector<std::string>{"right", "right"}));
}

// A group that goes tells all that were waiting, and that it was this rank that went.
TEST_F(LocalWhenDone, IsCalledWhenTheGroupGoes) {
  for (int round = 0; round < 20; ++round) {
    auto groups = make_local_groups(2);
    Told told;
    std::vector<float> x(100'000), y(100'000);
    int calls = 0;
    start_asking(*groups[0], told, {TransferKind::recv, x.data(), x.size(), DType::f32, 1, {.tag = 1}});
    groups[1]->send(0, y.data(), y.size(), DType::f32, {.tag = 1});
    groups[0]->all_reduce(y.data(), y.size(), DType::f32, {.tag = 2, .when_done = [&calls] { ++calls; }});
    groups[0].reset();
    EXPECT_EQ(calls, 1);
    const auto answers = told.after(1);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_TRUE(answers[0] == "done" || answers[0] == "rank 0") << answers[0];
  }
}

class GlooWhenDone : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gloo()) GTEST_SKIP() << "this build has no gloo";
  }
  std::vector<std::string> on_all(int size, const std::function<std::string(Group&)>& run) {
    const TemporaryFolder folder;
    Processes processes;
    for (int rank = 0; rank < size; ++rank) {
      processes.start([&, rank] {
        GlooOptions options;
        options.folder = folder.path();
        options.job = "job";
        options.rank = rank;
        options.size = size;
        options.group = {.time_out = 60s, .chunk_bytes = 8192};
        return run(*make_gloo_group(options));
      });
    }
    std::vector<std::string> out;
    for (int rank = 0; rank < size; ++rank) out.push_back(processes.join(static_cast<std::size_t>(rank)).text);
    return out;
  }
};

TEST_F(GlooWhenDone, IsCalledOnce) {
  const auto told = on_all(3, told_when_done);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(told[static_cast<std::size_t>(rank)], dones(rank, 3));
}

TEST_F(GlooWhenDone, IsCalledWhenTheGroupFails) {
  EXPECT_EQ(on_all(3, told_when_failed), (std::vector<std::string>{"rank 1|rank 1|", "left", "rank 1|rank 1|"}));
}

TEST_F(GlooWhenDone, MayStartTheNext) {
  EXPECT_EQ(on_all(2, told_in_a_chain), (std::vector<std::string>{"right", "right"}));
}

}  // namespace
}  // namespace overtake
