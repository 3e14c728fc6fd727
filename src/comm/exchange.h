#pragma once
// A group over wires: one thread that hands chunks to them, the most urgent first. A rank sends nothing to another
// before that one has told that it has started the same transfer, so no memory is needed for what comes unexpectedly,
// and ranks may start transfers of different tags in different orders. Every rank hears from every other one four times
// per time-out, as long as its process runs; a failed rank tells all others who is at fault, so they report the same.

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/chunked_transfer.h"
#include "comm/group.h"
#include "comm/wires.h"

namespace overtake {

class Exchange final : public Group, private Receiver {
 public:
  Exchange(std::unique_ptr<Wires> wires, const GroupOptions& options);
  ~Exchange() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  TransferHandle start(const Request& request) override;
  using Group::wait;
  void wait(const TransferHandle& transfer, std::chrono::milliseconds patience) override;
  bool is_done(const TransferHandle& transfer) override;
  std::chrono::milliseconds patience() const override { return options_.patience; }
  int check_ranks() override;

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  using Held = std::shared_ptr<ChunkedTransfer>;
  // What is sent first: priority, then the transfer started first, then what others need for sums, then what lies
  // first.
  using Order = std::tuple<int, std::uint64_t, Stage, std::size_t>;
  struct Stream {
    Held transfer;
    Outgoing rest;
  };
  struct Link {
    int posted = 0;                                     // messages that are with the wires
    bool is_posting = false;                            // a thread hands one over right now
    bool has_left = false;                              // asks for nothing more
    bool is_lost = false;                               // nothing can be sent, nothing comes
    bool took_leave = false;                            // has answered our leave
    Clock::time_point heard{};                          // when the last message came
    std::deque<std::pair<Message, std::string>> notes;  // all that is not data; before all data
    std::map<Order, Stream> streams;
    bool is_open() const { return !has_left && !is_lost; }
  };

  void received(int from, const Message& message, std::span<const std::byte> payload) override;
  void sent(int to) override;
  void lost(int peer, const std::string& cause) override;

  void progress();
  bool send_next(Lock& lock);
  void send_note(Lock& lock, int to);
  void send_chunk(Lock& lock, int to);
  void post(Lock& lock, int to, const Message& message, std::span<const std::byte> payload);
  void beat(Clock::time_point now);
  void look_at_oldest(Clock::time_point now);

  void on_ready(int from, const Message& message);
  void on_data(Lock& lock, int from, const Message& message, std::span<const std::byte> payload);
  void on_leave(int from);
  void begin(const Held& transfer);
  std::unique_ptr<std::byte[]> memory(std::size_t bytes);
  void on_partner_started(const Held& transfer, int peer, const Message& theirs);
  void queue(int to, const Held& transfer, const std::vector<Outgoing>& streams);
  void note(int to, const Message& message, std::string text = {});
  void finish_if_done(const Held& transfer);
  void tell(const Held& transfer);
  void abandon(const CommError& error);
  bool call_back(Lock& lock);
  void fail(int rank, const std::string& text);
  void fail_by_time(const ChunkedTransfer& transfer, std::chrono::milliseconds patience);
  void check_request(const Request& request) const;
  TransferKey key_of(const Request& request);
  Held find(const TransferKey& key) const;
  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }
  bool has_said_goodbye() const;

  const std::unique_ptr<Wires> wires_;
  const GroupOptions options_;
  const int rank_, size_;
  const Clock::duration beat_every_;

  std::mutex mutex_;  // of all below; never held while the wires are called
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<Link> links_;  // by rank; this rank's own is not used
  std::map<TransferKey, Held> live_;
  // For sums, by size: a training step has the same ones again and again, and fresh pages are dear.
  std::multimap<std::size_t, std::unique_ptr<std::byte[]>> spare_;
  std::map<TransferKey, std::map<int, Message>> early_;  // others started, this rank not yet
  std::map<TransferKey, std::uint64_t> uses_;            // how often a tag was used
  std::uint64_t starts_ = 0;
  std::optional<CommError> error_;
  std::vector<std::function<void()>> due_;  // what those who asked to be told are told by
  Clock::time_point next_beat_;
  Clock::time_point moved_{};  // when data came or went
  bool is_leaving_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace overtake
