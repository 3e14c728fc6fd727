#pragma once
// Messages over gloo's unbound buffers.

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/gloo/gloo_group.h"
#include "comm/store.h"
#include "comm/wires.h"

namespace overtake {

// Full mesh. A link has buffers on the receiving side, to which messages go in turn; gloo holds a message back until
// its buffer is free. The receiver frees as many as pace.h allows, so little is under way on a slow link, and what is
// urgent does not queue up in sockets. gloo can only be waited for one buffer at a time, hence two threads per link,
// which mostly sleep.
class GlooWires final : public Wires {
 public:
  // Returns when all ranks are connected as far as this one can see.
  GlooWires(const GlooOptions& options, Store& store);
  ~GlooWires() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int window(int to) const override { return links_[static_cast<std::size_t>(to)].window; }
  void open(Receiver& receiver) override;
  bool may_post_when_sent() const override { return true; }
  void post(int to, const Message& message, std::span<const std::byte> payload) override;
  void close() override;

 private:
  static constexpr int kLeastOut = 2, kOut = 8;  // one is written to the socket, one is next
  struct Slot {
    std::vector<std::byte> bytes;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    std::size_t payload_bytes;  // of what is sent
  };
  struct Link {
    std::vector<Slot> out;               // kOut of them,
    std::atomic<int> window{kLeastOut};  // of which so many are used
    std::uint64_t posted = 0;
    std::vector<Slot> in;  // the window
    std::thread sender, receiver;
  };
  Slot make_slot() const;
  void connect(const GlooOptions& options, Store& store);
  void connect_to(const std::vector<std::string>& cards, Store& store);
  void watch_sends(int peer);
  void receive(int peer);
  std::size_t take(int peer, const Slot& slot);  // bytes of its payload
  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }

  const int rank_, size_;
  const std::size_t slot_bytes_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::vector<Link> links_;  // by rank; this rank's own is not used
  Receiver* receiver_ = nullptr;
};

}  // namespace overtake
