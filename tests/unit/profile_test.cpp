// What schedules are made from: classes of tasks, times without the cost of measuring, loads from pairs, and the files
// that profiles are kept in.

#include "machine/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "base/file.h"
#include "exec/cpu/target.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "temporary_folder.h"
#include "train/profiling.h"
#include "unit/cpu_step.h"

namespace overtake {
namespace {

// A graph of one linear task per shape of its input [rows, 8] -> [rows, 4].
struct LinearTasks {
  explicit LinearTasks(const std::string& name) { layer = graph.add_layer(name); }
  TaskId add(std::int64_t rows, AttrsId attrs = 0, Kind kind = Kind::forward, DType dtype = DType::f32) {
    const BufferId x = graph.add_buffer("x", {rows, 8}, dtype, Role::input);
    const BufferId w = graph.add_buffer("w", {4, 8}, DType::f32, Role::weight);
    const BufferId y = graph.add_buffer("y", {rows, 4}, DType::f32, Role::activation);
    return graph.add_task(kind, Op::linear, layer, attrs, {x, w, kNone}, {y});
  }
  Graph graph;
  LayerId layer;
};

TEST(Classify, EqualTasksShareAClassAndOthersDoNot) {
  LinearTasks tasks("fc");
  Graph& g = tasks.graph;
  const AttrsId bias = g.add_attrs({{"bias", std::int64_t{1}}});
  const TaskId first = tasks.add(16), same = tasks.add(16), other_shape = tasks.add(17);
  const TaskId other_attrs = tasks.add(16, bias), other_kind = tasks.add(16, 0, Kind::input_grad);
  const TaskId other_type = tasks.add(16, 0, Kind::forward, DType::bf16), other_layout = tasks.add(16);
  std::swap(g.buffers[g.writes(other_layout)[0]].layout.order[0], g.buffers[g.writes(other_layout)[0]].layout.order[1]);
  const TaskId missing = tasks.add(16), other_op = tasks.add(16);
  g.set_operands(missing, std::vector{g.reads(missing)[0], kNone, kNone}, std::vector{g.writes(missing)[0]});
  g.tasks[other_op].op = Op::matmul;

  const TaskClasses classes = classify(g);
  EXPECT_EQ(classes.of[first], classes.of[same]);
  std::set<std::uint32_t> different;
  for (const TaskId t : {first, other_shape, other_attrs, other_kind, other_type, other_layout, missing, other_op})
    different.insert(classes.of[t]);
  EXPECT_EQ(different.size(), 8u);
  ASSERT_EQ(classes.members.size(), 8u);
  ASSERT_EQ(classes.signatures.size(), 8u);
  EXPECT_EQ(std::set(classes.signatures.begin(), classes.signatures.end()).size(), 8u);
  EXPECT_EQ(classes.members[classes.of[first]], (std::vector<TaskId>{first, same}));
}

TEST(Classify, SignaturesAreTheSameInEveryGraph) {
  LinearTasks one("one"), two("two");
  one.add(16);
  one.add(32);
  two.add(5);
  two.add(32);
  two.add(16);
  const TaskClasses a = classify(one.graph), b = classify(two.graph);
  EXPECT_EQ(a.signatures[a.of[0]], b.signatures[b.of[2]]);
  EXPECT_EQ(a.signatures[a.of[1]], b.signatures[b.of[1]]);
  EXPECT_NE(a.signatures[a.of[0]], b.signatures[b.of[0]]);
}

// Layers of a transformer are equal, so twice as many of them add no class.
TEST(Classify, EqualLayersOfANetwork) {
  const std::string settings = "width=32,heads=4,sequence=16,batch=3,layers=";
  const TaskClasses four = classify(cpu_step("transformer", settings + "4"));
  const TaskClasses eight = classify(cpu_step("transformer", settings + "8"));
  EXPECT_EQ(std::set(four.signatures.begin(), four.signatures.end()),
            std::set(eight.signatures.begin(), eight.signatures.end()));
  EXPECT_GT(eight.of.size(), four.of.size() + 40);
  std::size_t members = 0;
  for (const auto& list : eight.members) members += list.size();
  EXPECT_EQ(members, eight.of.size());
}

TEST(MedianTimes, OverTracesAndZeroForWhatNeverRan) {
  const std::vector<Trace> traces = {
      {{{0, 0, 0, 10}, {2, 1, 5, 8}}, 0}, {{{0, 0, 100, 130}, {2, 1, 0, 4}}, 0}, {{{2, 0, 0, 9}, {0, 1, 7, 27}}, 0}};
  EXPECT_EQ(median_times(traces, 3), (std::vector<std::int64_t>{20, 0, 4}));
}

std::int64_t sum(const std::vector<std::int64_t>& v) { return std::accumulate(v.begin(), v.end(), std::int64_t{0}); }

TEST(WithoutOverhead, TakesTheSameFromEachTask) {
  EXPECT_EQ(without_overhead({100, 200, 300}, 570), (std::vector<std::int64_t>{90, 190, 290}));
  EXPECT_EQ(without_overhead({100, 200, 300}, 600), (std::vector<std::int64_t>{100, 200, 300}));
  // The shortest has only 5 to give: the others give 15 each.
  EXPECT_EQ(without_overhead({5, 100, 200}, 270), (std::vector<std::int64_t>{0, 85, 185}));
  EXPECT_EQ(without_overhead({5, 100}, 0), (std::vector<std::int64_t>{0, 0}));
}

TEST(WithoutOverhead, TimesThatAreTooShortGrowByOneFactor) {
  EXPECT_EQ(without_overhead({100, 200, 0, 300}, 1200), (std::vector<std::int64_t>{200, 400, 0, 600}));
  EXPECT_EQ(without_overhead({}, 100), std::vector<std::int64_t>{});
  EXPECT_EQ(without_overhead({0, 0}, 100), (std::vector<std::int64_t>{0, 0}));
}

TEST(WithoutOverhead, AddsUpExactlyAndKeepsTheOrder) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::int64_t> traced(1 + random() % 300);
    for (std::int64_t& ns : traced) ns = random() % 8 == 0 ? 0 : static_cast<std::int64_t>(random() % 50'000);
    traced[0] = 1 + traced[0];
    const auto step = static_cast<std::int64_t>(static_cast<double>(sum(traced)) *
                                                (0.3 + 0.001 * static_cast<double>(random() % 1000)));
    const std::vector<std::int64_t> times = without_overhead(traced, step);
    EXPECT_EQ(sum(times), step);
    for (std::size_t t = 0; t < times.size(); ++t) {
      EXPECT_GE(times[t], 0);
      EXPECT_TRUE(step > sum(traced) || times[t] <= traced[t]);
      EXPECT_TRUE(traced[t] > 0 || times[t] == 0);
      const bool is_longer = t > 0 && traced[t] > traced[t - 1];
      EXPECT_TRUE(!is_longer || times[t] + 1 >= times[t - 1]) << "within a nanosecond";
    }
  }
}

TEST(TogetherNs, IsTheLongerOneOrTheSumOfLoads) {
  const std::vector<double> loads = {0.5, 0.4, 1.0};
  EXPECT_DOUBLE_EQ(together_ns({0, 1, 100, 100, 0}, loads), 100);
  EXPECT_DOUBLE_EQ(together_ns({0, 2, 100, 100, 0}, loads), 150);
  EXPECT_DOUBLE_EQ(together_ns({2, 2, 100, 60, 0}, loads), 160);
  EXPECT_DOUBLE_EQ(together_ns({1, 0, 10, 300, 0}, loads), 300);
}

// Pairs of made-up classes as they would be measured, with so much noise.
std::vector<CoRun> pairs_of(const std::vector<double>& loads, std::size_t mains, double noise, std::mt19937& random) {
  std::uniform_real_distribution<double> error(1 - noise, 1 + noise);
  std::vector<CoRun> pairs;
  for (std::uint32_t a = 0; a < mains; ++a)
    for (auto b = static_cast<std::uint32_t>(mains); b < loads.size(); ++b) {
      CoRun pair{a, b, 110'000 + static_cast<std::int64_t>(random() % 20'000),
                 110'000 + static_cast<std::int64_t>(random() % 20'000), 0};
      pair.together_ns = static_cast<std::int64_t>(together_ns(pair, loads) * error(random));
      pairs.push_back(pair);
    }
  return pairs;
}

