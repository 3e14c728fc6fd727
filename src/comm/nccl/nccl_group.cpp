#include "comm/nccl/nccl_group.h"

#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
  }
  fail_user("no such element type");
}

std::string version_text() {
  int version = 0;
  ncclGetVersion(&version);
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

// NCCL has no call that says what it uses; its debug output does.
std::string nvls_text(int ranks) {
  const char* wish = std::getenv("NCCL_NVLS_ENABLE");
  if (wish != nullptr && std::strcmp(wish, "0") == 0) return "no: NCCL_NVLS_ENABLE is 0";
  if (ranks == 1) return "no: there is one rank";
  return "NCCL's own choice, which it does not tell programs; NCCL_DEBUG=INFO shows it";
}

// Sleeps a little longer each time.
class Patience {
 public:
  explicit Patience(milliseconds time_out) : deadline_(Clock::now() + time_out) {}
  // False when the time is over.
  bool sleep() {
    if (Clock::now() > deadline_) return false;
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::microseconds>(pause_ * 2, milliseconds(1));
    return true;
  }

 private:
  Clock::time_point deadline_;
  std::chrono::microseconds pause_{5};
};

class RealNcclGroup final : public NcclGroup {
 public:
  RealNcclGroup(Store& store, const NcclOptions& options) : options_(options) {
    const ncclUniqueId id = common_id(store);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options_.most_blocks > 0) config.maxCTAs = options_.most_blocks;
    try {
      finish(ncclCommInitRankConfig(&comm_, options_.size, id, options_.rank, &config), "connecting");
    } catch (const CommError&) {
      wait_for_abort();
      throw;
    }
  }

  // Where others are gone it does not wait for them.
  ~RealNcclGroup() override {
    try {
      if (comm_ != nullptr) {
        finish(ncclCommFinalize(comm_), "ending");
        ncclCommDestroy(comm_);
      }
    } catch (const CommError&) {  // aborted by then
    }
    wait_for_abort();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  NcclReport report() const override { return {version_text(), nvls_text(options_.size)}; }

  void enqueue(cudaStream_t stream, std::span<const NcclCall> calls) override {
    if (calls.empty()) return;
    check_usable();
    ncclResult_t result = ncclGroupStart();
    for (const NcclCall& call : calls)
      if (!is_error(result)) result = start(stream, call);
    const ncclResult_t end = ncclGroupEnd();  // also after an error, so that the next call begins anew
    finish(is_error(result) ? result : end, name_of(calls[0].what));
  }

  void wait(cudaStream_t stream) override {
    check_usable();
    Patience patience(options_.time_out);
    for (cudaError_t state; (state = cudaStreamQuery(stream)) != cudaSuccess;) {
      if (state != cudaErrorNotReady) fail("waiting", cudaGetErrorString(state));
      cudaGetLastError();  // or whoever looks for errors of a launch would find "not ready"
      check();
      if (!patience.sleep()) fail("waiting", time_out_text());
    }
  }

  void check() override {
    check_usable();
    ncclResult_t now = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &now); asked != ncclSuccess) now = asked;
    if (is_error(now)) fail("a transfer", describe(now));
  }

  void abort(const std::string& why) override {
    if (!fault_) fault_ = CommError(-1, fmt::format("rank {} of {}: NCCL: {}", options_.rank, options_.size, why));
    end_transfers();
  }

 private:
  static bool is_error(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

  // Rank 0 makes it, the others wait for it.
  ncclUniqueId common_id(Store& store) {
    if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size)
      fail_user("rank {}: there are {} ranks: the number must be 0 to {}; give each process its own", options_.rank,
                options_.size, options_.size - 1);
    ncclUniqueId id;
    if (options_.rank == 0) {
      const ncclResult_t result = ncclGetUniqueId(&id);
      if (result != ncclSuccess) fail("making an id", ncclGetErrorString(result));
      if (!store.put(options_.name, std::string(id.internal, sizeof id.internal)))
        fail_user("rank 0: group {} has met already; give each group its own name, and each run its own job id",
                  options_.name);
      return id;
    }
    Patience patience(options_.time_out);
    std::optional<std::string> text;
    while (!(text = store.get(options_.name)))
      if (!patience.sleep()) fail("waiting for rank 0's id", time_out_text());
    if (text->size() != sizeof id.internal) fail("reading rank 0's id", "it is damaged");
    std::memcpy(id.internal, text->data(), sizeof id.internal);
    return id;
  }

  static const char* name_of(NcclCall::What what) {
    switch (what) {
      case NcclCall::What::all_reduce:
        return "all_reduce";
      case NcclCall::What::reduce_scatter:
        return "reduce_scatter";
      case NcclCall::What::all_gather:
        return "all_gather";
      case NcclCall::What::reduce:
        return "reduce";
      case NcclCall::What::broadcast:
        return "broadcast";
      case NcclCall::What::send:
        return "send";
      case NcclCall::What::recv:
        return "recv";
    }
    return "call";
  }

  ncclResult_t start(cudaStream_t stream, const NcclCall& c) {
    const ncclDataType_t type = nccl_type(c.dtype);
    switch (c.what) {
      case NcclCall::What::all_reduce:
        return ncclAllReduce(c.from, c.to, c.count, type, ncclSum, comm_, stream);
      case NcclCall::What::reduce_scatter:
        return ncclReduceScatter(c.from, c.to, c.count, type, ncclSum, comm_, stream);
      case NcclCall::What::all_gather:
        return ncclAllGather(c.from, c.to, c.count, type, comm_, stream);
      case NcclCall::What::reduce:
        return ncclReduce(c.from, c.to, c.count, type, ncclSum, c.peer, comm_, stream);
      case NcclCall::What::broadcast:
        return ncclBroadcast(c.from, c.to, c.count, type, c.peer, comm_, stream);
      case NcclCall::What::send:
        return ncclSend(c.from, c.count, type, c.peer, comm_, stream);
      case NcclCall::What::recv:
        return ncclRecv(c.to, c.count, type, c.peer, comm_, stream);
    }
    return ncclInvalidArgument;
  }

  // NCCL goes on by itself; the stream is not to be used before it is done with the call.
  void finish(ncclResult_t result, const char* what) {
    Patience patience(options_.time_out);
    while (result == ncclInProgress) {
      if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result); asked != ncclSuccess) result = asked;
      if (result == ncclInProgress && !patience.sleep()) fail(what, time_out_text());
    }
    if (result != ncclSuccess) fail(what, describe(result));
  }

  void wait_for_abort() const {
    if (aborted_.valid()) aborted_.wait_for(std::chrono::seconds(5));
  }

  void check_usable() const {
    if (fault_) throw *fault_;
  }

  std::string describe(ncclResult_t result) const {
    const char* more = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
    const std::string text = ncclGetErrorString(result);
    return more == nullptr || *more == '\0' ? text : fmt::format("{}: {}", text, more);
  }
  std::string time_out_text() const {
    return fmt::format("no answer within {:g} s", std::chrono::duration<double>(options_.time_out).count());
  }

  [[noreturn]] void fail(const char* what, const std::string& why) {
    fault_ = CommError(-1, fmt::format("rank {} of {}: NCCL: {}: {}", options_.rank, options_.size, what, why));
    end_transfers();
    throw *fault_;
  }

  // Beside, because NCCL first lets kernels go, but then waits until graphs with its calls are gone, which whoever is
  // told of the fault has to destroy.
  void end_transfers() {
    if (comm_ == nullptr) return;
    std::packaged_task<void()> abort([comm = std::exchange(comm_, nullptr)] { ncclCommAbort(comm); });
    aborted_ = abort.get_future();
    std::thread(std::move(abort)).detach();
  }

  NcclOptions options_;
  ncclComm_t comm_ = nullptr;
  std::optional<CommError> fault_;
  std::future<void> aborted_;
};

}  // namespace

bool has_nccl() { return true; }
std::string describe_nccl(int ranks) { return fmt::format("NCCL {}; NVLS: {}", version_text(), nvls_text(ranks)); }

std::shared_ptr<NcclGroup> make_nccl_group(Store& store, const NcclOptions& options) {
  return std::make_shared<RealNcclGroup>(store, options);
}

}  // namespace overtake
