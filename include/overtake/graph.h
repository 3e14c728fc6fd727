#pragma once
// Graph: the tasks and buffers of one training step, as plain data. Ids are indices; nothing points anywhere.
//
// Within a step every buffer is written by at most one task, except those that live across steps (weights, states):
// their one writer reads them too and runs after all other readers. A state may have a writer in every micro-batch, on
// one lane, each of which goes on from what it reads. Everything about order follows from reads and
// writes; see dependencies().
//
// A delayed task runs one step late, amid the tasks of the step after the one it belongs to. It reads what that earlier
// step left behind, so it must run before this step writes it anew; and whoever reads what it writes (a weight, by its
// update) waits for it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "overtake/layout.h"
#include "overtake/types.h"

namespace overtake {

// Where an image lies inside a wider one: its channels beside those of others, in the rows of one channels-last image.
struct Place {
  BufferId buffer = kNone;   // which lies in no other; kNone: the image has memory of its own
  std::int64_t channel = 0;  // of that one: where the first of ours is
  bool operator==(const Place&) const = default;
};

struct Buffer {
  StringId name = 0;
  Shape shape;
  Layout layout;
  DType dtype = DType::f32;
  Role role = Role::activation;
  std::uint16_t device = 0;
  Place inside = {};
};

struct Task {
  Kind kind = Kind::forward;
  Op op = Op::add;
  std::uint16_t device = 0;
  bool is_delayed = false;
  std::uint32_t micro_batch = 0;
  LayerId layer = 0;
  AttrsId attrs = 0;
  // Ranges of Graph::operands. An operand may be kNone; what each place means is said in the op's file.
  std::uint32_t first_read = 0;
  std::uint16_t reads = 0;
  std::uint16_t writes = 0;  // the writes follow the reads
};

// How a trained or kept buffer starts.
struct Init {
  enum class Kind : std::uint8_t { zeros, ones, uniform, normal };
  Kind kind = Kind::zeros;
  double scale = 0;  // half-width of uniform, standard deviation of normal
  bool operator==(const Init&) const = default;
};

// Some rows of a buffer that are a tensor of their own in files.
struct StoredPart {
  StringId name = 0;
  std::int64_t rows = 0;
  Init init;
};

// A buffer that lives across steps. `gradient` is kNone for states and until differentiation. `copy` lies in memory as
// the buffer does, in another element type; whoever writes the buffer from the host writes the copy too.
struct Parameter {
  BufferId buffer = kNone;
  BufferId gradient = kNone;
  BufferId copy = kNone;
  Init init;
  bool stored_transposed = false;          // files keep this matrix as [columns, rows]
  bool is_frozen = false;                  // a weight that is not trained
  std::int64_t stored_rows = 0;            // files keep only so many rows, the rest is zero for ever; 0: all of them
  std::optional<Shape> stored_shape = {};  // files keep what they keep of it in this shape
  std::vector<StoredPart> parts = {};  // files keep these, one after the other by rows; empty: one, named as the buffer
};

// Numbers that are part of the model: row-major bytes of a buffer of role constant.
struct Constant {
  BufferId buffer = kNone;
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

class Graph {
 public:
  std::string model;        // its name, for people
  std::uint32_t parts = 1;  // into how many fixed pieces a task is cut; sums are cut at these places and no others

  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  std::vector<Parameter> parameters;
  std::vector<Constant> constants;
  std::vector<StringId> layers;  // names
  std::vector<Attrs> attrs;
  std::vector<BufferId> operands;
  std::vector<BufferId> losses;  // roots of differentiation: each [3] = mean loss, counted rows, correct rows

  Graph() {
    intern("");
    add_attrs({});
  }

  StringId intern(std::string_view text);
  const std::string& string(StringId id) const { return strings_[id]; }
  AttrsId add_attrs(const Attrs& value);  // equal ones share an id
  LayerId add_layer(std::string_view name);
  BufferId add_buffer(std::string_view name, const Shape& shape, DType dtype, Role role);
  TaskId add_task(Kind kind, Op op, LayerId layer, AttrsId attrs, std::span<const BufferId> reads,
                  std::span<const BufferId> writes);
  TaskId add_task(Kind kind, Op op, LayerId layer, AttrsId attrs, std::initializer_list<BufferId> reads,
                  std::initializer_list<BufferId> writes);
  // Gives a task other operands; the old range is left behind unused.
  void set_operands(TaskId task, std::span<const BufferId> reads, std::span<const BufferId> writes);

  std::span<const BufferId> reads(const Task& t) const { return {operands.data() + t.first_read, t.reads}; }
  std::span<const BufferId> writes(const Task& t) const { return {operands.data() + t.first_read + t.reads, t.writes}; }
  std::span<const BufferId> reads(TaskId id) const { return reads(tasks[id]); }
  std::span<const BufferId> writes(TaskId id) const { return writes(tasks[id]); }
  const Attrs& attrs_of(const Task& t) const { return attrs[t.attrs]; }

  const std::string& layer_name(LayerId id) const { return string(layers[id]); }
  const std::string& buffer_name(BufferId id) const { return string(buffers[id].name); }
  std::string task_name(TaskId id) const;  // "conv1.weight_grad"
  std::int64_t bytes(BufferId id) const;   // from the first to the last, with the padding and gaps of its layout

 private:
  std::vector<std::string> strings_;
  std::unordered_map<std::string, StringId> string_ids_;
  std::map<Attrs, AttrsId> attrs_ids_;
};

// True for buffers that live from step to step.
bool is_persistent(Role role);

// For each task, the tasks that must have ended before it may start, and the other way round, as compressed rows.
struct Dependencies {
  std::vector<std::uint32_t> first;  // tasks + 1
  std::vector<TaskId> list;
  std::span<const TaskId> of(TaskId id) const { return {list.data() + first[id], list.data() + first[id + 1]}; }
};
Dependencies dependencies(const Graph& graph);
// Where steps follow each other without a barrier: the tasks of the step before that must have ended. What lives across
// steps must have been changed before it is read again, everything else must have been read before it is written anew.
Dependencies dependencies_across_steps(const Graph& graph);
// Of n tasks, from (after, before) pairs in any order.
Dependencies dependencies_from(std::vector<std::pair<TaskId, TaskId>> edges, std::size_t n);
Dependencies reversed(const Dependencies& deps);

// Checks everything that must hold for any graph; throws an InternalError that names the task.
void verify(const Graph& graph);

// One line per task, for people.
std::string print(const Graph& graph);

std::string save_json(const Graph& graph);
Graph load_graph_json(std::string_view text);  // user errors: not JSON, unknown op, ids out of range

}  // namespace overtake
