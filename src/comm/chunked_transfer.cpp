#include "comm/chunked_transfer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/bf16.h"
#include "base/error.h"
#include "base/hash.h"

namespace overtake {
namespace {

std::size_t whole_elements(std::size_t bytes, std::size_t element) {
  return std::max<std::size_t>(1, bytes / element) * element;
}

std::string described(const Message& m) {
  const std::string root = m.transfer == TransferKind::broadcast ? fmt::format(" from rank {}", m.rank) : "";
  return fmt::format("{} of {} x {}{} in chunks of {} bytes", to_string(m.transfer), m.count, to_string(m.dtype), root,
                     m.chunk_bytes);
}

std::vector<int> members_of(const Request& request, int size) {
  if (!request.members.empty()) return request.members;
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// What the other side of a transfer must call it.
TransferKind counterpart(TransferKind kind) {
  return kind == TransferKind::send ? TransferKind::recv : kind == TransferKind::recv ? TransferKind::send : kind;
}

}  // namespace

std::uint64_t digest_of(const std::vector<int>& members) {
  if (members.empty()) return 0;
  Hash64 hash;
  hash.add(std::as_bytes(std::span(members)));
  return hash.value();
}

ChunkedTransfer::ChunkedTransfer(Request asked, const TransferKey& its_key, int rank, int size,
                                 std::size_t most_chunk_bytes)
    : when_done(std::exchange(asked.options.when_done, {})),
      request(std::move(asked)),
      key(its_key),
      chunk_bytes(whole_elements(most_chunk_bytes, static_cast<std::size_t>(bytes_of(request.dtype)))),
      rank_(rank),
      size_(size),
      members_(members_of(request, size)),
      element_(static_cast<std::size_t>(bytes_of(request.dtype))),
      data_(static_cast<std::byte*>(request.data)),
      part_(part_bytes(rank)),
      partners_(static_cast<std::size_t>(size)) {
  const std::size_t all = request.count * element_, own = part_.end - part_.begin;
  for (int peer = 0; peer < size_; ++peer) {
    if (!is_partner(peer)) continue;
    Partner& p = partner(peer);
    const PartRange theirs = part_bytes(peer);
    switch (request.kind) {
      case TransferKind::all_reduce:
        p.contributions_due = own;
        p.result = theirs;
        p.to_send = theirs.end - theirs.begin + own;
        break;
      case TransferKind::reduce_scatter:
        p.contributions_due = own;
        p.to_send = theirs.end - theirs.begin;
        break;
      case TransferKind::all_gather:
        p.result = theirs;
        p.to_send = own;
        break;
      case TransferKind::broadcast:
        if (request.peer == rank_) p.to_send = all;
        if (request.peer == peer) p.result = {0, all};
        break;
      case TransferKind::send:
        p.to_send = all;
        break;
      case TransferKind::recv:
        p.result = {0, all};
        break;
      case TransferKind::barrier:
        break;
    }
    p.results_due = p.result.end - p.result.begin;
  }
  if (has_sums() && members_.size() > 1) {
    to_reduce_ = (own + chunk_bytes - 1) / chunk_bytes;
    missing_.assign(to_reduce_, static_cast<int>(members_.size()) - 1);
  }
}

std::size_t ChunkedTransfer::place_of(int rank) const {
  return static_cast<std::size_t>(std::ranges::find(members_, rank) - members_.begin());
}

bool ChunkedTransfer::is_partner(int peer) const {
  if (peer == rank_) return false;
  return key.side == TransferKey::Side::all ? place_of(peer) < members_.size() : peer == request.peer;
}

Message ChunkedTransfer::start_message() const {
  return {.kind = MessageKind::ready,
          .transfer = request.kind,
          .dtype = request.dtype,
          .rank = request.kind == TransferKind::broadcast ? request.peer : -1,
          .tag = key.tag,
          .use = key.use,
          .members = key.members,
          .count = request.count,
          .chunk_bytes = chunk_bytes};
}

std::string ChunkedTransfer::mismatch(int peer, const Message& theirs) const {
  const Message ours = start_message();
  if (theirs.transfer == counterpart(ours.transfer) && theirs.dtype == ours.dtype && theirs.rank == ours.rank &&
      theirs.count == ours.count && theirs.chunk_bytes == ours.chunk_bytes) {
    return "";
  }
  return fmt::format("tag {}: rank {} started {}, rank {} {}; all ranks must run the same plan", key.tag, peer,
                     described(theirs), rank_, described(ours));
}

std::vector<Outgoing> ChunkedTransfer::on_started(int peer) {
  partner(peer).has_started = true;
  const PartRange theirs = part_bytes(peer);
  switch (request.kind) {
    case TransferKind::all_reduce:
    case TransferKind::reduce_scatter:
      return {{Stage::contribution, theirs.begin, theirs.end}};
    case TransferKind::all_gather:
      return {{Stage::result, part_.begin, part_.end}};
    case TransferKind::broadcast:
      if (request.peer != rank_) return {};
      return {{Stage::result, 0, request.count * element_}};
    case TransferKind::send:
      return {{Stage::result, 0, request.count * element_}};
    case TransferKind::recv:
    case TransferKind::barrier:
      break;
  }
  return {};
}

std::byte* ChunkedTransfer::place(int peer, const Message& m) {
  const bool is_result = m.stage == Stage::result;
  const Partner& p = partner(peer);
  const PartRange range = is_result ? p.result : part_;
  const std::size_t due = is_result ? p.results_due : p.contributions_due;
  if (m.bytes > due || m.offset < range.begin || m.offset > range.end || m.bytes > range.end - m.offset) return nullptr;
  if (is_result) return data_ + m.offset;
  const bool is_whole_chunk =
      (m.offset - part_.begin) % chunk_bytes == 0 && m.bytes > 0 && m.bytes == chunk_end(m.offset) - m.offset;
  return is_whole_chunk ? contribution(peer, m.offset) : nullptr;
}

bool ChunkedTransfer::completes_sum(const Message& m) const {
  return m.stage == Stage::contribution && missing_[chunk_index(m.offset)] == 1;
}

bool ChunkedTransfer::on_arrived(int peer, const Message& m) {
  if (m.stage == Stage::result) {
    partner(peer).results_due -= m.bytes;
    return false;
  }
  partner(peer).contributions_due -= m.bytes;
  return --missing_[chunk_index(m.offset)] == 0;
}

std::vector<Outgoing> ChunkedTransfer::on_reduced(std::size_t offset) {
  --to_reduce_;
  if (request.kind != TransferKind::all_reduce) return {};
  return {{Stage::result, offset, chunk_end(offset)}};
}

void ChunkedTransfer::reduce(std::size_t offset, int peer, std::span<const std::byte> brought) {
  request.dtype == DType::f32 ? add<float>(offset, peer, brought.data()) : add<bf16>(offset, peer, brought.data());
}

// x0 + x1 + ... in float32, rounded once, for every element of a chunk.
template <class T>
void ChunkedTransfer::add(std::size_t offset, int peer, const std::byte* brought) {
  constexpr std::size_t kBlock = 1024;
  std::array<float, kBlock> sums;
  const std::size_t count = (chunk_end(offset) - offset) / sizeof(T);
  T* const own = reinterpret_cast<T*>(data_ + offset);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = std::min(kBlock, count - begin);
    for (const int r : members_) {
      const std::byte* const bytes = r == rank_ ? data_ + offset : r == peer ? brought : contribution(r, offset);
      const T* x = reinterpret_cast<const T*>(bytes) + begin;
      if (r == members_[0]) {
        for (std::size_t i = 0; i < n; ++i) sums[i] = to_float(x[i]);
      } else {
        for (std::size_t i = 0; i < n; ++i) sums[i] += to_float(x[i]);
      }
    }
    for (std::size_t i = 0; i < n; ++i) own[begin + i] = from_float<T>(sums[i]);
  }
}

bool ChunkedTransfer::has_all() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (needs(peer)) return false;
  }
  return to_reduce_ == 0;
}

