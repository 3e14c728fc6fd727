// Tasks against the table of ops: what passes make is right, and what is broken is named.

#include "ops/check_task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"
#include "cpu_step.h"
#include "gpu_step.h"
#include "ops/op.h"
#include "overtake/model.h"
#include "plan/in_order.h"

namespace overtake {
namespace {

// A graph, and one of its tasks to be broken.
class BrokenTask {
 public:
  BrokenTask(Graph graph, Op op, Kind kind) : g_(std::move(graph)) {
    const auto found = std::ranges::find_if(g_.tasks, [&](const Task& t) { return t.op == op && t.kind == kind; });
    EXPECT_NE(found, g_.tasks.end()) << to_string(op) << " " << to_string(kind);
    task_ = static_cast<TaskId>(found - g_.tasks.begin());
    reads_.assign(g_.reads(task_).begin(), g_.reads(task_).end());
    writes_.assign(g_.writes(task_).begin(), g_.writes(task_).end());
  }
  BrokenTask(Graph graph, TaskId task) : BrokenTask(graph, graph.tasks[task].op, graph.tasks[task].kind) {
    task_ = task;
    reads_.assign(g_.reads(task).begin(), g_.reads(task).end());
    writes_.assign(g_.writes(task).begin(), g_.writes(task).end());
  }

  std::size_t operands() const { return reads_.size() + writes_.size(); }
  BufferId& operand(std::size_t i) { return i < reads_.size() ? reads_[i] : writes_[i - reads_.size()]; }
  const Buffer& buffer(std::size_t i) { return g_.buffers[operand(i)]; }
  std::string name() const { return g_.task_name(task_); }

  // Another buffer in the place of operand i, changed.
  template <class Change>
  void replace(std::size_t i, Change change) {
    g_.buffers.push_back(Buffer(buffer(i)));
    change(g_.buffers.back());
    operand(i) = static_cast<BufferId>(g_.buffers.size() - 1);
  }
  void read_one_more() { reads_.push_back(reads_.front()); }
  void write_one_more() { writes_.push_back(writes_.front()); }

  // What is said of it; empty where nothing is.
  std::string error() {
    g_.set_operands(task_, reads_, writes_);
    try {
      check_tasks(g_);
    } catch (const InternalError& e) {
      return e.what();
    }
    return "";
  }

