#include "comm/exchange.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

using std::chrono::milliseconds;

std::string seconds(std::chrono::steady_clock::duration d) {
  return fmt::format("{:g} s", std::chrono::duration<double>(d).count());
}

// How long a rank that leaves waits for others to hear of it: they answer by themselves, so this is for slow links.
constexpr milliseconds kGoodbye{5000};
// The same when the group has failed, and some are not there to hear.
constexpr milliseconds kFailedGoodbye{500};

}  // namespace

Exchange::Exchange(std::unique_ptr<Wires> wires, const GroupOptions& options)
    : wires_(std::move(wires)),
      options_(options),
      rank_(wires_->rank()),
      size_(wires_->size()),
      beat_every_(std::min<Clock::duration>(options.time_out / 4, std::chrono::seconds(1))),
      links_(static_cast<std::size_t>(size_)) {
  OVERTAKE_CHECK(options.time_out.count() > 0 && options.chunk_bytes > 0, "time-out {} ms, chunks of {} bytes",
                 options.time_out.count(), options.chunk_bytes);
  next_beat_ = Clock::now() + beat_every_;
  for (Link& l : links_) l.heard = Clock::now();
  wires_->open(*this);
  thread_ = std::thread([this] { progress(); });
}

Exchange::~Exchange() {
  {
    Lock lock(mutex_);
    is_leaving_ = true;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) note(peer, {.kind = MessageKind::leave});
    }
    work_.notify_one();
    const auto patience = std::min(options_.time_out, error_ ? kFailedGoodbye : kGoodbye);
    if (!error_) abandon(CommError(rank_, fmt::format("rank {}: it left the group", rank_)));
    done_.wait_for(lock, patience, [this] { return has_said_goodbye(); });
    is_stopping_ = true;
    work_.notify_one();
  }
  thread_.join();
  wires_->close();
  Lock lock(mutex_);
  while (call_back(lock)) {
  }
}

// All that others should know is sent, and whoever is still there has heard it. After that, closing a link loses
// nothing.
bool Exchange::has_said_goodbye() const {
  for (int peer = 0; peer < size_; ++peer) {
    const Link& l = links_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || l.is_lost) continue;
    if (!l.notes.empty() || l.posted > 0 || !(l.took_leave || l.has_left)) return false;
  }
  return true;
}

TransferHandle Exchange::start(const Request& request) {
  check_request(request);
  Lock lock(mutex_);
  if (error_) throw CommError(*error_);
  const auto transfer = std::make_shared<ChunkedTransfer>(request, key_of(request), rank_, size_, options_.chunk_bytes);
  begin(transfer);
  return transfer;
}

void Exchange::check_request(const Request& r) const {
  const bool has_sums = r.kind == TransferKind::all_reduce || r.kind == TransferKind::reduce_scatter;
  OVERTAKE_CHECK(!has_sums || r.dtype == DType::f32 || r.dtype == DType::bf16, "{} of {}", to_string(r.kind),
                 to_string(r.dtype));
  const bool has_peer = r.kind == TransferKind::send || r.kind == TransferKind::recv;
  OVERTAKE_CHECK(!has_peer || (r.peer >= 0 && r.peer < size_ && r.peer != rank_), "{} with rank {} by rank {} of {}",
                 to_string(r.kind), r.peer, rank_, size_);
  OVERTAKE_CHECK(r.kind != TransferKind::broadcast || (r.peer >= 0 && r.peer < size_), "broadcast from rank {} of {}",
                 r.peer, size_);
  OVERTAKE_CHECK(r.members.empty() || (!has_peer && std::ranges::count(r.members, rank_) == 1 &&
                                       std::ranges::all_of(r.members, [&](int m) { return m >= 0 && m < size_; })),
                 "{} of {} ranks, by rank {} of {}", to_string(r.kind), r.members.size(), rank_, size_);
}

TransferKey Exchange::key_of(const Request& r) {
  using Side = TransferKey::Side;
  const Side side = r.kind == TransferKind::send   ? Side::to_peer
                    : r.kind == TransferKind::recv ? Side::from_peer
                                                   : Side::all;
  const int peer = side == Side::all ? -1 : r.peer;
  TransferKey key{side, peer, digest_of(r.members), r.options.tag, 0};
  key.use = uses_[key]++;
  return key;
}