bool ChunkedTransfer::needs(int peer) const {
  const Partner& p = partner(peer);
  return (hears_start_of(peer) && !p.has_started) || p.contributions_due + p.results_due + p.to_send > 0;
}

int ChunkedTransfer::blocker() const {
  const auto first = [&](const auto& holds) {
    for (int peer = 0; peer < size_; ++peer) {
      if (holds(peer, partner(peer))) return peer;
    }
    return -1;
  };
  int found = first([&](int peer, const Partner& p) { return hears_start_of(peer) && !p.has_started; });
  if (found < 0) found = first([](int, const Partner& p) { return p.contributions_due > 0; });
  if (found < 0) found = first([](int, const Partner& p) { return p.results_due > 0; });
  if (found < 0) found = first([](int, const Partner& p) { return p.to_send > 0; });
  return found;
}

std::string ChunkedTransfer::name() const {
  return fmt::format("{} (tag {}, number {})", to_string(request.kind), key.tag, key.use);
}

PartRange ChunkedTransfer::part_bytes(int rank) const {
  const PartRange elements =
      part_of(request.count, static_cast<int>(members_.size()), static_cast<int>(place_of(rank)));
  return {elements.begin * element_, elements.end * element_};
}

std::size_t ChunkedTransfer::chunk_end(std::size_t offset) const { return std::min(part_.end, offset + chunk_bytes); }

std::size_t ChunkedTransfer::lent_bytes() const {
  return has_sums() ? (part_.end - part_.begin) * (members_.size() - 1) : 0;
}

std::byte* ChunkedTransfer::contribution(int peer, std::size_t offset) {
  const std::size_t place = place_of(peer), row = place < place_of(rank_) ? place : place - 1;
  return contributions_.get() + row * (part_.end - part_.begin) + (offset - part_.begin);
}

}  // namespace overtake
