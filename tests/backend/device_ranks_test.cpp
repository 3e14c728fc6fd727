// Runs of ranks with a device each that calls NCCL, on a device that computes nothing: every rank plans for itself,
// and what they then call fits together.

#include <gtest/gtest.h>

#include <thread>

#include "comm/local/local_group.h"
#include "exec/transfer_calls.h"
#include "overtake/zoo.h"
#include "run_setup.h"

namespace overtake {
namespace {

struct Rank {
  std::vector<std::string> connected;
  Plan train, evaluate;
};

std::vector<Rank> plans_of_ranks(const ParallelOptions& parallel) {
  auto worlds = make_local_groups(static_cast<int>(parallel.devices()));
  std::vector<Rank> ranks(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < worlds.size(); ++r)
    threads.emplace_back([&, r] {
      RunSetup o;
      o.spec.device = "null";
      o.spec.parts = 1;
      o.more.place.profiles.clear();
      set_layout(o.spec, parallel);
      o.more.place.groups = std::make_shared<RankGroups>();
      o.more.place.groups->world = std::move(worlds[r]);
      o.more.place.device_groups = std::make_shared<DeviceGroups>();
      o.more.place.make_device_group = [&, r](const std::string& channel, int, int, int) -> std::shared_ptr<NcclGroup> {
        ranks[r].connected.push_back(channel);
        return nullptr;
      };
      TrainingRun training =
          run_of(build_model("gpt2", ModelSettings::parse("layers=2,width=32,heads=4,sequence=8,positions=8,"
                                                          "vocabulary=64,batch=2")),
                 o);
      ranks[r].train = training.executor().plan(0);
      ranks[r].evaluate = training.executor().plan(1);
    });
  for (std::thread& t : threads) t.join();
  return ranks;
}

TEST(DeviceRanks, EveryRankPlansWhatFitsTheOthers) {
  for (const char* reduce : {"buckets", "by-layer", "scatter-gather"}) {
    SCOPED_TRACE(reduce);
    const std::vector<Rank> ranks =
        plans_of_ranks({.replicas = 2, .stages = 2, .micro_batches = 4, .pipeline = "zb-h1", .reduce = reduce});
    const std::vector<std::string> first = {"0>1", "1>0", "0+2"}, last = {"2>3", "3>2", "1+3"};
    EXPECT_EQ(ranks[0].connected, first);
    EXPECT_EQ(ranks[3].connected, last);
    std::size_t calls_in_all = 0;
    for (const Portion portion : {Portion::step_and_delayed, Portion::step, Portion::delayed}) {
      std::vector<std::vector<TransferCall>> train, evaluate;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        train.push_back(transfer_calls(ranks[r].train, static_cast<std::int64_t>(r), portion));
        evaluate.push_back(transfer_calls(ranks[r].evaluate, static_cast<std::int64_t>(r), portion));
        calls_in_all += train.back().size();
      }
      check_calls(train);
      check_calls(evaluate);
    }
    EXPECT_GT(calls_in_all, 100u);
  }
}

}  // namespace
}  // namespace overtake
