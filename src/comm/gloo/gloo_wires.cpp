#include "comm/gloo/gloo_wires.h"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "comm/gloo/pace.h"
#include "comm/roll_call.h"

namespace overtake {
namespace {

using Json = nlohmann::json;

// gloo closes all links of a rank when a wait of its own is over, so its waits never are; Exchange counts the time.
constexpr std::chrono::hours kForever{24 * 365};

// Seconds that may be under way, and that may be handed over before: a few turns of the kernel's scheduler.
constexpr double kReceiveAhead = 0.008, kSendAhead = 0.004;

std::shared_ptr<gloo::transport::Device> make_device(const GlooOptions& options) {
  gloo::transport::tcp::attr attributes;
  if (options.interface.empty()) {
    attributes.hostname = options.address;
  } else {
    attributes.iface = options.interface;
  }
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    const bool is_interface = !options.interface.empty();
    fail_user("rank {}: this host has no {} {}: {}; `ip address` lists what it has", options.rank,
              is_interface ? "network interface" : "address", is_interface ? options.interface : options.address,
              error.what());
  }
}

// gloo leaves what is behind the address itself as it was in memory, and all ranks read what is published: so only the
// address is copied into memory that is all zero.
std::vector<char> published_bytes(const gloo::transport::Address& address) {
  const auto* const given = dynamic_cast<const gloo::transport::tcp::Address*>(&address);
  OVERTAKE_CHECK(given != nullptr, "gloo's address {} is none of TCP", address.str());
  const sockaddr_storage& from = given->getSockaddr();
  sockaddr_storage clean{};
  std::memcpy(&clean, &from, from.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return gloo::transport::tcp::Address(clean, given->getSeq()).bytes();
}

}  // namespace

GlooWires::GlooWires(const GlooOptions& options, Store& store)
    : rank_(options.rank),
      size_(options.size),
      slot_bytes_(sizeof(Message) + std::max(options.group.chunk_bytes, kLongestText)),
      device_(make_device(options)),
      context_(device_->createContext(rank_, size_)),
      links_(static_cast<std::size_t>(size_)) {
  connect(options, store);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    for (int i = 0; i < kOut; ++i) link(peer).out.push_back(make_slot());
    for (int i = 0; i < options.window; ++i) link(peer).in.push_back(make_slot());
  }
}

GlooWires::~GlooWires() { close(); }

GlooWires::Slot GlooWires::make_slot() const {
  Slot slot{std::vector<std::byte>(slot_bytes_), nullptr, 0};
  slot.buffer = context_->createUnboundBuffer(slot.bytes.data(), slot.bytes.size());
  return slot;
}

// As gloo's own rendezvous does it, but whoever is missing is called by its rank.
void GlooWires::connect(const GlooOptions& options, Store& store) {
  // All are there, so this is quick; and a rank that fails here must say so before those that are through hear nothing
  // from it for a whole time-out. gloo takes five times as long as it is told.
  context_->setTimeout(options.group.time_out / 10);
  Json addresses = Json::array();  // where each peer reaches this rank
  for (int peer = 0; peer < size_; ++peer) {
    std::vector<char> bytes;
    if (peer != rank_) bytes = published_bytes(context_->createPair(peer)->address());
    addresses.push_back(std::vector<int>(bytes.begin(), bytes.end()));
  }
  const std::vector<std::string> cards =
      call_roll(store, {.rank = rank_,
                        .size = size_,
                        .identity = fmt::format("{} (chunks of {} bytes, window {})", options.identity,
                                                options.group.chunk_bytes, options.window),
                        .message = addresses.dump(),
                        .time_out = options.group.time_out});
  connect_to(cards, store);
}