 private:
  Graph g_;
  TaskId task_ = 0;
  std::vector<BufferId> reads_, writes_;
};

void widen(Buffer& b) { b.shape[b.shape.rank - 1u] = 7 * b.shape.back() + 1; }

void expect_said(const std::string& error, std::initializer_list<std::string> words) {
  for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << word << " in: " << error;
}

const Graph& small_cnn() {
  static const Graph g = cpu_step("cnn", "batch=4,width=4", {.momentum = 0.9, .clip_norm = 1});
  return g;
}
const Graph& small_transformer() {
  static const Graph g = cpu_step("transformer", "batch=2,layers=1,width=8,heads=2,sequence=4,dropout=0.1",
                                  {.kind = OptimizerSettings::Kind::adamw});
  return g;
}
const Graph& small_lstm() {
  static const Graph g = cpu_step("lstm", "batch=2,sequence=3,vocabulary=11,width=4,hidden=5,layers=1");
  return g;
}

// Ops that few networks of the zoo have.
Graph other_ops() {
  Model m("others", 2);
  const Init init{Init::Kind::normal, 0.1};
  Value x = m.input({4, 8, 8});
  x = m.group_norm(m.max_pool(m.conv2d(x, {.out = 4, .kernel = 3, .padding = 1})), {.groups = 2});
  x = m.concat({m.avg_pool(x), m.adaptive_pool(x, 2, 2)}, 1);  // [2, 8, 2, 2]
  x = m.transpose(m.reshape(x, {-1, 8, 4}), {0, 2, 1});        // [2, 4, 8]
  x = m.add(x, m.parameter({8}, init, "shift"));
  x = m.mul(m.slice(x, 2, 0, 6), m.parameter({4, 1}, init, "scale"));  // [2, 4, 6]
  x = m.matmul(x, m.parameter({6, 6}, init, "factor"));
  x = m.add(x, m.stop_gradient(x));
  x = m.softmax(m.activation(x, "silu"), 2);
  x = m.attention(x, x, x, {.heads = 2}, m.mask({4}));
  x = m.mul(x, m.expand(m.reduce_mean(x, {0, 1}), {2, 4, 6}));
  m.mean_squared_error(m.global_pool(m.reshape(x, {-1, 4, 3, 2})));
  const CpuTarget target;
  PassRunner runner({.skip = {"fuse_elementwise"}, .print = {}});
  return build_training_graph(std::move(m).finish(), target, {.optimizer = {}, .parts = 2, .extra = {}}, runner);
}

TEST(CheckTask, EveryOpButTheSimulatedOneHasARule) {
  for (std::size_t i = 0; i < kOpCount; ++i)
    EXPECT_EQ(traits(static_cast<Op>(i)).tasks.empty(), static_cast<Op>(i) == Op::block) << to_string(Op(i));
}

TEST(CheckTask, NamesAnOperandTooMany) {
  BrokenTask conv(small_cnn(), Op::conv2d, Kind::forward);
  conv.read_one_more();
  expect_said(conv.error(), {conv.name(), "conv2d", "reads 4 operands", "x, w bias? -> y"});
  BrokenTask pool(small_cnn(), Op::global_pool, Kind::forward);
  pool.write_one_more();
  expect_said(pool.error(), {pool.name(), "writes 2 operands"});
  BrokenTask update(small_cnn(), Op::sgd, Kind::update);
  update.read_one_more();
  expect_said(update.error(), {update.name(), "sgd", "operands"});
}

TEST(CheckTask, NamesTheOperandAndBothShapes) {
  BrokenTask conv(small_cnn(), Op::conv2d, Kind::input_grad);
  conv.replace(1, widen);
  expect_said(conv.error(), {conv.name(), "operand w", to_string(conv.buffer(1).shape)});
  BrokenTask norm(small_cnn(), Op::batch_norm, Kind::forward);
  const std::string channels = to_string(norm.buffer(2).shape);
  norm.replace(2, widen);
  expect_said(norm.error(), {norm.name(), "operand gamma", to_string(norm.buffer(2).shape), "not f32 " + channels});
  BrokenTask linear(small_cnn(), Op::linear, Kind::weight_grad);
  const std::string dw = to_string(linear.buffer(2).shape);
  linear.replace(2, widen);
  expect_said(linear.error(), {linear.name(), "operand dw", to_string(linear.buffer(2).shape), "not f32 " + dw});
  BrokenTask attention(small_transformer(), Op::attention, Kind::forward);
  attention.replace(5, widen);
  expect_said(attention.error(), {attention.name(), "operand lse", to_string(attention.buffer(5).shape)});
  BrokenTask lstm(small_lstm(), Op::lstm, Kind::input_grad);
  lstm.replace(1, widen);
  expect_said(lstm.error(), {lstm.name(), "operand w_hh", to_string(lstm.buffer(1).shape)});
}

TEST(CheckTask, NamesAnotherElementType) {
  const auto make_integer = [](Buffer& b) { b.dtype = DType::i32; };
  BrokenTask norm(small_transformer(), Op::layer_norm, Kind::forward);
  norm.replace(1, make_integer);
  expect_said(norm.error(), {norm.name(), "operand gamma", "is i32 [", "not f32 ["});
  BrokenTask embedding(small_transformer(), Op::embedding, Kind::forward);
  embedding.replace(0, [](Buffer& b) { b.dtype = DType::f32; });
  expect_said(embedding.error(), {embedding.name(), "token ids must be int32"});
  // Statistics are float32 whatever activations are.
  BrokenTask statistics(small_transformer(), Op::layer_norm, Kind::weight_grad);
  statistics.replace(2, [](Buffer& b) { b.dtype = DType::bf16; });
  expect_said(statistics.error(), {statistics.name(), "operand mean", "is bf16 [", "not f32 ["});
  BrokenTask weight(small_transformer(), Op::adamw, Kind::update);
  weight.replace(3, make_integer);
  expect_said(weight.error(), {weight.name(), "operand m ", "not f32"});
}

TEST(CheckTask, NamesWhatIsAbsent) {
  BrokenTask linear(small_transformer(), Op::linear, Kind::forward);
  linear.operand(1) = kNone;
  expect_said(linear.error(), {linear.name(), "operand w is absent"});
  BrokenTask bias(small_transformer(), Op::linear, Kind::forward);
  bias.operand(2) = kNone;  // which its attributes promise
  expect_said(bias.error(), {bias.name(), "operand bias is absent", "not ["});
  BrokenTask loss(small_transformer(), Op::cross_entropy, Kind::input_grad);
  loss.operand(2) = kNone;
  expect_said(loss.error(), {loss.name(), "operand lse is absent"});
  BrokenTask pool(other_ops(), Op::max_pool, Kind::input_grad);
  pool.operand(1) = kNone;
  expect_said(pool.error(), {pool.name(), "operand index is absent"});
}

TEST(CheckTask, NamesAKindThatTheOpDoesNotHave) {
  Graph g = small_cnn();
  const auto pool = std::ranges::find(g.tasks, Op::global_pool, &Task::op);
  pool->kind = Kind::update;
  try {
    check_tasks(g);
    FAIL();
  } catch (const InternalError& e) {
    expect_said(e.what(), {"global_pool", "no tasks of kind update"});
  }
}

TEST(CheckTask, AnUpdateChangesWhatItReads) {
  BrokenTask sgd(small_cnn(), Op::sgd, Kind::update);
  sgd.replace(5, [](Buffer&) {});
  expect_said(sgd.error(), {sgd.name(), "operand w ", "the one that is read"});
}

TEST(CheckTask, SumsAndTransfersAreOfEqualShapes) {
  Graph g;
  const LayerId layer = g.add_layer("l");
  const BufferId a = g.add_buffer("a", {2, 3}, DType::f32, Role::input),
                 b = g.add_buffer("b", {3, 2}, DType::f32, Role::input),
                 c = g.add_buffer("c", {2, 3}, DType::f32, Role::gradient),
                 d = g.add_buffer("d", {2, 3}, DType::bf16, Role::gradient);
  const auto error_of = [&](Kind kind, Op op, const Attrs& attrs, std::initializer_list<BufferId> reads,
                            std::initializer_list<BufferId> writes) -> std::string {
    Graph one = g;
    one.add_task(kind, op, layer, one.add_attrs(attrs), reads, writes);
    try {
      check_tasks(one);
    } catch (const InternalError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(Kind::weight_grad, Op::sum, {}, {a, a}, {c}), "");
  expect_said(error_of(Kind::weight_grad, Op::sum, {}, {a, b}, {c}), {"l.weight_grad", "(b)", "[3, 2]", "[2, 3]"});
  const Attrs two{{"members", std::vector<std::int64_t>{0, 1}}};
  EXPECT_EQ(error_of(Kind::all_reduce, Op::transfer, two, {a, a}, {c}), "");
  expect_said(error_of(Kind::all_reduce, Op::transfer, two, {a, b}, {c}), {"l.all_reduce", "[3, 2]", "[2, 3]"});
  expect_said(error_of(Kind::all_reduce, Op::transfer, two, {a}, {d}), {"l.all_reduce", "is f32", "not bf16"});
  expect_said(error_of(Kind::all_reduce, Op::transfer, two, {a, a, a}, {c}), {"reads 3 buffers", "2 members"});
  expect_said(error_of(Kind::recv, Op::transfer, {}, {a, b}, {c}), {"l.recv", "[3, 2]", "[2, 3]"});
  EXPECT_EQ(error_of(Kind::forward, Op::reorder, {}, {a}, {d}), "");
  expect_said(error_of(Kind::forward, Op::reorder, {}, {b}, {d}), {"l.forward", "operand y (d)", "[2, 3]", "[3, 2]"});
}

// Every operand of a task of each op and kind, broken in turn. What may have any size is left out by name.
void expect_all_found(const Graph& g) {
  std::set<std::tuple<Op, Kind, std::size_t>> seen;
  // A norm of anything, any number of classes, means of images of any size.
  const auto may_have_any_size = [](const Task& t, std::size_t operand) {
    const std::size_t x = t.kind == Kind::forward ? 0 : 1;
    return t.op == Op::squared_norm || t.op == Op::clip_norm || (t.op == Op::slice && operand == x) ||
           ((t.op == Op::global_pool || t.op == Op::adaptive_pool) && operand == x) ||
           (t.op == Op::cross_entropy && t.kind == Kind::forward && operand == 0);
  };
  std::size_t broken = 0;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& task = g.tasks[t];
    if (!seen.insert({task.op, task.kind, task.reads}).second) continue;
    const std::size_t operands = std::size_t{task.reads} + task.writes;
    for (std::size_t i = 0; i < operands; ++i) {
      BrokenTask shape(g, t), type(g, t);
      const std::string what = fmt::format("{} ({}), operand {}", shape.name(), to_string(task.op), i);
      if (shape.operand(i) == kNone || shape.buffer(i).role == Role::scratch) continue;
      if (shape.buffer(i).shape.rank > 0 && !may_have_any_size(task, i)) {
        shape.replace(i, widen);
        EXPECT_NE(shape.error().find(shape.name()), std::string::npos) << what;
      }
      type.replace(i, [](Buffer& b) { b.dtype = b.dtype == DType::i32 ? DType::u8 : DType::i32; });
      EXPECT_NE(type.error().find(type.name()), std::string::npos) << what;
      ++broken;
    }
  }
  EXPECT_GT(broken, 50u);
}

TEST(CheckTask, FindsEveryBrokenOperand) {
  expect_all_found(small_cnn());
  expect_all_found(small_transformer());
  expect_all_found(small_lstm());
  expect_all_found(cpu_step("gru", "batch=2,sequence=3,vocabulary=11,width=4,hidden=5,layers=1"));
  expect_all_found(cpu_step("densenet-121", "batch=1,image=32,classes=10"));
  expect_all_found(gpu_step("gpt2", "batch=2,sequence=8,positions=8,vocabulary=521,width=32,heads=4,layers=1"));
  expect_all_found(gpu_step("vit-b-16", "batch=2,image=32,width=32,heads=4,layers=1,classes=10"));
  expect_all_found(gpu_step("resnet-18", "batch=2,image=32,classes=10,width=8"));
}

TEST(CheckTask, FindsEveryBrokenOperandOfOtherOps) { expect_all_found(other_ops()); }

// Most tasks of a large graph are like others, which are looked at once.
TEST(CheckTask, TasksThatAreAlikeAreAllLookedAt) {
  Graph g;
  const LayerId layer = g.add_layer("l");
  std::vector<BufferId> made = {g.add_buffer("x", {8}, DType::f32, Role::input)};
  for (int i = 0; i < 1000; ++i) {
    made.push_back(g.add_buffer("y", {8}, DType::f32, Role::activation));
    g.add_task(Kind::forward, Op::add, layer, 0, {made[made.size() - 2], made[0]}, {made.back()});
  }
  EXPECT_NO_THROW(check_tasks(g));
  g.buffers[made[999]].shape = {9};
  EXPECT_THROW(check_tasks(g), InternalError);
}

}  // namespace
}  // namespace overtake
