// What a build without libcurl says.

#include "base/error.h"
#include "comm/etcd/etcd_store.h"

namespace overtake {

bool has_etcd() { return false; }

std::unique_ptr<Store> make_etcd_store(const EtcdOptions& options) {
  fail_user(
      "etcd at {}: this build cannot ask it; install libcurl4-openssl-dev and configure anew, or let ranks meet "
      "in a folder",
      options.addresses.front());
}

}  // namespace overtake
