// What a build without gloo says.

#include "base/error.h"
#include "comm/gloo/gloo_group.h"

namespace overtake {

bool has_gloo() { return false; }

std::unique_ptr<Group> make_gloo_group(const GlooOptions& options) {
  fail_user("rank {}: this build has no gloo, so ranks cannot be processes; install libgloo-dev and configure anew",
            options.rank);
}

std::unique_ptr<Group> make_gloo_group(const GlooOptions& options, Store&) { return make_gloo_group(options); }

}  // namespace overtake
