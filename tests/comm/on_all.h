#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/group.h"

namespace overtake {

// Each rank on a thread of its own; a rank's group goes when its thread is done with it.
inline void on_all(std::vector<std::unique_ptr<Group>> groups, const std::function<void(Group&)>& run) {
  std::vector<std::thread> threads;
  for (auto& group : groups) threads.emplace_back([&run, mine = std::move(group)] { run(*mine); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace overtake
