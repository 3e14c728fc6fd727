// --trace of several processes, and what `overtake report` makes of it.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "command.h"

namespace overtake::tests {
namespace {

using nlohmann::json;

struct Span {
  double begin, end;  // us
};
struct Rank {
  std::string name;
  json described;
  std::map<int, std::map<std::string, int>> kinds;  // how many of a kind, by step; -1: none
  std::map<std::string, Span> sends, recvs;         // by step and number
  std::map<std::string, Span> collectives;          // likewise, with their kind
};

// By process.
std::map<int, Rank> ranks_of(const std::string& path) {
  std::map<int, Rank> ranks;
  const json file = json::parse(read_text(path));
  for (const json& e : file.at("traceEvents")) {
    Rank& rank = ranks[e.at("pid").get<int>()];
    const json args = e.value("args", json::object());
    if (e.at("name") == "process_name") rank.name = args.at("name");
    if (e.at("name") == "overtake_run") rank.described = args;
    if (e.at("ph") != "X") continue;
    const int step = args.value("step", -1);
    const std::string kind = args.at("kind");
    ++rank.kinds[step][kind];
    const Span span{e.at("ts").get<double>(), e.at("ts").get<double>() + e.at("dur").get<double>()};
    EXPECT_GE(span.begin, 0);
    const auto key = [&](const char* number) { return std::to_string(step) + " " + args.at(number).dump(); };
    if (args.contains("message")) (kind == "send" ? rank.sends : rank.recvs)[key("message")] = span;
    if (args.contains("collective")) rank.collectives[key("collective") + " " + kind] = span;
  }
  return ranks;
}

std::map<int, Rank> traced(const std::string& flags, const std::string& path) {
  const CommandResult r = overtake("launch -n 2 -- train lenet --batch 16 --data synthetic:128 --steps 5 --parts 2 " +
                                   flags + " --json --trace " + path);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  std::map<int, Rank> ranks = ranks_of(path);
  EXPECT_EQ(ranks.size(), 2u);
  for (auto& [number, rank] : ranks) {
    EXPECT_EQ(rank.described.at("rank"), number);
    EXPECT_EQ(rank.described.at("step_us").size(), 3u);
    EXPECT_EQ(rank.described.at("step_start_us").size(), 3u);
    // Both are on this machine's clock, in truth.
    EXPECT_LE(std::abs(rank.described.at("clock_offset_us").get<double>()),
              rank.described.at("clock_error_us").get<double>());
    // Nothing of a step is lost, wherever it ends: every step has the same tasks.
    for (int step = 1; step < 3; ++step) EXPECT_EQ(rank.kinds[step], rank.kinds[0]) << rank.name << ", step " << step;
  }
  return ranks;
}

double error_us(std::map<int, Rank>& ranks) {
  return ranks[0].described.at("clock_error_us").get<double>() + ranks[1].described.at("clock_error_us").get<double>() +
         0.002;  // rounding
}

void check_figures(const std::string& path) {
  const CommandResult r = overtake("report " + path + " --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json runs = r.json().at("runs");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].at("steps"), 3);
  ASSERT_EQ(runs[0].at("devices").size(), 2u);
  double idle = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const json d = runs[0].at("devices")[static_cast<std::size_t>(rank)];
    EXPECT_EQ(d.at("rank"), rank);
    EXPECT_NEAR(d.at("compute_ms").get<double>() + d.at("exposed_ms").get<double>() + d.at("idle_ms").get<double>(),
                runs[0].at("run_ms").get<double>(), 1e-6);
    EXPECT_GT(d.at("compute_ms").get<double>(), 0);
    EXPECT_GT(d.at("communication_ms").get<double>(), 0);
    EXPECT_LE(d.at("exposed_ms").get<double>(), d.at("communication_ms").get<double>());
    EXPECT_GT(d.at("peak_bytes").get<std::int64_t>(), 0);
    idle += d.at("idle_share").get<double>() / 2;
  }
  EXPECT_NEAR(runs[0].at("idle_share").get<double>(), idle, 1e-9);
}

TEST(RankTraces, OfReplicas) {
  for (const char* reduce : {"buckets", "by-layer", "scatter-gather", "first-k --first-k 2"}) {
    SCOPED_TRACE(reduce);
    const ScratchFolder folder;
    const std::string path = folder / "dp.json";
    auto ranks = traced(std::string("--dp 2 --reduce ") + reduce, path);
    EXPECT_EQ(ranks[1].name, "rank 1: replica 1");
    std::set<std::string> keys[2];
    for (auto& [number, rank] : ranks)
      for (const auto& [key, span] : rank.collectives)
        if (!key.starts_with("-1 ")) keys[number].insert(key);  // those before the first step may have ended on one
    EXPECT_GE(keys[0].size(), 3u);                              // one per step at least
    EXPECT_EQ(keys[0], keys[1]);
    // No member is done before the last has begun.
    for (const std::string& key : keys[0]) {
      EXPECT_LE(ranks[0].collectives[key].begin, ranks[1].collectives[key].end + error_us(ranks)) << key;
      EXPECT_LE(ranks[1].collectives[key].begin, ranks[0].collectives[key].end + error_us(ranks)) << key;
    }
    check_figures(path);
  }
}

TEST(RankTraces, OfAPipeline) {
  const ScratchFolder folder;
  const std::string path = folder / "pp.json";
  auto ranks = traced("--pp 2 --micro-batches 4", path);
  EXPECT_EQ(ranks[0].name, "rank 0: stage 0");
  for (const int from : {0, 1}) {
    EXPECT_GE(ranks[from].sends.size(), 12u);  // activations, or their gradients: four a step
    for (const auto& [key, send] : ranks[from].sends) {
      ASSERT_TRUE(ranks[1 - from].recvs.contains(key)) << key;
      EXPECT_LE(send.begin, ranks[1 - from].recvs[key].end + error_us(ranks)) << key;
    }
  }
  check_figures(path);

  const CommandResult text = overtake("report " + path + " -o " + (folder / "pp.html"));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* word : {"rank 0: stage 0", "rank 1: stage 1", "all 2", "exposed", "clocks of ranks agree"})
    EXPECT_NE(text.out.find(word), std::string::npos) << text.out;
}

TEST(RankTraces, AreWholeAroundACheckpoint) {
  const ScratchFolder folder;
  const std::string path = folder / "saved.json";
  traced("--dp 2 --reduce by-layer --save-every 1 --save " + (folder / "run"), path);
}

}  // namespace
}  // namespace overtake::tests
