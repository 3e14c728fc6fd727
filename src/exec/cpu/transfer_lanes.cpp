#include "exec/cpu/transfer_lanes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::size_t kLargeBytes = 256 << 10;  // a buffer that is sent for itself

TransferKind kind_of(Kind kind) {
  switch (kind) {
    case Kind::send:
      return TransferKind::send;
    case Kind::recv:
      return TransferKind::recv;
    case Kind::all_reduce:
      return TransferKind::all_reduce;
    case Kind::reduce_scatter:
      return TransferKind::reduce_scatter;
    default:
      OVERTAKE_CHECK(kind == Kind::all_gather, "{} is no transfer", to_string(kind));
      return TransferKind::all_gather;
  }
}

// The same on both ends of a message, and for all members of a collective.
std::uint64_t tag_of(std::int64_t number, Kind kind, std::size_t piece) {
  const bool is_gather = kind == Kind::all_gather;  // has the number of the scatter that it completes
  return (static_cast<std::uint64_t>(number) << 24) | (std::uint64_t{is_gather} << 16) | piece;
}

}  // namespace

TransferLanes::TransferLanes(const Plan& plan, const std::vector<std::byte*>& addresses,
                             std::shared_ptr<RankGroups> groups)
    : groups_(std::move(groups)), bound_(plan.graph.tasks.size()) {
  const std::vector<BufferUse> uses = buffer_uses(plan);
  for (std::uint32_t l = 0; l < plan.lanes.size(); ++l) {
    if (!plan.lanes[l].is_asynchronous) continue;
    lanes_.push_back(l);
    for (const TaskId t : plan.lanes[l].tasks) {
      const auto writes = plan.graph.writes(t);
      // What is carried over to delayed readers, and lies where it lay before, is safe in the next step.
      const auto is_carried = [&](BufferId b) { return uses[b].is_carried; };
      const auto stays = [&](BufferId b) {
        return std::ranges::any_of(writes, [&](BufferId w) { return addresses[w] == addresses[b]; });
      };
      bound_[t] = bind(plan, t, addresses);
      bound_[t]->lane = l;
      bound_[t]->may_go_on = plan.graph.tasks[t].kind == Kind::all_reduce && std::ranges::all_of(writes, is_carried) &&
                             std::ranges::all_of(plan.graph.reads(t), stays);
    }
  }
}

TransferLanes::Bound TransferLanes::bind(const Plan& plan, TaskId t, const std::vector<std::byte*>& addresses) const {
  const Graph& g = plan.graph;
  const Kind kind = g.tasks[t].kind;
  const Attrs& attrs = g.attrs_of(g.tasks[t]);
  const bool is_message = kind == Kind::send || kind == Kind::recv;
  const bool is_in_parts = kind == Kind::reduce_scatter || kind == Kind::all_gather;
  const auto reads = g.reads(t), writes = g.writes(t);
  Bound bound;
  std::vector<int> members;
  if (!is_message)
    for (const std::int64_t device : attrs.integers("members")) members.push_back(static_cast<int>(device));
  const std::int64_t number = attrs.integer(is_message ? "message" : "collective");
  const auto add = [&](Piece piece, std::byte* data, std::size_t bytes, DType dtype) {
    piece.request = {
        kind_of(kind),
        data,
        bytes / static_cast<std::size_t>(bytes_of(dtype)),
        dtype,
        is_message ? static_cast<int>(attrs.integer("peer")) : -1,
        {.tag = tag_of(number, kind, bound.pieces.size()), .priority = static_cast<int>(attrs.integer("priority", 0))},
        members};
    bound.pieces.push_back(std::move(piece));
  };
  // The whole of what is moved: a sum in parts is made in the place of its first operand, of which nobody else reads.
  const auto whole = kind == Kind::send || kind == Kind::reduce_scatter ? reads : writes;
  Piece small;
  std::size_t small_bytes = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::byte* const data = addresses[whole[i]];
    const auto bytes = static_cast<std::size_t>(g.bytes(whole[i]));
    const DType dtype = is_message ? DType::u8 : g.buffers[whole[i]].dtype;
    if (bytes < kLargeBytes && !is_in_parts && (is_message || dtype == DType::f32)) {
      if (kind != Kind::recv) small.before.push_back({addresses[reads[i]], nullptr, bytes});
      if (kind != Kind::send) small.after.push_back({nullptr, data, bytes});
      small_bytes += bytes;
      continue;
    }
    Piece piece;
    if (kind == Kind::all_reduce && addresses[reads[i]] != data)
      piece.before.push_back({addresses[reads[i]], data, bytes});
    if (is_in_parts) {
      const auto size = static_cast<std::size_t>(bytes_of(dtype));
      const auto own = std::ranges::find(members, groups_->world->rank()) - members.begin();
      const PartRange part = part_of(bytes / size, static_cast<int>(members.size()), static_cast<int>(own));
      std::byte* const in_whole = data + part.begin * size;
      const std::size_t part_bytes = (part.end - part.begin) * size;
      if (kind == Kind::reduce_scatter)
        piece.after.push_back({in_whole, addresses[writes[i]], part_bytes});
      else
        piece.before.push_back({addresses[reads[i]], in_whole, part_bytes});
    }
    add(std::move(piece), data, bytes, dtype);
  }
  if (small_bytes == 0) return bound;
  small.memory.resize(small_bytes);
  std::byte* const memory = small.memory.data();
  std::size_t at = 0;
  for (Copy& c : small.before) c.to = memory + std::exchange(at, at + c.bytes);
  at = 0;
  for (Copy& c : small.after) c.from = memory + std::exchange(at, at + c.bytes);
  add(std::move(small), memory, small_bytes, is_message ? DType::u8 : DType::f32);
  return bound;
}