void Exchange::begin(const Held& transfer) {
  live_.emplace(transfer->key, transfer);
  transfer->number = starts_++;
  transfer->started = Clock::now();
  transfer->lend(memory(transfer->lent_bytes()));
  for (int peer = 0; peer < size_; ++peer) {
    if (!transfer->is_partner(peer)) continue;
    if (transfer->needs(peer) && link(peer).has_left) {
      fail(peer, fmt::format("rank {}: it has left the group, but {} needs it", peer, transfer->name()));
      return;
    }
    if (transfer->tells_start_to(peer)) note(peer, transfer->start_message());
  }
  if (const auto early = early_.extract(transfer->key)) {
    for (const auto& [peer, theirs] : early.mapped()) on_partner_started(transfer, peer, theirs);
  }
  finish_if_done(transfer);
  work_.notify_one();
}

std::unique_ptr<std::byte[]> Exchange::memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (auto node = spare_.extract(bytes)) return std::move(node.mapped());
  return std::make_unique_for_overwrite<std::byte[]>(bytes);
}

void Exchange::on_partner_started(const Held& transfer, int peer, const Message& theirs) {
  if (const std::string difference = transfer->mismatch(peer, theirs); !difference.empty()) {
    fail(peer, difference);
    return;
  }
  queue(peer, transfer, transfer->on_started(peer));
  finish_if_done(transfer);
}

void Exchange::queue(int to, const Held& transfer, const std::vector<Outgoing>& streams) {
  for (const Outgoing& out : streams) {
    if (out.begin == out.end) continue;
    const Order order{-transfer->request.options.priority, transfer->number, out.stage, out.begin};
    link(to).streams.emplace(order, Stream{transfer, out});
  }
  work_.notify_one();
}

void Exchange::note(int to, const Message& message, std::string text) {
  Link& l = link(to);
  if (text.size() > kLongestText) text.resize(kLongestText);
  if (l.is_lost || (l.has_left && message.kind != MessageKind::left)) return;
  l.notes.emplace_back(message, std::move(text));
  l.notes.back().first.bytes = l.notes.back().second.size();
}

// After all that brings a transfer forward, and whenever nobody touches its data any more.
void Exchange::finish_if_done(const Held& transfer) {
  if (transfer->is_done || transfer->touching > 0) return;
  if (error_) return tell(transfer);
  if (!transfer->has_all()) return;
  transfer->is_done = true;
  tell(transfer);
  if (auto memory = transfer->hand_back()) spare_.emplace(transfer->lent_bytes(), std::move(memory));
  live_.erase(transfer->key);
  done_.notify_all();
}

void Exchange::tell(const Held& transfer) {
  if (!transfer->when_done) return;
  due_.push_back(std::exchange(transfer->when_done, nullptr));
  work_.notify_one();
}

// Whether anyone was to be told.
bool Exchange::call_back(Lock& lock) {
  if (due_.empty()) return false;
  auto calls = std::exchange(due_, {});
  lock.unlock();
  for (const auto& call : calls) call();
  calls.clear();  // what they hold goes without the lock, too
  lock.lock();
  return true;
}

void Exchange::wait(const TransferHandle& handle, milliseconds patience) {
  const auto transfer = std::static_pointer_cast<ChunkedTransfer>(handle);
  Lock lock(mutex_);
  const auto begin = Clock::now();
  auto end = begin + patience;
  while (!done_.wait_until(lock, end, [&] { return transfer->is_done || error_; })) {
    end = std::max(begin, moved_) + patience;
    if (Clock::now() >= end) fail_by_time(*transfer, patience);
  }
  if (transfer->is_done) return;
  done_.wait(lock, [&] { return transfer->touching == 0; });
  throw CommError(*error_);
}

// Names the rank that is not heard any more: even where its part has come, another may wait for it. Or else the one
// whose part is missing.
void Exchange::fail_by_time(const ChunkedTransfer& transfer, milliseconds patience) {
  int silent = -1;
  const auto now = Clock::now();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || !link(peer).is_open() || now - link(peer).heard < 2 * beat_every_) continue;
    if (silent < 0 || link(peer).heard < link(silent).heard) silent = peer;
  }
  const std::string waited = fmt::format("rank {} waited {} for {}", rank_, seconds(patience), transfer.name());
  if (silent >= 0) {
    fail(silent, fmt::format("rank {}: {}, and hears nothing from it: its host or the link is gone or stalled", silent,
                             waited));
  } else {
    const int blocker = transfer.blocker() < 0 ? rank_ : transfer.blocker();
    fail(blocker,
         fmt::format("rank {}: {}; it is alive, but its part did not come; see what it does, or allow more time",
                     blocker, waited));
  }
}

bool Exchange::is_done(const TransferHandle& handle) {
  const auto transfer = std::static_pointer_cast<ChunkedTransfer>(handle);
  {
    const Lock lock(mutex_);
    if (transfer->is_done) return true;
    if (!error_) return false;
  }
  wait(handle);
  return true;
}

