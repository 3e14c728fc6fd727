#pragma once
// Ranks that move tensors between them. A transfer is started, runs by itself, and is waited for. What comes out has
// the same bits whatever the timing, the priorities and the size of chunks: sums are made by one owner per element, in
// float32, in the order of ranks.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "overtake/types.h"

namespace overtake {

// A rank is gone, stalled, or does not do what the others do. The first such error of a group wins: from then on every
// wait of every rank throws it.
class CommError : public std::runtime_error {
 public:
  CommError(int rank, const std::string& text) : std::runtime_error(text), rank_(rank) {}
  int rank() const { return rank_; }  // the one at fault

 private:
  int rank_;
};

enum class TransferKind : std::uint8_t {
  all_reduce,      // data becomes the sum over ranks
  reduce_scatter,  // this rank's part of data becomes the sum; the rest is left as it is
  all_gather,      // this rank's part of data goes to all others
  broadcast,       // data of rank `peer` goes to all others
  send,            // data goes to rank `peer`
  recv,            // data comes from rank `peer`
  barrier          // all ranks have come here
};
const char* to_string(TransferKind);

struct TransferOptions {
  // Which transfers of different ranks belong together: the n-th of a tag here and the n-th of it there. Those of
  // different tags may be started in any order. Tags of collectives, of sends, and of recvs are each other's strangers,
  // and so are those of collectives with different members.
  std::uint64_t tag = 0;
  // A larger number overtakes all smaller ones at the next border between chunks.
  int priority = 0;
  // Called once by a thread of the group, with no lock held, when the transfer is done or has failed: wait() returns or
  // throws at once then. It may come before start() has returned, and comes at the latest when the group goes. It may
  // start transfers and ask for this one, and must neither wait for others nor throw.
  std::function<void()> when_done = {};
};

struct Request {
  TransferKind kind;
  void* data;  // [count], in place; the group's own until wait() returned or threw
  std::size_t count;
  DType dtype;  // f32 or bf16 where there are sums
  int peer;     // the root, destination or source; -1 where there is none
  TransferOptions options;
  // Of a collective: the ranks that take part, this one among them, in the order in which they add and have their
  // parts; empty: all.
  std::vector<int> members = {};
};

// Elements [begin, end) of `count` that belong to one of `parts` ranks: even, the first ones have one more.
struct PartRange {
  std::size_t begin, end;
};
PartRange part_of(std::size_t count, int parts, int index);

struct Transfer {
  virtual ~Transfer() = default;
};
using TransferHandle = std::shared_ptr<Transfer>;

struct GroupOptions {
  // A rank that is silent for so long is lost. A chunk must pass a link within it.
  std::chrono::milliseconds time_out{60'000};
  // How long a rank that is heard may keep the others from going on: it may measure, read or save. When transfers are
  // under way but no data has come to or gone from this rank for so long, the group fails.
  std::chrono::milliseconds patience{1'800'000};
  std::size_t chunk_bytes = 256 << 10;  // the same on all ranks
};

class Group {
 public:
  // Never hangs. Transfers that others still want from this rank fail there, with this rank's number.
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual TransferHandle start(const Request& request) = 0;
  // Throws CommError when the group failed before the transfer was done, or when no data has come to or gone from this
  // rank for so long; that, too, fails the group, on all ranks. So a slow link is no fault, however long it takes.
  virtual void wait(const TransferHandle& transfer, std::chrono::milliseconds patience) = 0;
  void wait(const TransferHandle& transfer) { wait(transfer, patience()); }
  // Throws as wait() does.
  virtual bool is_done(const TransferHandle& transfer) = 0;
  virtual std::chrono::milliseconds patience() const = 0;
  // For whoever waits for ranks by other means. Throws the group's error if it has failed; else a rank that has left,
  // or -1: it has done all that others wanted of it, or never will.
  virtual int check_ranks() = 0;

  TransferHandle all_reduce(void* data, std::size_t count, DType dtype, const TransferOptions& options = {}) {
    return start({TransferKind::all_reduce, data, count, dtype, -1, options});
  }
  TransferHandle reduce_scatter(void* data, std::size_t count, DType dtype, const TransferOptions& options = {}) {
    return start({TransferKind::reduce_scatter, data, count, dtype, -1, options});
  }
  TransferHandle all_gather(void* data, std::size_t count, DType dtype, const TransferOptions& options = {}) {
    return start({TransferKind::all_gather, data, count, dtype, -1, options});
  }
  TransferHandle broadcast(int root, void* data, std::size_t count, DType dtype, const TransferOptions& options = {}) {
    return start({TransferKind::broadcast, data, count, dtype, root, options});
  }
  TransferHandle send(int to, const void* data, std::size_t count, DType dtype, const TransferOptions& options = {}) {
    return start({TransferKind::send, const_cast<void*>(data), count, dtype, to, options});  // only read
  }
  TransferHandle recv(int from, void* data, std::size_t count, DType dtype, const TransferOptions& options = {}) {
    return start({TransferKind::recv, data, count, dtype, from, options});
  }
  void barrier(const TransferOptions& options = {}) {
    wait(start({TransferKind::barrier, nullptr, 0, DType::u8, -1, options}));
  }
};

}  // namespace overtake
