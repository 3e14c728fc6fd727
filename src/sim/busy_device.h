#pragma once
// The tasks that run on a device at one time, and how fast each goes beside the others and beside communication.

#include <cstdint>
#include <vector>

#include "overtake/cluster.h"
#include "overtake/task_cost.h"
#include "sim/collective.h"

namespace overtake {

// How much longer a task takes when communication holds these shares of the device's SMs and memory bandwidth; one
// collective holds `of_collective` of the SMs, which is what TaskCost::beside_ns is about (0: not known).
double slowdown(const TaskCost& work, double sms_taken, double memory_taken, double of_collective = 0);

class BusyDevice {
 public:
  BusyDevice(const DeviceType& type, double speed) : type_(&type), speed_(speed) {}

  // `work` takes some time, and must outlive its run. Goes from the next set_rates on.
  void start(std::int64_t now, std::uint32_t lane, const TaskCost& work);
  // Does the work until now, and appends the lanes whose tasks ended.
  void settle(std::int64_t now, std::vector<std::uint32_t>& ended);
  // After settle(now): how fast all go from now on, beside this communication.
  void set_rates(std::int64_t now, const DeviceLoad& communication);
  void stop();  // for ever

  bool is_stopped() const { return is_stopped_; }
  std::int64_t next_ns() const { return next_ns_; }  // when the next task ends at these rates; kNever
  double link_share() const { return link_share_; }  // what computation leaves of the bandwidth of the device's links

 private:
  struct Running {
    std::uint32_t lane = 0;
    const TaskCost* work = nullptr;
    double left = 0;  // nanoseconds at full speed, at since_ns
    double rate = 0;
    std::int64_t since_ns = 0;
  };

  const DeviceType* type_;
  double speed_;
  bool is_stopped_ = false;
  std::vector<Running> running_;  // by lane
  std::int64_t next_ns_ = kNever;
  double link_share_ = 1;
};

}  // namespace overtake
