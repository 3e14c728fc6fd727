// What a build without NCCL says.

#include "base/error.h"
#include "comm/nccl/device_groups.h"

namespace overtake {

bool has_nccl() { return false; }
std::string describe_nccl(int) { return "not in this build"; }

std::shared_ptr<NcclGroup> make_nccl_group(Store&, const NcclOptions& options) {
  fail_user("rank {}: this build has no NCCL, so ranks cannot be GPUs; install it and configure anew", options.rank);
}

}  // namespace overtake
