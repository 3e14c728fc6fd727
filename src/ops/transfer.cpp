// What exists only where several devices work on one step.
// transfer, send:            reads x                    writes an empty buffer, the message
// transfer, recv:            reads the message          writes x on its own device
// transfer, all_reduce:      reads x                    writes the sum over all members
// transfer, reduce_scatter:  reads x                    writes this member's n-th of the sum
// transfer, all_gather:      reads this member's n-th   writes the whole
// transfer, all_to_all:      reads an n-th per member   writes an n-th of each member; in simulations only
//   there may be several x, in a collective as one vector
//   attributes: collective (its number: members are the tasks with the same, ranks by device), priority (higher first)
// transfer in a plan to be executed (plan/divide/detail.h): messages have attributes message (their number), peer
// (the other device) and forward (whether evaluation needs them), collectives members (devices) and index (of this
// one). Where one process has all devices, recv also reads the sender's x after the message, and collectives read x of
// member 0, then of member 1, and so on; a sum is made in the order of members, in float32. An n-th is that of
// comm/group.h's part_of, of each x for itself. See exec/transfer_view.h.
//
// block: several tasks taken as one, for simulation; any kind, reads and writes what they do together

#include <algorithm>

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

double no_flops(const Graph&, const Task&) { return 0; }

std::vector<InPlace> in_place(const Task& t) {
  // Nothing where members read each other's operands: who would be the last to?
  if (t.kind != Kind::all_reduce || t.reads != t.writes) return {};
  std::vector<InPlace> all;
  for (std::uint8_t i = 0; i < std::min<std::size_t>(t.reads, 255); ++i) all.push_back({.read = i, .write = i});
  return all;
}

void expect_alike(const TaskOperands& t, std::size_t read, std::size_t write) {
  t.expect_shape("x", t.written("y", write)->shape, read);
  t.expect_type("x", t.written("y", write)->dtype, read);
}

void check_message(const TaskOperands&) {}

// The first of what is read is the message; the others are what was sent. Neither is there where another process has
// the sender.
void check_receipt(const TaskOperands& t) {
  if (t.read_groups() <= 1) return;
  if (t.read_groups() != 1 + t.write_groups())
    t.fail(fmt::format("{} buffers were sent, {} come", t.read_groups() - 1, t.write_groups()));
  for (std::size_t i = 0; i < t.write_groups(); ++i) expect_alike(t, 1 + i, i);
}

// Of one member, or of all of them one after the other.
void expect_members(const TaskOperands& t) {
  const std::size_t members = t.attrs().has("members") ? t.attrs().integers("members").size() : 1;
  if (t.read_groups() != t.write_groups() && t.read_groups() != members * t.write_groups())
    t.fail(fmt::format("reads {} buffers and writes {}, among {} members", t.read_groups(), t.write_groups(), members));
}

void check_sums(const TaskOperands& t) {
  expect_members(t);
  for (std::size_t i = 0; i < t.read_groups(); ++i) expect_alike(t, i, i % t.write_groups());
}

void check_parts(const TaskOperands& t) {
  expect_members(t);
  for (std::size_t i = 0; i < t.read_groups(); ++i) t.expect_type("x", t.written("y", i % t.write_groups())->dtype, i);
}

constexpr Kinds kMessages = kinds(Kind::send), kReceipts = kinds(Kind::recv),
                kSums = kinds(Kind::all_reduce, Kind::all_to_all),
                kParts = kinds(Kind::reduce_scatter, Kind::all_gather);
constexpr TaskRule kTasks[] = {{kMessages, "x ... -> message", check_message},
                               {kReceipts, "x? ... -> y ...", check_receipt},
                               {kSums, "x ... -> y ...", check_sums},
                               {kParts, "x ... -> y ...", check_parts}};

}  // namespace

OpTraits transfer_traits() { return {.op = Op::transfer, .flops = no_flops, .in_place = in_place, .tasks = kTasks}; }
OpTraits block_traits() { return {.op = Op::block}; }

}  // namespace overtake