// Where loads do not add up to the whole device a pair says little about either, so that single loads are known less
// well than what pairs take.
TEST(FitLoads, RecoversKnownLoads) {
  std::mt19937 random(2);
  double error = 0, together_error = 0;
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    std::vector<double> loads(16);
    for (double& load : loads) load = 0.2 + 0.01 * static_cast<double>(random() % 81);
    loads[3] = loads[11] = 1.0;  // beside these every load shows
    const std::vector<CoRun> pairs = pairs_of(loads, 8, 0.05, random);
    const std::vector<double> fitted = fit_loads(loads.size(), pairs);
    double together = 0;
    for (std::size_t c = 0; c < loads.size(); ++c) error += std::abs(fitted[c] - loads[c]) / 16 / kRounds;
    for (const CoRun& pair : pairs) together += std::abs(together_ns(pair, fitted) / together_ns(pair, loads) - 1);
    EXPECT_LT(together / static_cast<double>(pairs.size()), 0.03) << i;
    together_error += together / static_cast<double>(pairs.size()) / kRounds;
  }
  EXPECT_LT(error, 0.08);
  EXPECT_LT(together_error, 0.015);
}

TEST(FitLoads, ExactPairsOfFullLoads) {
  std::mt19937 random(3);
  const std::vector<double> loads = {0.9, 0.7, 1.0, 0.8, 0.6, 1.1};
  const std::vector<double> fitted = fit_loads(6, pairs_of(loads, 3, 0, random));
  // Only sums of a main and a side load are seen: what one side gains the other loses.
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 3; b < 6; ++b) EXPECT_NEAR(fitted[a] + fitted[b], loads[a] + loads[b], 0.02);
}

