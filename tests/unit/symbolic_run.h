#pragma once
// Runs a plan without computing anything: memory remembers of every element which one it is, in a random order that the
// lanes and the dependencies allow.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "graph/place.h"
#include "overtake/plan.h"

namespace overtake {

class SymbolicRun {
 public:
  explicit SymbolicRun(const Plan& plan) : plan_(plan), g_(plan.graph), meant_(g_.buffers.size()) {
    for (BufferId b = 0; b < g_.buffers.size(); ++b) {
      if (g_.buffers[b].role != Role::input && !is_persistent(g_.buffers[b].role)) continue;
      make(b);
      store(b);
    }
  }

  // Whether everyone reads what was meant for him, the host in the end included.
  bool is_well(std::mt19937& random) {
    const Dependencies deps = dependencies(g_);
    std::vector<char> done(g_.tasks.size(), 0);
    std::vector<std::size_t> head(plan_.lanes.size(), 0);
    for (std::size_t count = 0; count < g_.tasks.size();) {
      const std::size_t lane = random() % plan_.lanes.size();
      if (head[lane] == plan_.lanes[lane].tasks.size()) continue;
      const TaskId t = plan_.lanes[lane].tasks[head[lane]];
      if (!std::ranges::all_of(deps.of(t), [&](TaskId before) { return done[before]; })) continue;
      for (const BufferId b : g_.reads(t))
        if (b != kNone && !is_there(b)) return false;
      run(t);
      done[t] = 1;
      ++head[lane];
      ++count;
    }
    for (BufferId b = 0; b < g_.buffers.size(); ++b)
      if ((g_.buffers[b].role == Role::output || is_persistent(g_.buffers[b].role)) && !is_there(b)) return false;
    return true;
  }

 private:
  using Element = std::uint64_t;

  // Of the elements, by their logical indices, the last running fastest.
  std::vector<std::uint64_t> addresses(BufferId b) const {
    const Buffer& x = g_.buffers[b];
    std::vector<std::uint64_t> all(static_cast<std::size_t>(x.shape.elements()));
    std::vector<std::int64_t> at(x.shape.rank, 0);
    for (std::uint64_t& address : all) {
      address =
          plan_.offsets[b] + static_cast<std::uint64_t>(offset_of(x.layout, x.shape.span(), at) * bytes_of(x.dtype));
      for (std::size_t d = at.size(); d-- > 0 && ++at[d] == x.shape[d];) at[d] = 0;
    }
    return all;
  }

  Element& memory(std::uint64_t address) {
    if (memory_.size() <= address) memory_.resize(address + 1, 0);
    return memory_[address];
  }
  void store(BufferId b) {
    const auto at = addresses(b);
    for (std::size_t i = 0; i < at.size(); ++i) memory(at[i]) = meant_[b][i];
  }
  bool is_there(BufferId b) {
    const auto at = addresses(b);
    for (std::size_t i = 0; i < at.size(); ++i)
      if (memory(at[i]) != meant_[b][i]) return false;
    return true;
  }
  void make(BufferId b) {
    meant_[b].resize(static_cast<std::size_t>(g_.buffers[b].shape.elements()));
    for (Element& element : meant_[b]) element = ++made_;
  }

  // Concats and views pass elements on; everything else makes new ones.
  void run(TaskId t) {
    const Task& task = g_.tasks[t];
    if (task.op == Op::concat) return run_concat(task);
    for (const BufferId b : g_.writes(t)) {
      if (b == kNone) continue;
      const bool is_view = task.op == Op::reshape;
      if (is_view)
        meant_[b] = meant_[g_.reads(t)[0]];
      else
        make(b);
      if (!is_view || plan_.offsets[b] != plan_.offsets[g_.reads(t)[0]]) store(b);
    }
  }

  void run_concat(const Task& task) {
    const bool is_forward = task.kind == Kind::forward;
    const BufferId whole = concat_whole(g_, task);
    const auto axis = static_cast<std::size_t>(g_.attrs_of(task).integer("axis"));
    const auto elements_from = [](const Shape& s, std::size_t first) {
      std::int64_t count = 1;
      for (std::size_t d = first; d < s.rank; ++d) count *= s[d];
      return count;
    };
    if (is_forward) meant_[whole].resize(static_cast<std::size_t>(g_.buffers[whole].shape.elements()));
    const auto at_whole = addresses(whole);
    for (const ConcatPart& part : concat_parts(g_, task)) {
      if (part.buffer == kNone) continue;
      const Shape& shape = g_.buffers[part.buffer].shape;
      meant_[part.buffer].resize(static_cast<std::size_t>(shape.elements()));
      const auto at_part = addresses(part.buffer);
      const std::int64_t own = elements_from(shape, axis), all = elements_from(g_.buffers[whole].shape, axis);
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const auto in_part = static_cast<std::size_t>(i);
        const auto in_whole =
            static_cast<std::size_t>(i / own * all + part.first * elements_from(shape, axis + 1) + i % own);
        Element& to = is_forward ? meant_[whole][in_whole] : meant_[part.buffer][in_part];
        to = is_forward ? meant_[part.buffer][in_part] : meant_[whole][in_whole];
        if (!lies_in_place(g_, task, part)) memory(is_forward ? at_whole[in_whole] : at_part[in_part]) = to;
      }
    }
  }

  const Plan& plan_;
  const Graph& g_;
  std::vector<std::vector<Element>> meant_;  // by buffer
  std::vector<Element> memory_;              // by address; what is not at an element's first byte is not used
  Element made_ = 0;
};

inline bool runs_well(const Plan& plan, std::mt19937& random) { return SymbolicRun(plan).is_well(random); }

}  // namespace overtake
