#include "comm/clock_offset.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace overtake {
namespace {

std::int64_t steady_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ClockOffset offset_from(std::span<const PingPong> rounds) {
  const auto trip = [](const PingPong& p) { return p.heard_ns - p.asked_ns; };
  const auto best = std::ranges::min_element(rounds, {}, trip);
  OVERTAKE_CHECK(best != rounds.end() && trip(*best) >= 0, "no answer that came after its question");
  const std::int64_t half_ns = trip(*best) / 2;
  return {best->answered_ns - (best->asked_ns + half_ns), trip(*best) - half_ns};
}

ClockOffset measure_clock_offset(Group& group, const ClockOptions& options) {
  const auto now_ns = options.now_ns ? options.now_ns : steady_ns;
  const TransferOptions message{.tag = options.tag, .priority = options.priority};
  std::int64_t time_ns = 0;
  const auto send = [&](int to) { group.wait(group.send(to, &time_ns, sizeof time_ns, DType::u8, message)); };
  const auto recv = [&](int from) { group.wait(group.recv(from, &time_ns, sizeof time_ns, DType::u8, message)); };
  if (group.rank() == 0) {
    for (int rank = 1; rank < group.size(); ++rank) {
      for (int i = 0; i < options.rounds; ++i) {
        recv(rank);
        time_ns = now_ns();
        send(rank);
      }
    }
    return {};
  }
  std::vector<PingPong> rounds(static_cast<std::size_t>(options.rounds));
  for (PingPong& round : rounds) {
    round.asked_ns = now_ns();
    send(0);
    recv(0);
    round.answered_ns = time_ns;
    round.heard_ns = now_ns();
  }
  return offset_from(rounds);
}

}  // namespace overtake
