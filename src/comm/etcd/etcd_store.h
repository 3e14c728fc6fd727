#pragma once
// Ranks meet in etcd: for hosts without a folder in common.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/store.h"

namespace overtake {

struct EtcdOptions {
  std::vector<std::string> addresses;        // HOST:PORT, members of one etcd; one that answers is enough
  std::string name;                          // what this store's names begin with, below "overtake/"
  std::chrono::milliseconds patience{5000};  // how long an etcd that does not answer is asked anew
  // The time of one request: what is left of the patience, but neither less nor more than this.
  std::chrono::milliseconds least_time_out{100}, most_time_out{2000};
  // The clock by which patience ends; tests have one of their own.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  std::function<void(std::chrono::steady_clock::time_point)> sleep_until = [](auto then) {
    std::this_thread::sleep_until(then);
  };
};

// Whether this build has libcurl, by which etcd is asked.
bool has_etcd();

// Asks nothing yet. What is put goes away by itself after a day. UserError when this build cannot ask etcd.
std::unique_ptr<Store> make_etcd_store(const EtcdOptions& options);

}  // namespace overtake