TransferLanes::~TransferLanes() {
  std::unique_lock lock(mutex_);
  if (under_way_ > 0) {
    if (!error_) error_ = std::make_exception_ptr(std::runtime_error("transfers under way are given up"));
    lock.unlock();
    groups_->close();  // the last of them is told of when it goes
    lock.lock();
  }
  quiet_.wait(lock, [&] { return under_way_ == 0 && told_ == 0; });
}

void TransferLanes::begin(const LaneOrder* order, Host host) {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  order_ = order;
  host_ = std::move(host);
  head_.assign(lanes_.size(), 0);
  std::size_t left = 0;
  for (const std::uint32_t l : lanes_) left += (*order)[l].size();
  left_.store(left, std::memory_order_release);
}

void TransferLanes::advance() {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < lanes_.size() && !error_; ++i) {
    const std::vector<LaneEntry>& entries = (*order_)[lanes_[i]];
    while (head_[i] < entries.size() && !error_ && host_.is_ready(entries[head_[i]])) start(entries[head_[i]++].task);
  }
}

void TransferLanes::start(TaskId t) {
  Bound& bound = *bound_[t];
  host_.has_started(t);
  bound.begin_ns = host_.now_ns();
  bound.under_way = bound.pieces.size();
  if (bound.may_go_on) left_.fetch_sub(1, std::memory_order_acq_rel);
  if (bound.pieces.empty()) return task_ended(t);
  try {
    for (std::size_t i = 0; i < bound.pieces.size(); ++i) {
      Piece& piece = bound.pieces[i];
      for (const Copy& c : piece.before) std::memcpy(c.to, c.from, c.bytes);
      Request request = piece.request;
      request.options.when_done = [this, t, i] { piece_ended(t, i); };
      ++under_way_;
      try {
        piece.handle = groups_->world->start(request);
      } catch (...) {
        --under_way_;
        throw;
      }
    }
  } catch (...) {
    fail();
  }
}

// With what is being caught.
void TransferLanes::fail() {
  error_ = std::current_exception();
  host_.has_failed(error_);
}

void TransferLanes::piece_ended(TaskId t, std::size_t index) {
  std::unique_lock lock(mutex_);
  --under_way_;
  ++told_;
  if (take_piece(t, index)) {
    lock.unlock();
    advance();
    lock.lock();
  }
  --told_;
  quiet_.notify_all();
}

// Whether its task has ended with it.
bool TransferLanes::take_piece(TaskId t, std::size_t index) {
  if (error_) return false;
  Bound& bound = *bound_[t];
  Piece& piece = bound.pieces[index];
  try {
    groups_->world->wait(piece.handle, std::chrono::milliseconds(0));  // it is done: this only throws what failed
  } catch (...) {
    fail();
    return false;
  }
  for (const Copy& c : piece.after) std::memcpy(c.to, c.from, c.bytes);
  if (--bound.under_way > 0) return false;
  task_ended(t);
  return true;
}

void TransferLanes::task_ended(TaskId t) {
  const Bound& bound = *bound_[t];
  spans_.push_back({t, bound.lane, bound.begin_ns, host_.now_ns()});
  if (!bound.may_go_on) left_.fetch_sub(1, std::memory_order_acq_rel);
  host_.has_ended(t);
}

std::vector<Span> TransferLanes::take_spans(std::int64_t start_ns) {
  const std::lock_guard lock(mutex_);
  for (Span& s : spans_) {
    s.begin_ns -= start_ns;
    s.end_ns -= start_ns;
  }
  return std::exchange(spans_, {});
}

}  // namespace overtake
