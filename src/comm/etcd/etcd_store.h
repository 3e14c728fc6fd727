#pragma once
// Ranks meet in etcd: for hosts without a folder in common.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/store.h"

namespace overtake {

struct EtcdOptions {
  std::vector<std::string> addresses;  // HOST:PORT, members of one etcd; one that answers is enough
  std::string name;                    // what this store's names begin with, below "overtake/"
  std::chrono::milliseconds patience;  // how long an etcd that does not answer is asked anew
};

// Whether this build has libcurl, by which etcd is asked.
bool has_etcd();

// Asks nothing yet. What is put goes away by itself after a day. UserError when this build cannot ask etcd.
std::unique_ptr<Store> make_etcd_store(const EtcdOptions& options);

}  // namespace overtake
