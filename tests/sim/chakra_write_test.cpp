#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "chakra_case.h"
#include "sim/chakra/chakra.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

struct PlanRun {
  Plan plan;
  Trace trace;
};

// Tasks appended in an order in which they can run, on random lanes of their device; times in keeping with that order.
class RandomRun {
 public:
  RandomRun(std::uint16_t devices, std::uint32_t seed) : random_(seed), buffers_(devices), tasks_(devices) {
    run_.plan.schedule = "random";
    run_.plan.graph.model = "none";
    for (std::uint16_t d = 0; d < devices; ++d)
      for (const bool is_asynchronous : {false, true, false, true})
        run_.plan.lanes.push_back({.device = d, .tasks = {}, .is_asynchronous = is_asynchronous});
  }

  PlanRun make(std::size_t steps) {
    for (std::size_t i = 0; i < steps; ++i) {
      const auto kind = random_() % 4;
      if (kind == 0 && devices() > 1)
        add_message();
      else if (kind == 1)
        add_collective();
      else
        add_block();
    }
    std::erase_if(run_.plan.lanes, [](const Lane& lane) { return lane.tasks.empty(); });
    std::ranges::sort(run_.plan.waits);
    run_.plan.waits.erase(std::ranges::unique(run_.plan.waits).begin(), run_.plan.waits.end());
    return std::move(run_);
  }

 private:
  std::uint32_t devices() const { return static_cast<std::uint32_t>(buffers_.size()); }
  std::uint16_t any_device() { return static_cast<std::uint16_t>(random_() % devices()); }
  Graph& graph() { return run_.plan.graph; }

  BufferId any_buffer(std::uint16_t d) {
    if (buffers_[d].empty() || random_() % 4 == 0) buffers_[d].push_back(new_buffer(d, Role::input));
    return buffers_[d][random_() % buffers_[d].size()];
  }
  BufferId new_buffer(std::uint16_t d, Role role, std::int64_t bytes = -1) {
    const BufferId b =
        graph().add_buffer("b", {bytes >= 0 ? bytes : static_cast<std::int64_t>(random_() % 5000)}, DType::u8, role);
    graph().buffers[b].device = d;
    return b;
  }

  void add(std::uint16_t d, Kind kind, Op op, const Attrs& attrs, std::vector<BufferId> reads, BufferId write) {
    static constexpr const char* names[] = {"conv1", "a.b.forward", "fc#3", ""};
    const LayerId layer = graph().add_layer(names[random_() % 4]);
    const TaskId t = graph().add_task(kind, op, layer, graph().add_attrs(attrs), reads, std::vector<BufferId>{write});
    graph().tasks[t].device = d;
    graph().tasks[t].micro_batch = static_cast<std::uint32_t>(random_() % 3);
    const std::size_t lane = std::size_t{d} * 4 + (op == Op::transfer ? random_() % 4 : 2 * (random_() % 2));
    run_.plan.lanes[lane].tasks.push_back(t);
    for (const TaskId before : tasks_[d])
      if (random_() % 8 == 0) run_.plan.waits.push_back({.before = before, .after = t});
    tasks_[d].push_back(t);
    if (random_() % 10 == 0) return;  // no span
    now_ += static_cast<std::int64_t>(random_() % 3000);
    const auto length = static_cast<std::int64_t>(random_() % 4 == 0 ? 0 : random_() % 100'000);
    run_.trace.spans.push_back({.task = t, .lane = 0, .begin_ns = now_, .end_ns = now_ + length});
    run_.trace.step_ns = std::max(run_.trace.step_ns, now_ + length);
  }

  void add_block() {
    const std::uint16_t d = any_device();
    static constexpr Kind kinds[] = {Kind::forward, Kind::input_grad, Kind::weight_grad, Kind::update, Kind::load};
    const BufferId read = any_buffer(d), write = new_buffer(d, Role::activation);
    add(d, kinds[random_() % 5], Op::block, {}, {read}, write);
    buffers_[d].push_back(write);
  }
  void add_message() {
    const std::uint16_t from = any_device();
    const auto to = static_cast<std::uint16_t>((from + 1 + random_() % (devices() - 1)) % devices());
    const BufferId x = any_buffer(from), message = new_buffer(from, Role::activation, 0);
    const Attrs attrs = random_() % 2 == 0 ? Attrs{} : Attrs{{"priority", std::int64_t{7}}};
    add(from, Kind::send, Op::transfer, attrs, {x}, message);
    const BufferId got = new_buffer(to, Role::activation, graph().bytes(x));
    add(to, Kind::recv, Op::transfer, attrs, {message}, got);
    buffers_[to].push_back(got);
  }
  void add_collective() {
    static constexpr Kind kinds[] = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all};
    const Kind kind = kinds[random_() % 4];
    std::vector<std::uint16_t> members(devices());
    std::iota(members.begin(), members.end(), std::uint16_t{0});
    std::ranges::shuffle(members, random_);
    if (random_() % 2 == 0) members.resize(1 + random_() % devices());
    const auto n = std::ssize(members), size = static_cast<std::ptrdiff_t>(random_() % 5000);
    const Attrs attrs{{"collective", std::int64_t{next_collective_ += 3}}};
    for (const std::uint16_t d : members) {
      const BufferId x = new_buffer(d, Role::input, size);
      const BufferId y = new_buffer(d, Role::activation,
                                    kind == Kind::all_gather       ? size * n
                                    : kind == Kind::reduce_scatter ? (size + n - 1) / n
                                                                   : size);
      add(d, kind, Op::transfer, attrs, {x}, y);
      buffers_[d].push_back(y);
    }
  }