// To all at the same time: only so is a rank that does not answer told from those that wait for it.
void GlooWires::connect_to(const std::vector<std::string>& cards, Store& store) {
  std::vector<std::string> errors(cards.size());
  std::vector<std::thread> threads;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    threads.emplace_back([&, peer, index = static_cast<std::size_t>(peer)] {
      try {
        const Json addresses = parse_json(cards[index]);
        const auto numbers = addresses.at(static_cast<std::size_t>(rank_)).get<std::vector<int>>();
        std::vector<char> bytes;
        for (const int number : numbers) bytes.push_back(static_cast<char>(number));
        context_->getPair(peer)->connect(bytes);
      } catch (const std::exception& error) {
        errors[index] = fmt::format("rank {}: rank {} cannot connect to it: {}", peer, rank_, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int peer = 0; peer < size_; ++peer) {
    if (const std::string& error = errors[static_cast<std::size_t>(peer)]; !error.empty()) {
      throw first_of_all(store, CommError(peer, error));
    }
  }
}

void GlooWires::open(Receiver& receiver) {
  receiver_ = &receiver;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    link(peer).sender = std::thread([this, peer] { watch_sends(peer); });
    link(peer).receiver = std::thread([this, peer] { receive(peer); });
  }
}

void GlooWires::post(int to, const Message& message, std::span<const std::byte> payload) {
  Link& l = link(to);
  Slot& out = l.out[l.posted % l.out.size()];
  out.payload_bytes = payload.size();
  std::memcpy(out.buffer->ptr, &message, sizeof message);
  if (!payload.empty()) {
    std::memcpy(static_cast<std::byte*>(out.buffer->ptr) + sizeof message, payload.data(), payload.size());
  }
  try {
    out.buffer->send(to, l.posted++ % l.in.size(), 0, sizeof message + payload.size());
  } catch (const std::exception& error) {
    receiver_->lost(to, error.what());
  }
}

void GlooWires::watch_sends(int peer) {
  try {
    Link& l = link(peer);
    Pace pace(kLeastOut, kOut, kSendAhead, slot_bytes_ - sizeof(Message));
    for (std::size_t i = 0; l.out[i].buffer->waitSend(kForever); i = (i + 1) % l.out.size()) {
      pace.passed(l.out[i].payload_bytes, std::chrono::steady_clock::now());
      l.window = pace.window();
      receiver_->sent(peer);
    }
  } catch (const std::exception& error) {
    receiver_->lost(peer, error.what());
  }
}

void GlooWires::receive(int peer) {
  std::vector<Slot>& in = link(peer).in;
  Pace pace(4, static_cast<int>(in.size()), kReceiveAhead, slot_bytes_ - sizeof(Message));
  std::size_t taken = 0, allowed = 0;
  const auto allow = [&] {
    for (; allowed < taken + static_cast<std::size_t>(pace.window()); ++allowed) {
      const std::size_t i = allowed % in.size();
      in[i].buffer->recv(peer, i, 0, slot_bytes_);
    }
  };
  try {
    for (allow(); in[taken % in.size()].buffer->waitRecv(kForever); allow()) {
      pace.passed(take(peer, in[taken % in.size()]), std::chrono::steady_clock::now());
      ++taken;
    }
  } catch (const std::exception& error) {
    receiver_->lost(peer, error.what());
  }
}

std::size_t GlooWires::take(int peer, const Slot& slot) {
  Message message;
  std::memcpy(&message, slot.bytes.data(), sizeof message);
  if (message.bytes > slot_bytes_ - sizeof message) throw std::runtime_error("a message that makes no sense");
  receiver_->received(peer, message, std::span(slot.bytes).subspan(sizeof message, message.bytes));
  return message.bytes;
}

void GlooWires::close() {
  for (Link& l : links_) {
    if (!l.sender.joinable()) continue;
    for (Slot& slot : l.out) slot.buffer->abortWaitSend();
    for (Slot& slot : l.in) slot.buffer->abortWaitRecv();
    l.sender.join();
    l.receiver.join();
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && context_->getPair(peer) != nullptr) context_->getPair(peer)->close();
  }
}

}  // namespace overtake
