#include "comm/gloo/gloo_group.h"

#include <signal.h>

#include "base/error.h"
#include "comm/exchange.h"
#include "comm/gloo/gloo_wires.h"
#include "comm/roll_call.h"

namespace overtake {
namespace {

constexpr std::uint64_t kMeeting = ~std::uint64_t{0};  // a tag that nobody else uses

// gloo writes to sockets without asking that a closed one raise no signal. Threads made while this lives do not get it,
// and those are all that write.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~NoPipeSignal() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<Group> make_gloo_group(const GlooOptions& options) {
  if (options.job.empty() || options.job.find('/') != std::string::npos) {
    fail_user("job id '{}': must be a name without '/'; give every run its own", options.job);
  }
  FileStore store(options.folder / options.job);
  return make_gloo_group(options, store);
}

std::unique_ptr<Group> make_gloo_group(const GlooOptions& options, Store& store) {
  OVERTAKE_CHECK(options.window > 0, "a window of {} chunks", options.window);
  const NoPipeSignal guard;
  auto group = std::make_unique<Exchange>(std::make_unique<GlooWires>(options, store), options.group);
  try {
    group->barrier({.tag = kMeeting});
  } catch (const CommError& error) {
    throw first_of_all(store, error);
  }
  return group;
}

}  // namespace overtake