  std::mt19937 random_;
  PlanRun run_;
  std::vector<std::vector<BufferId>> buffers_;
  std::vector<std::vector<TaskId>> tasks_;
  std::int64_t now_ = 0, next_collective_ = 2;
};

void expect_equal(const PlanRun& run, const ChakraPlan& in) {
  const Graph &a = run.plan.graph, &b = in.plan.graph;
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(run.plan.schedule, in.plan.schedule);
  ASSERT_EQ(a.tasks.size(), b.tasks.size());
  std::vector<std::int64_t> durations(a.tasks.size(), 0);
  std::vector<const Span*> spans(a.tasks.size(), nullptr);
  for (const Span& span : run.trace.spans) {
    durations[span.task] = span.end_ns - span.begin_ns;
    spans[span.task] = &span;
  }
  EXPECT_EQ(in.durations_ns, durations);
  for (TaskId t = 0; t < a.tasks.size(); ++t) {
    const Task &x = a.tasks[t], &y = b.tasks[t];
    EXPECT_EQ(a.layer_name(x.layer), b.layer_name(y.layer));
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.device, y.device);
    EXPECT_EQ(x.micro_batch, y.micro_batch);
    EXPECT_EQ(a.attrs_of(x), b.attrs_of(y));
    if (x.op != Op::transfer) continue;
    if (x.kind != Kind::recv) {
      EXPECT_EQ(a.bytes(a.reads(t)[0]), b.bytes(b.reads(t)[0]));
    }
    EXPECT_EQ(a.bytes(a.writes(t)[0]), b.bytes(b.writes(t)[0]));
    EXPECT_EQ(b.buffers[b.writes(t)[0]].device, y.device);
  }
  const Dependencies before = dependencies(run.plan), after = dependencies(in.plan);
  EXPECT_EQ(before.first, after.first);
  EXPECT_EQ(before.list, after.list);
  ASSERT_EQ(run.plan.lanes.size(), in.plan.lanes.size());
  for (std::size_t l = 0; l < in.plan.lanes.size(); ++l) {
    EXPECT_EQ(run.plan.lanes[l].tasks, in.plan.lanes[l].tasks);
    EXPECT_EQ(run.plan.lanes[l].device, in.plan.lanes[l].device);
    EXPECT_EQ(run.plan.lanes[l].is_asynchronous, in.plan.lanes[l].is_asynchronous);
  }
  EXPECT_EQ(run.trace.spans.size(), in.recorded.spans.size());
  EXPECT_EQ(run.trace.step_ns, in.recorded.step_ns);
  for (const Span& span : in.recorded.spans) {
    EXPECT_EQ(span.begin_ns, spans[span.task]->begin_ns);
    EXPECT_EQ(span.end_ns, spans[span.task]->end_ns);
    EXPECT_TRUE(std::ranges::count(in.plan.lanes[span.lane].tasks, span.task) == 1);
  }
}

TEST(ChakraWrite, ReadsBackAsItWas) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const auto devices = static_cast<std::uint16_t>(1 + seed % 4);
    const PlanRun run = RandomRun(devices, seed).make(10 + seed * 2);
    verify(run.plan);
    const TemporaryFolder folder;
    write_chakra(run.plan, run.trace, folder.path() / "new" / "run");
    const ChakraPlan in = read_chakra(folder.path() / "new" / "run");
    verify(in.plan);
    expect_equal(run, in);
    // Once more, and the files are the same.
    write_chakra(in.plan, in.recorded, folder.path() / "again");
    for (std::size_t d = 0; d < devices; ++d) {
      const std::string end = "." + std::to_string(d) + ".et";
      if (!std::filesystem::exists(folder.path() / "new" / ("run" + end))) continue;
      EXPECT_EQ(read_file(folder.path() / "new" / ("run" + end)), read_file(folder.path() / ("again" + end))) << seed;
    }
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// Two devices of three reduce 12 bytes, one task behind another on a lane.
PlanRun small_run() {
  PlanRun run;
  Graph& g = run.plan.graph;
  const LayerId layer = g.add_layer("fc");
  const auto add = [&](std::uint16_t device, Kind kind, Op op, const Attrs& attrs, std::vector<BufferId> reads,
                       std::vector<BufferId> writes) {
    const TaskId t = g.add_task(kind, op, layer, g.add_attrs(attrs), reads, writes);
    g.tasks[t].device = device;
    return t;
  };
  const Attrs attrs{{"collective", std::int64_t{0}}};
  std::vector<BufferId> x, y;
  for (int i = 0; i < 2; ++i) {
    x.push_back(g.add_buffer("x", {3}, DType::f32, Role::weight_gradient));
    y.push_back(g.add_buffer("y", {3}, DType::f32, Role::weight_gradient));
  }
  const TaskId first = add(0, Kind::weight_grad, Op::block, {}, {}, {x[0]}),
               second = add(0, Kind::update, Op::block, {}, {}, {});
  const TaskId other = add(2, Kind::weight_grad, Op::block, {}, {}, {x[1]});
  const TaskId a = add(0, Kind::all_reduce, Op::transfer, attrs, {x[0]}, {y[0]});
  const TaskId b = add(2, Kind::all_reduce, Op::transfer, attrs, {x[1]}, {y[1]});
  run.plan.lanes = {{0, {first, second}, false}, {0, {a}, true}, {2, {other, b}, false}};
  run.trace.spans = {{.task = first, .lane = 0, .begin_ns = 0, .end_ns = 1499}};
  return run;
}

