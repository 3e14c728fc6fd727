#include "train/measure_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "train/tags.h"

namespace overtake {
namespace {

constexpr int kSmallRounds = 9, kLargeRounds = 3;
constexpr double kLongEnough = 0.05;  // seconds of a transfer: what buffers on the way swallow does not count then
constexpr std::size_t kFirstBytes = 1 << 20, kMostBytes = 16 << 20;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class LinkMeter {
 public:
  LinkMeter(Group& world, LinkUse use, std::function<double()> now)
      : world_(world),
        use_(use),
        now_(std::move(now)),
        next_((world.rank() + 1) % world.size()),
        last_((world.rank() + world.size() - 1) % world.size()) {}

  LinkTimes run() {
    LinkTimes link;
    const double latency = use_ == LinkUse::messages ? token_seconds() : usual_of(sizeof(float)) / hops();
    std::size_t bytes = kFirstBytes;
    double seconds = fastest_of(bytes);
    while (seconds < kLongEnough && bytes < kMostBytes) {
      bytes = std::min(kMostBytes, bytes * (seconds * 8 < kLongEnough ? 8 : 2));
      seconds = fastest_of(bytes);
    }
    const double wire = static_cast<double>(bytes) * (use_ == LinkUse::messages ? 1 : hops() / world_.size());
    const double moving = std::max(seconds - latency * hops(), 0.1 * seconds);
    link.latency_ns = std::llround(1e9 * latency);
    link.bytes_per_s = std::max<std::int64_t>(1, std::llround(wire / moving));
    link.busy_cores = from_first(busy_cores_);
    return link;
  }

 private:
  double hops() const { return use_ == LinkUse::messages ? 1 : 2.0 * (world_.size() - 1); }

  double from_first(double value) {
    world_.wait(world_.broadcast(0, &value, sizeof value, DType::u8, {.tag = kLinkTag}));
    return value;
  }

  void move(std::size_t bytes) {
    if (use_ == LinkUse::sums)
      return world_.wait(world_.all_reduce(out_.data(), bytes / sizeof(float), DType::f32, {.tag = kLinkTag + 1}));
    const auto in = world_.recv(last_, in_.data(), bytes, DType::u8, {.tag = kLinkTag + 1});
    const auto out = world_.send(next_, out_.data(), bytes, DType::u8, {.tag = kLinkTag + 1});
    world_.wait(in);
    world_.wait(out);
  }

  // All rounds in ascending order.
  std::vector<double> rounds_of(std::size_t bytes, int rounds) {
    out_.assign(bytes / sizeof(float), 0.0f);
    if (use_ == LinkUse::messages) in_.assign(bytes, std::byte{});
    move(bytes);  // memory for a size is dear the first time
    std::vector<double> seconds;
    const double busy = cpu_seconds();
    const double start = now_();
    for (int i = 0; i < rounds; ++i) {
      const double begin = now_();
      move(bytes);
      seconds.push_back(now_() - begin);
    }
    busy_cores_ = (cpu_seconds() - busy) / std::max(now_() - start, 1e-9);
    std::ranges::sort(seconds);
    return seconds;
  }
  // Whatever else runs here only makes it slower.
  double fastest_of(std::size_t bytes) { return from_first(rounds_of(bytes, kLargeRounds).front()); }
  double usual_of(std::size_t bytes) { return from_first(rounds_of(bytes, kSmallRounds)[kSmallRounds / 2]); }

  // A few bytes go round, from rank to rank, each of which waits for them already.
  double token_seconds() {
    std::vector<double> seconds;
    std::int32_t token = 0;
    for (int i = 0; i < kSmallRounds; ++i) {
      const auto in = world_.recv(last_, &token, sizeof token, DType::u8, {.tag = kLinkTag + 2});
      world_.barrier({.tag = kLinkTag + 3});
      const double begin = now_();
      std::int32_t mine = i;
      if (world_.rank() != 0) world_.wait(in);
      world_.wait(world_.send(next_, &mine, sizeof mine, DType::u8, {.tag = kLinkTag + 2}));
      if (world_.rank() == 0) world_.wait(in);
      seconds.push_back((now_() - begin) / world_.size());
    }
    return from_first(median(seconds));
  }

  Group& world_;
  LinkUse use_;
  std::function<double()> now_;
  int next_, last_;
  std::vector<float> out_;
  std::vector<std::byte> in_;
  double busy_cores_ = 0;
};

}  // namespace

LinkTimes measure_link(Group& world, LinkUse use, std::function<double()> now) {
  OVERTAKE_CHECK(world.size() > 1, "one rank has no link");
  if (!now) now = [start = std::chrono::steady_clock::now()] { return seconds_since(start); };
  return LinkMeter(world, use, std::move(now)).run();
}

}  // namespace overtake
