// What comes from other ranks, on the threads of the wires.

#include <cstring>

#include "base/error.h"
#include "comm/exchange.h"

namespace overtake {

void Exchange::sent(int to) {
  Lock lock(mutex_);
  --link(to).posted;
  if (is_leaving_) done_.notify_all();
  if (!wires_->may_post_when_sent()) return work_.notify_one();
  while (!is_stopping_ && send_next(lock)) {  // by this thread, which is awake
  }
}

void Exchange::lost(int peer, const std::string& cause) {
  const Lock lock(mutex_);
  Link& l = link(peer);
  if (l.is_lost) return;
  l.is_lost = true;
  if (!l.has_left && !l.took_leave) fail(peer, fmt::format("rank {}: rank {} lost it: {}", peer, rank_, cause));
  done_.notify_all();
}

void Exchange::received(int from, const Message& message, std::span<const std::byte> payload) {
  Lock lock(mutex_);
  link(from).heard = Clock::now();
  switch (message.kind) {
    case MessageKind::alive:
      return;
    case MessageKind::fault:
      return fail(message.rank, std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    case MessageKind::leave:
      return on_leave(from);
    case MessageKind::left:
      link(from).took_leave = true;
      return done_.notify_all();
    case MessageKind::ready:
      if (!error_) on_ready(from, message);
      return;
    case MessageKind::data:
      if (!error_) on_data(lock, from, message, payload);
      return;
  }
}

void Exchange::on_leave(int from) {
  note(from, {.kind = MessageKind::left});
  link(from).has_left = true;
  work_.notify_one();
  done_.notify_all();
  if (is_leaving_) return;
  for (const auto& [key, transfer] : live_) {
    if (transfer->is_partner(from) && transfer->needs(from)) {
      fail(from, fmt::format("rank {}: it left the group while {} needs it", from, transfer->name()));
      return;
    }
  }
}

void Exchange::on_ready(int from, const Message& m) {
  using Side = TransferKey::Side;
  const bool is_recv = m.transfer == TransferKind::recv;  // there; so it is a send here
  const TransferKey key{is_recv ? Side::to_peer : Side::all, is_recv ? from : -1, m.members, m.tag, m.use};
  const Held transfer = find(key);
  if (transfer == nullptr) {
    early_[key][from] = m;
  } else {
    on_partner_started(transfer, from, m);
  }
}

void Exchange::on_data(Lock& lock, int from, const Message& m, std::span<const std::byte> payload) {
  using Side = TransferKey::Side;
  const bool is_send = m.transfer == TransferKind::send;
  const Held transfer = find({is_send ? Side::from_peer : Side::all, is_send ? from : -1, m.members, m.tag, m.use});
  std::byte* const place = transfer == nullptr ? nullptr : transfer->place(from, m);
  if (place == nullptr || payload.size() != m.bytes) {
    fail(from, fmt::format("rank {}: it sent {} bytes of {} (tag {}) that rank {} does not expect", from,
                           payload.size(), to_string(m.transfer), m.tag, rank_));
    return;
  }
  ++transfer->touching;
  moved_ = Clock::now();
  if (!transfer->completes_sum(m)) {
    lock.unlock();
    std::memcpy(place, payload.data(), payload.size());
    lock.lock();
  }
  if (transfer->on_arrived(from, m) && !error_) {
    lock.unlock();
    transfer->reduce(m.offset, from, payload);
    lock.lock();
    const auto results = transfer->on_reduced(m.offset);
    for (int peer = 0; peer < size_ && !error_; ++peer) {
      if (transfer->is_partner(peer)) queue(peer, transfer, results);
    }
  }
  --transfer->touching;
  finish_if_done(transfer);
  if (error_) done_.notify_all();
}

Exchange::Held Exchange::find(const TransferKey& key) const {
  const auto found = live_.find(key);
  return found == live_.end() ? nullptr : found->second;
}

}  // namespace overtake