TEST(FitLoads, ClassesThatWereNotMeasuredGetTheMedian) {
  EXPECT_EQ(fit_loads(3, {}), (std::vector<double>{1, 1, 1}));
  const std::vector<double> fitted = fit_loads(4, {{0, 1, 100, 100, 200}, {0, 3, 100, 100, 200}});
  std::vector<double> known = {fitted[0], fitted[1], fitted[3]};
  std::ranges::sort(known);
  EXPECT_DOUBLE_EQ(fitted[2], known[1]);
  for (const double load : fit_loads(2, {{0, 1, 100, 100, 5000}, {0, 1, 0, 100, 5000}})) EXPECT_LE(load, 1.25);
  for (const double load : fit_loads(2, {{0, 1, 100, 100, 1}})) EXPECT_GE(load, 0.05);
}

class ProfileFile : public ::testing::Test {
 protected:
  Profile profile(const Graph& g) {
    return profile_of(g, *backend_, {.seconds = 1, .folder = folder_.path() / "kept", .note = [this](const auto& text) {
                                       notes_ += text + "\n";
                                     }});
  }
  std::filesystem::path file() const {
    std::filesystem::path found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "kept")) found = entry.path();
    return found;
  }
  static void expect_measured(const Profile& p, const Graph& g) {
    ASSERT_EQ(p.alone_ns.size(), g.tasks.size());
    ASSERT_EQ(p.load.size(), g.tasks.size());
    // The null executor takes a nanosecond for each task.
    EXPECT_EQ(p.in_order_ns, static_cast<std::int64_t>(g.tasks.size()));
    EXPECT_EQ(p.alone_ns, std::vector<std::int64_t>(g.tasks.size(), 1));
    for (const double load : p.load) EXPECT_TRUE(load >= 0.05 && load <= 1.25);
  }
  void write(const std::string& text) const { folder_.write("kept/" + file().filename().string(), text); }
  nlohmann::json kept() const { return nlohmann::json::parse(read_file(file())); }

  TemporaryFolder folder_;
  std::unique_ptr<Backend> backend_ = open_backend("null", {});
  Graph graph_ = cpu_step("ffnn", "batch=5,width=24,image=8");
  std::string notes_;
};

