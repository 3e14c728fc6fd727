#pragma once
// What a task takes of its device when nothing else runs there.

#include <cstdint>

namespace overtake {

struct TaskCost {
  std::int64_t ns = 0;
  // What its arithmetic and its memory traffic take by themselves, each at most ns: the larger of the two is what binds
  // it. Both 0: not known, taken as bound by arithmetic.
  std::int64_t compute_ns = 0, memory_ns = 0;
  double load = 1;  // the part of the device it needs for its full speed, as in Profile::load
  // What its arithmetic takes while a collective holds SMs (CommunicationCost::sms): kernels work in waves of one tile
  // per SM, of which fewer SMs may need one more. 0: not known, taken as longer by as much as there are fewer SMs.
  std::int64_t beside_ns = 0;
  // Of a weight gradient, what it and its layer's input gradient take as one task; 0: not known.
  std::int64_t joint_ns = 0;
  bool operator==(const TaskCost&) const = default;
};

// Of two tasks that run one after the other as if they were one; what they take joined with others is lost.
inline TaskCost& operator+=(TaskCost& sum, const TaskCost& next) {
  const auto work = [](const TaskCost& c) { return static_cast<double>(c.ns) * c.load; };
  const double both = work(sum) + work(next);
  const bool is_known = (sum.beside_ns > 0 || sum.compute_ns == 0) && (next.beside_ns > 0 || next.compute_ns == 0);
  sum.ns += next.ns;
  sum.compute_ns += next.compute_ns;
  sum.beside_ns = is_known ? sum.beside_ns + next.beside_ns : 0;
  sum.memory_ns += next.memory_ns;
  sum.load = sum.ns > 0 ? both / static_cast<double>(sum.ns) : 1;
  sum.joint_ns = 0;
  return sum;
}

}  // namespace overtake
