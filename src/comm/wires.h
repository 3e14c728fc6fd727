#pragma once
// What moves messages between ranks and knows nothing of their meaning. Between two ranks messages come in the order in
// which they were posted.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/group.h"

namespace overtake {

enum class MessageKind : std::uint8_t {
  ready,  // the sender has started this transfer: what it means by it, and it may be sent to
  data,   // bytes of a transfer
  alive,  // nothing to say, but still there
  fault,  // the group failed; `rank` is at fault, the payload is the text
  leave,  // the sender is done with the group; the last it asks for
  left    // the answer to leave: the last message of a link
};
enum class Stage : std::uint8_t {
  contribution,  // a rank's values of a part, to the part's owner
  result         // final values
};

// As it goes over the wire. Ranks run on machines of one byte order.
struct Message {
  MessageKind kind = MessageKind::alive;
  Stage stage = Stage::result;                    // of data
  TransferKind transfer = TransferKind::barrier;  // what the sender calls it
  DType dtype = DType::u8;                        // of ready
  std::int32_t rank = -1;                         // the root; the rank at fault
  std::uint64_t tag = 0, use = 0;                 // the how many-th of the tag
  std::uint64_t members = 0;                      // a digest of them; 0: all ranks
  std::uint64_t offset = 0, bytes = 0;            // of data: in the tensor; bytes: of the payload
  std::uint64_t count = 0, chunk_bytes = 0;       // of ready
};

inline constexpr std::size_t kLongestText = 4096;  // of payloads that are no data

// Gets what arrives, from any thread.
class Receiver {
 public:
  virtual void received(int from, const Message& message, std::span<const std::byte> payload) = 0;
  virtual void sent(int to) = 0;                              // one message that was posted is on its way
  virtual void lost(int peer, const std::string& cause) = 0;  // nothing more from this one
 protected:
  ~Receiver() = default;
};

class Wires {
 public:
  virtual ~Wires() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Called once, before post().
  virtual void open(Receiver& receiver) = 0;
  // How many messages to a peer may be posted before sent(to) came for them.
  virtual int window(int to) const = 0;
  // Copies the payload, or is done with it, before it returns; sent(to) may come from inside the call. Does not wait
  // for the peer. Not by two threads at once for one peer.
  virtual void post(int to, const Message& message, std::span<const std::byte> payload) = 0;
  // Whether sent() may call post(): that it comes from a thread of the wires that may take its time.
  virtual bool may_post_when_sent() const = 0;
  // Nothing is received after it returned. Does not wait for peers.
  virtual void close() = 0;
};

}  // namespace overtake
