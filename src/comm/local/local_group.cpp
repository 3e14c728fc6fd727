#include "comm/local/local_group.h"

#include <shared_mutex>

#include "base/error.h"
#include "comm/exchange.h"
#include "comm/wires.h"

namespace overtake {
namespace {

// Where the messages of one rank go.
struct Door {
  std::shared_mutex mutex;  // shared by those who hand something over
  Receiver* receiver = nullptr;
};

struct House {
  House(int size, const LocalOptions& its_options) : options(its_options), doors(static_cast<std::size_t>(size)) {}
  const LocalOptions options;
  std::vector<Door> doors;
};

// A message is handed over by the thread that posts it, straight from the sender's memory.
class LocalWires final : public Wires {
 public:
  LocalWires(std::shared_ptr<House> house, int rank) : house_(std::move(house)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(house_->doors.size()); }
  int window(int) const override { return 1; }
  bool may_post_when_sent() const override { return false; }

  void open(Receiver& receiver) override {
    const std::unique_lock lock(door(rank_).mutex);
    door(rank_).receiver = receiver_ = &receiver;
  }

  void post(int to, const Message& message, std::span<const std::byte> payload) override {
    if (house_->options.on_message) house_->options.on_message(rank_, to, payload.size());
    {
      const std::shared_lock lock(door(to).mutex);
      // Who is not there is not waited for: before opening there is nothing to say but that we are alive, and a rank
      // that closed has left.
      if (door(to).receiver != nullptr) door(to).receiver->received(rank_, message, payload);
    }
    receiver_->sent(to);
  }

  void close() override {
    const std::unique_lock lock(door(rank_).mutex);
    door(rank_).receiver = nullptr;
  }

 private:
  Door& door(int rank) { return house_->doors[static_cast<std::size_t>(rank)]; }

  const std::shared_ptr<House> house_;
  const int rank_;
  Receiver* receiver_ = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_local_groups(int size, const LocalOptions& options) {
  OVERTAKE_CHECK(size > 0, "{} ranks", size);
  const auto house = std::make_shared<House>(size, options);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(std::make_unique<Exchange>(std::make_unique<LocalWires>(house, rank), options.group));
  }
  return groups;
}

}  // namespace overtake
