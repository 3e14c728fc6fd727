#pragma once
// The asynchronous lanes of a plan whose other devices are other processes: transfers start in the order of their lane
// as soon as what they wait for is there, and end when they end. No thread waits for them: whoever ends a task looks
// whether one can start, and the group's thread tells when one is done.

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/rank_groups.h"
#include "exec/lane_order.h"
#include "overtake/plan.h"

namespace overtake {

class TransferLanes {
 public:
  // What the lanes that compute offer.
  struct Host {
    std::function<bool(const LaneEntry&)> is_ready;      // all it waits for has ended
    std::function<void(TaskId)> has_started;             // called before anything of it happens
    std::function<void(TaskId)> has_ended;               // from any thread
    std::function<void(std::exception_ptr)> has_failed;  // likewise; nothing more will start
    std::function<std::int64_t()> now_ns;
  };

  // `addresses` are of the plan's buffers. Keeps the groups.
  TransferLanes(const Plan& plan, const std::vector<std::byte*>& addresses, std::shared_ptr<RankGroups> groups);
  // Closes the groups if transfers are under way.
  ~TransferLanes();

  // For the next run: what each of the asynchronous lanes does, by the plan's lanes; the others' rows are not looked
  // at. Throws what failed since the last run.
  void begin(const LaneOrder* order, Host host);
  // Starts what can be. Any thread.
  void advance();
  // Whether all has ended that must have before the run is over. Sums that only delayed tasks read may go on, once they
  // have started.
  bool is_over() const { return left_.load(std::memory_order_acquire) == 0; }
  // Of transfers that ended since the last call; one that went on from the run before began before `start_ns`.
  std::vector<Span> take_spans(std::int64_t start_ns);

 private:
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  // One request to a group: a buffer, or several small ones in memory of their own.
  struct Piece {
    Request request{};
    std::vector<std::byte> memory;
    std::vector<Copy> before, after;
    TransferHandle handle;
  };
  struct Bound {
    std::vector<Piece> pieces;
    std::uint32_t lane = 0;
    bool may_go_on = false;     // into the next run
    std::size_t under_way = 0;  // pieces
    std::int64_t begin_ns = 0;
  };

  Bound bind(const Plan& plan, TaskId t, const std::vector<std::byte*>& addresses) const;
  void start(TaskId t);
  void fail();
  void piece_ended(TaskId t, std::size_t piece);
  bool take_piece(TaskId t, std::size_t piece);
  void task_ended(TaskId t);

  std::shared_ptr<RankGroups> groups_;
  std::vector<std::optional<Bound>> bound_;  // per task
  std::vector<std::uint32_t> lanes_;         // the plan's asynchronous ones

  std::mutex mutex_;  // of all below
  const LaneOrder* order_ = nullptr;
  std::vector<std::size_t> head_;  // per lane of lanes_
  Host host_;
  std::vector<Span> spans_;
  std::exception_ptr error_;   // the first
  std::size_t under_way_ = 0;  // pieces
  std::size_t told_ = 0;       // calls of piece_ended that have not returned
  std::condition_variable quiet_;
  std::atomic<std::size_t> left_{0};
};

}  // namespace overtake