TEST_F(ProfileFile, IsKeptAndReadBack) {
  const Profile measured = profile(graph_);
  expect_measured(measured, graph_);
  EXPECT_EQ(notes_, "");
  // What is read is what the file says, not measured again.
  nlohmann::json changed = kept();
  changed["alone_ns"][2] = 12345;
  changed["load"][1] = 0.625;
  write(changed.dump());
  const Profile read = profile(graph_);
  EXPECT_EQ(read.alone_ns[2], 12345);
  EXPECT_EQ(read.load[1], 0.625);
  EXPECT_EQ(read.in_order_ns, measured.in_order_ns);
  EXPECT_EQ(notes_, "");
}

TEST_F(ProfileFile, OtherGraphsAndPrecisionsHaveFilesOfTheirOwn) {
  profile(graph_);
  const Graph other = cpu_step("ffnn", "batch=6,width=24,image=8");
  expect_measured(profile(other), other);
  Graph parts = graph_;
  parts.parts = 3;
  profile(parts);
  backend_ = open_backend("null", {.precision = Precision::bf16, .tuning_file = {}, .note = {}});
  profile(graph_);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path() / "kept"), {}), 4);
  EXPECT_EQ(notes_, "");
}

TEST_F(ProfileFile, DamagedFilesAreMeasuredAnewWithANote) {
  profile(graph_);
  const std::string good = read_file(file());
  std::vector<std::string> damaged = {"", "{", "null", "[]", "{}", "\"text\"", good.substr(0, good.size() / 2)};
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json j = nlohmann::json::parse(good);
    j[key] = value;
    return j.dump();
  };
  damaged.push_back(with("alone_ns", "text"));
  damaged.push_back(with("load", nlohmann::json::array({"x"})));
  damaged.push_back(with("format", 1));
  damaged.push_back(with("joint_ns", nlohmann::json::array({1, 2})));
  damaged.push_back(with("alone_ns", nlohmann::json::array({1, 2})));
  damaged.push_back(with("load", std::vector<double>(graph_.tasks.size() + 1, 0.5)));
  damaged.push_back(with("load", std::vector<double>(graph_.tasks.size(), -0.5)));
  damaged.push_back(with("alone_ns", std::vector<int>(graph_.tasks.size(), -1)));
  for (const std::string& text : damaged) {
    SCOPED_TRACE(text.substr(0, 80));
    notes_.clear();
    write(text);
    expect_measured(profile(graph_), graph_);
    EXPECT_TRUE(says(notes_, {file().string(), "measuring anew"}));
    EXPECT_EQ(read_file(file()), good) << "and replaced";
  }
}

TEST_F(ProfileFile, AFileOfAnotherGraphIsLeftAside) {
  profile(graph_);
  const std::filesystem::path path = file();
  const std::string good = read_file(path);
  nlohmann::json other = nlohmann::json::parse(good);
  other["key"] = "0123456789abcdef";
  write(other.dump());
  expect_measured(profile(graph_), graph_);
  EXPECT_TRUE(says(notes_, {path.string(), "of something else"}));
  EXPECT_EQ(read_file(path), good);
}

TEST_F(ProfileFile, AFolderThatCannotBeWrittenIsANote) {
  folder_.write("kept", "a file where the folder would be");
  expect_measured(profile(graph_), graph_);
  EXPECT_TRUE(says(notes_, {"not kept", (folder_.path() / "kept").string()}));
}

TEST_F(ProfileFile, WithoutAFolderNothingIsKept) {
  expect_measured(profile_of(graph_, *backend_, {.seconds = 1, .folder = {}, .note = {}}), graph_);
  EXPECT_EQ(folder_.file_count(), 0u);
}

}  // namespace
}  // namespace overtake
