#include "comm/nccl/nccl_group.h"

#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
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
    finish(ncclCommInitRankConfig(&comm_, options_.size, id, options_.rank, &config), "connecting");
  }

  // Where others are gone it does not wait for them.
  ~RealNcclGroup() override {
    if (comm_ == nullptr) return;
    try {
      finish(ncclCommFinalize(comm_), "ending");
      ncclCommDestroy(comm_);
    } catch (const CommError&) {  // aborted by then
    }
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  NcclReport report() const override { return {version_text(), nvls_text(options_.size)}; }

  void all_reduce(cudaStream_t stream, const void* from, void* to, std::size_t count, DType dtype) override {
    enqueue("all_reduce", [&] { return ncclAllReduce(from, to, count, nccl_type(dtype), ncclSum, comm_, stream); });
  }
  void reduce_scatter(cudaStream_t stream, const void* from, void* to, std::size_t count, DType dtype) override {
    enqueue("reduce_scatter",
            [&] { return ncclReduceScatter(from, to, count, nccl_type(dtype), ncclSum, comm_, stream); });
  }
  void all_gather(cudaStream_t stream, const void* from, void* to, std::size_t count, DType dtype) override {
    enqueue("all_gather", [&] { return ncclAllGather(from, to, count, nccl_type(dtype), comm_, stream); });
  }
  void broadcast(cudaStream_t stream, int root, void* data, std::size_t count, DType dtype) override {
    enqueue("broadcast", [&] { return ncclBroadcast(data, data, count, nccl_type(dtype), root, comm_, stream); });
  }
  void exchange(cudaStream_t stream, std::span<const NcclMessage> messages) override {
    if (messages.empty()) return;
    enqueue("exchange", [&] {
      ncclResult_t result = ncclGroupStart();
      for (const NcclMessage& m : messages) {
        if (is_error(result)) break;
        result = m.way == NcclMessage::Way::send ? ncclSend(m.data, m.count, nccl_type(m.dtype), m.peer, comm_, stream)
                                                 : ncclRecv(m.data, m.count, nccl_type(m.dtype), m.peer, comm_, stream);
      }
      const ncclResult_t end = ncclGroupEnd();  // also after an error, so that the next call begins anew
      return is_error(result) ? result : end;
    });
  }

  void wait(cudaStream_t stream) override {
    check_usable();
    Patience patience(options_.time_out);
    for (cudaError_t state; (state = cudaStreamQuery(stream)) != cudaSuccess;) {
      if (state != cudaErrorNotReady) fail("waiting", cudaGetErrorString(state));
      ncclResult_t now = ncclSuccess;
      ncclCommGetAsyncError(comm_, &now);
      if (is_error(now)) fail("waiting", describe(now));
      if (!patience.sleep()) fail("waiting", time_out_text());
    }
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

  template <class Call>
  void enqueue(const char* what, const Call& call) {
    check_usable();
    finish(call(), what);
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
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    throw *fault_;
  }

  NcclOptions options_;
  ncclComm_t comm_ = nullptr;
  std::optional<CommError> fault_;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<NcclGroup> make_nccl_group(Store& store, const NcclOptions& options) {
  return std::make_unique<RealNcclGroup>(store, options);
}

}  // namespace overtake