int Exchange::check_ranks() {
  const Lock lock(mutex_);
  if (error_) throw *error_;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && link(peer).has_left) return peer;
  return -1;
}

// The first error wins. All others hear of it, whoever they would have blamed.
void Exchange::fail(int rank, const std::string& text) {
  if (error_) return;
  abandon(CommError(rank, text));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) note(peer, {.kind = MessageKind::fault, .rank = rank}, text);
  }
  work_.notify_one();
  done_.notify_all();
}

// All that is under way has failed.
void Exchange::abandon(const CommError& error) {
  error_.emplace(error);
  for (const auto& [key, transfer] : std::exchange(live_, {})) finish_if_done(transfer);
  early_.clear();
  for (Link& l : links_) l.streams.clear();
}

void Exchange::progress() {
  Lock lock(mutex_);
  while (!is_stopping_) {
    if (const auto now = Clock::now(); now >= next_beat_) beat(now);
    if (!call_back(lock) && !send_next(lock)) work_.wait_until(lock, next_beat_);
  }
}

// Says that this rank is alive, and looks who is not. A rank that was stopped itself, as a whole host may be, heard
// nobody in that time: it does not count.
void Exchange::beat(Clock::time_point now) {
  if (const auto late = now - next_beat_; late > beat_every_) {
    for (Link& l : links_) l.heard = std::min(l.heard + late, now);
    moved_ = std::min(moved_ + late, now);
  }
  next_beat_ = now + beat_every_;
  for (int peer = 0; peer < size_; ++peer) {
    Link& l = link(peer);
    if (peer == rank_ || !l.is_open()) continue;
    if (l.notes.empty() && l.posted == 0) note(peer, {.kind = MessageKind::alive});
    if (now - l.heard > options_.time_out && !is_leaving_) {
      l.is_lost = true;
      fail(peer, fmt::format("rank {}: rank {} heard nothing from it for {}: its host or the link is gone or stalled",
                             peer, rank_, seconds(options_.time_out)));
    }
  }
  if (!is_leaving_) look_at_oldest(now);
}

// Whether transfers make headway, also those that nobody waits for in wait().
void Exchange::look_at_oldest(Clock::time_point now) {
  const auto older = [](const auto& a, const auto& b) { return a.second->number < b.second->number; };
  const auto oldest = std::ranges::min_element(live_, older);
  if (oldest == live_.end() || now - std::max(oldest->second->started, moved_) < options_.patience) return;
  fail_by_time(*oldest->second, options_.patience);
}

// Of all links that take a message: notes first, then the most urgent chunk.
bool Exchange::send_next(Lock& lock) {
  int best = -1;
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;  // not everyone at the same rank first
    Link& l = link(peer);
    if (l.posted >= wires_->window(peer) || l.is_posting || l.is_lost) continue;
    if (!l.notes.empty()) {
      send_note(lock, peer);
      return true;
    }
    if (l.streams.empty()) continue;
    if (best < 0 || l.streams.begin()->first < link(best).streams.begin()->first) best = peer;
  }
  if (best < 0) return false;
  send_chunk(lock, best);
  return true;
}

void Exchange::send_note(Lock& lock, int to) {
  Link& l = link(to);
  const auto [message, text] = std::move(l.notes.front());
  l.notes.pop_front();
  post(lock, to, message, std::as_bytes(std::span(text)));
}

void Exchange::post(Lock& lock, int to, const Message& message, std::span<const std::byte> payload) {
  Link& l = link(to);
  ++l.posted;
  l.is_posting = true;
  lock.unlock();
  wires_->post(to, message, payload);
  lock.lock();
  l.is_posting = false;
}

void Exchange::send_chunk(Lock& lock, int to) {
  Link& l = link(to);
  auto front = l.streams.extract(l.streams.begin());
  const Held transfer = front.mapped().transfer;
  Outgoing& rest = front.mapped().rest;
  const std::size_t begin = rest.begin, size = std::min(transfer->chunk_bytes, rest.end - rest.begin);
  Message message{.kind = MessageKind::data, .stage = rest.stage, .transfer = transfer->request.kind};
  message.tag = transfer->key.tag;
  message.use = transfer->key.use;
  message.members = transfer->key.members;
  message.offset = begin;
  message.bytes = size;
  rest.begin += size;
  if (rest.begin < rest.end) {
    std::get<3>(front.key()) = rest.begin;
    l.streams.insert(std::move(front));
  }
  ++transfer->touching;
  moved_ = Clock::now();
  transfer->on_sent(to, size);  // now: when it has come, the peer may be done and leave before this thread goes on
  post(lock, to, message, transfer->bytes(begin, size));
  --transfer->touching;
  finish_if_done(transfer);
  if (error_) done_.notify_all();
}

}  // namespace overtake