TEST(ChakraWrite, WritesTheBytesOthersRead) {
  const PlanRun run = small_run();
  const TemporaryFolder folder;
  write_chakra(run.plan, run.trace, folder.path() / "run");
  EXPECT_EQ(read_file(folder.path() / "run.groups.json"), "{\"1\":[0,2]}\n");
  const std::string file = read_file(folder.path() / "run.0.et");
  // GlobalMetadata {version: "0.0.4", ...}, then node 0: id, name, type COMP_NODE, start 0 us, duration 1 us.
  EXPECT_EQ(file.substr(1, 7), std::string("\x0a\x05"
                                           "0.0.4"));
  EXPECT_NE(file.find(std::string("\x08\x00\x12\x0e"
                                  "fc.weight_grad"
                                  "\x18\x04\x30\x00\x38\x01",
                                  24)),
            std::string::npos);
  // Node 1 comes behind node 0 on its lane: ctrl_deps [0].
  EXPECT_NE(file.find(std::string("\x08\x01\x12\x09"
                                  "fc.update"
                                  "\x18\x04\x22\x01\x00",
                                  18)),
            std::string::npos);
  // Node 3: COMM_COLL_NODE with data_deps [0]; comm_size is an int64_val of 12, pg_name a string_val.
  EXPECT_NE(file.find(std::string("\x08\x03\x12\x0d"
                                  "fc.all_reduce"
                                  "\x18\x07\x2a\x01\x00",
                                  22)),
            std::string::npos);
  EXPECT_NE(file.find(std::string("\x52\x0d\x0a\x09"
                                  "comm_size"
                                  "\x48\x0c")),
            std::string::npos);
  EXPECT_NE(file.find(std::string("\x52\x0d\x0a\x07"
                                  "pg_name"
                                  "\xea\x01\x01"
                                  "1")),
            std::string::npos);
  // A device without tasks has a file, too.
  EXPECT_EQ(read_chakra(folder.path() / "run").plan.graph.tasks.size(), 5u);
  EXPECT_LT(std::filesystem::file_size(folder.path() / "run.1.et"), 80u);
}

TEST(ChakraWrite, RefusesWhatChakraCannotSay) {
  PlanRun run = small_run();
  const TemporaryFolder folder;
  folder.write("run.3.et", "");
  EXPECT_TRUE(says(user_error([&] { write_chakra(run.plan, run.trace, folder.path() / "run"); }),
                   {"run.3.et", "ranks 0 to 2", "remove it"}));
  run.plan.waits = {{.before = 0, .after = 2}};
  EXPECT_TRUE(says(user_error([&] { write_chakra(run.plan, run.trace, folder.path() / "other"); }),
                   {"fc.weight_grad of device 2 waits for fc.weight_grad of device 0", "no transfer"}));
}

// Our own files have more to get wrong: lanes, places, numbers of collectives.
TEST(ChakraWrite, IsReadSafelyWhenDamaged) {
  const TemporaryFolder folder;
  const PlanRun run = RandomRun(3, 5).make(12);
  write_chakra(run.plan, run.trace, folder.path() / "run");
  std::vector<std::string> good;
  for (int d = 0; d < 3; ++d) good.push_back(read_file(folder.path() / ("run." + std::to_string(d) + ".et")));
  std::mt19937 random(6);
  std::size_t fine = 0;
  constexpr std::size_t tries = 10'000;
  for (std::size_t i = 0; i < tries; ++i) {
    std::vector<ChakraFile> files;
    for (std::string& content : chakra_case::damaged(good, random)) files.push_back({"run", std::move(content)});
    try {
      verify(read_chakra(files).plan);
      ++fine;
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(fine, tries / 100);
  EXPECT_LT(fine, tries * 9 / 10);
}

}  // namespace
}  // namespace overtake
