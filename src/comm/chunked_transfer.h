#pragma once
// One transfer under way on one rank: what it has yet to send and to get, and the sums. Book-keeping only; Exchange
// moves the bytes and holds the lock.
//
// A sum is a reduce-scatter by its owner: every rank sends its values of a part to the part's owner, who adds them in
// the order of ranks, and an all-reduce then sends the results to all. Libraries' rings are not used, because there the
// order of addition depends on the position in the ring and on how the tensor is cut; here it is x0 + x1 + ... for
// every element, chunked or not. It moves no more bytes than a ring.

#include <chrono>
#include <compare>
#include <memory>
#include <span>
#include <vector>

#include "comm/group.h"
#include "comm/wires.h"

namespace overtake {

// Whose transfer a message is about. Collectives are known by their tag and members; sends and recvs by their tag and
// peer.
struct TransferKey {
  enum class Side : std::uint8_t { all, to_peer, from_peer } side;
  int peer;               // -1 for all
  std::uint64_t members;  // a digest of them; 0: all ranks
  std::uint64_t tag, use;
  auto operator<=>(const TransferKey&) const = default;
};
std::uint64_t digest_of(const std::vector<int>& members);

// Bytes [begin, end) of the tensor that go to one rank, chunk by chunk.
struct Outgoing {
  Stage stage;
  std::size_t begin, end;
};

class ChunkedTransfer : public Transfer {
 public:
  ChunkedTransfer(Request request, const TransferKey& key, int rank, int size, std::size_t chunk_bytes);

  std::function<void()> when_done;  // the request's; whoever takes it calls it
  const Request request;            // less that
  const TransferKey key;
  const std::size_t chunk_bytes;  // whole elements
  std::uint64_t number = 0;       // those started earlier have smaller ones
  std::chrono::steady_clock::time_point started{};
  bool is_done = false;
  int touching = 0;  // threads that read or write data right now

  // Memory for what others contribute to a sum: lent before the first of it comes, handed back when all is done.
  std::size_t lent_bytes() const;
  void lend(std::unique_ptr<std::byte[]> memory) { contributions_ = std::move(memory); }
  std::unique_ptr<std::byte[]> hand_back() { return std::move(contributions_); }

  // Whether a rank takes part, and whether it tells this one when it has started.
  bool is_partner(int peer) const;
  bool hears_start_of(int peer) const { return is_partner(peer) && request.kind != TransferKind::recv; }
  bool tells_start_to(int peer) const { return is_partner(peer) && request.kind != TransferKind::send; }
  // What the partner is told, and the difference to what it told us: empty where there is none.
  Message start_message() const;
  std::string mismatch(int peer, const Message& theirs) const;

  // The partner has started: what goes to it now. Once per partner that is heard of.
  std::vector<Outgoing> on_started(int peer);
  // A chunk is handed to the wires.
  void on_sent(int peer, std::size_t bytes) { partner(peer).to_send -= bytes; }
  // Where a chunk from a rank belongs; nullptr when it does not.
  std::byte* place(int peer, const Message& message);
  // Whether a chunk that has come is the only one its sum waits for: then it need not go to its place.
  bool completes_sum(const Message& message) const;
  // A chunk is in its place, or need not be. True when it was the last contribution: then reduce() is due.
  bool on_arrived(int peer, const Message& message);
  // Adds up the chunk at this offset, with what one rank brought; that of the others is in its place. Needs no lock.
  void reduce(std::size_t offset, int peer, std::span<const std::byte> brought);
  // What goes to every other rank then.
  std::vector<Outgoing> on_reduced(std::size_t offset);

  bool has_all() const;
  bool needs(int peer) const;
  // The rank it waits for; one whose own values are missing before one that only owes a result. -1: this one.
  int blocker() const;
  std::string name() const;
  std::span<const std::byte> bytes(std::size_t begin, std::size_t size) const { return {data_ + begin, size}; }

 private:
  struct Partner {
    bool has_started = false;
    std::size_t contributions_due = 0, results_due = 0;  // bytes from it
    std::size_t to_send = 0;                             // bytes to it
    PartRange result{};                                  // where its results belong, in bytes
  };
  Partner& partner(int peer) { return partners_[static_cast<std::size_t>(peer)]; }
  const Partner& partner(int peer) const { return partners_[static_cast<std::size_t>(peer)]; }
  bool has_sums() const {
    return request.kind == TransferKind::all_reduce || request.kind == TransferKind::reduce_scatter;
  }
  PartRange part_bytes(int rank) const;
  std::size_t chunk_index(std::size_t offset) const { return (offset - part_.begin) / chunk_bytes; }
  std::size_t chunk_end(std::size_t offset) const;
  std::byte* contribution(int peer, std::size_t offset);
  template <class T>
  void add(std::size_t offset, int peer, const std::byte* brought);

  std::size_t place_of(int rank) const;  // among the members

  const int rank_, size_;
  const std::vector<int> members_;
  const std::size_t element_;  // bytes
  std::byte* const data_;
  PartRange part_;                              // this rank's, in bytes
  std::vector<Partner> partners_;               // by rank
  std::unique_ptr<std::byte[]> contributions_;  // [members - 1][bytes of the part]
  std::vector<int> missing_;                    // per chunk of the part: contributions that have not come
  std::size_t to_reduce_ = 0;                   // chunks of the part
};

}  // namespace overtake
