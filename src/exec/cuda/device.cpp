#include "exec/cuda/device.h"

#include <cstdlib>

#include "base/error.h"
#include "exec/cuda/handles.h"
#include "kernels/cuda/rnn.h"

namespace overtake {
namespace {

// More would buy little speed and cost memory that activations need.
constexpr std::size_t kConvWorkspace = std::size_t{256} << 20, kProductWorkspace = std::size_t{32} << 20;

// Work goes to a GPU through so many queues, and what shares one runs in turn whatever its streams say: devices that
// are parts of one GPU, with several lanes each, need all there are. Read when the GPU is first used.
constexpr const char* kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* kMostQueues = "32";

// Chooses the GPU, or says what is wrong with it.
void open_gpu(int gpu, Precision precision) {
  int count = 0, runtime = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  if (error == cudaErrorInsufficientDriver)
    fail_user("`device cuda`: the driver is for CUDA {}.{}, older than this build's {}.{}; update the driver",
              driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    fail_user("`device cuda`: this machine has no GPU; use `device cpu`");
  if (error != cudaSuccess)
    fail_user("`device cuda`: the GPU cannot be used: {}; `nvidia-smi` may say more", cudaGetErrorString(error));
  if (gpu >= count)
    fail_user("`device cuda:{}`: this machine has {} GPU(s), counted from 0; `overtake devices` lists them", gpu,
              count);
  cudaDeviceProp p;
  check_cuda_call(cudaGetDeviceProperties(&p, gpu), "asking for a GPU's properties");
  if (p.major < 9)
    fail_user("`device cuda:{}`: {} has compute capability {}.{}, but the kernels are built for 9.0 and above{}", gpu,
              p.name, p.major, p.minor,
              precision == Precision::bf16 && p.major < 8 ? " (and it has no bfloat16 units)" : "");
  check_cuda_call(cudaSetDevice(gpu), "choosing a GPU");
}

template <class Shape, class Kernels, class Make>
const auto& found_or_made(Kernels& kernels, const Shape& shape, Make make) {
  for (const auto& [known, kernel] : kernels)
    if (known == shape) return *kernel;
  kernels.emplace_back(shape, make());
  return *kernels.back().second;
}

// Says so where bfloat16 does not get cuDNN's fused kernels: ours are slower.
template <class Kernel>
std::unique_ptr<const Kernel> made_attention(const cuda::AttentionKind& kind, const cuda::Tuning& tuning,
                                             const char* direction) {
  auto kernel = std::make_unique<const Kernel>(kind);
  const kernels::AttentionShape& s = kind.shape;
  if (kind.bf16 && !kernel->fused())
    tuning.note(fmt::format("attention {} [{} x {} heads x {} queries x {} keys x {}]: not by cuDNN: {}", direction,
                            s.batch, s.heads, s.queries, s.keys, s.head_dim, kernel->refusal()));
  return kernel;
}

}  // namespace

CudaDevice::CudaDevice(int gpu, const BackendOptions& options)
    : precision_(options.precision.value_or(Precision::bf16)),
      uses_graph_(options.use_graph),
      virtual_link_(options.virtual_link),
      ranks_(options.groups, options.device_groups) {
  if (options.virtual_gpus > 0) setenv(kQueues, kMostQueues, 0);
  open_gpu(gpu, precision_);
  const std::filesystem::path path =
      options.tuning_file ? std::filesystem::path(*options.tuning_file) : cuda::Tuning::default_path(cuda::gpu_name());
  if (options.side_sms > 0) side_partition_ = make_side_partition(options.side_sms);
  if (options.virtual_gpus > 0) virtual_gpus_ = split_gpu(options.virtual_gpus);
  if (side_partition_) part_streams_.push_back(side_partition_->make_stream(0));
  if (virtual_gpus_)
    for (const SmPartition& part : virtual_gpus_->gpus) part_streams_.push_back(part.make_stream(0));
  cuda::TuningOptions tuning{.measure = options.tune};
  for (const CudaStream& part : part_streams_) tuning.parts.push_back(part.get());
  tuning_ = std::make_unique<cuda::Tuning>(path, tuning, [note = options.note](const std::string& line) {
    if (note) note(line);
  });
}

CudaDevice::~CudaDevice() = default;

int CudaDevice::multiprocessors() const {
  // One that waits for others holds SMs; a cooperative kernel that needs those would wait for it, and perhaps others
  // for that kernel.
  if (ranks_.are_there()) return cuda::kMultiprocessors - kMostNcclBlocks;
  return virtual_gpus_ ? static_cast<int>(virtual_gpus_->gpus[0].sms()) : cuda::kMultiprocessors;
}

const cuda::Conv& CudaDevice::conv(const cuda::ConvKind& kind) {
  return found_or_made(convs_, kind,
                       [&] { return std::make_unique<const cuda::Conv>(kind, *tuning_, kConvWorkspace); });
}

bool CudaDevice::takes_pitches(const cuda::ConvKind& kind) {
  for (const auto& [known, takes] : pitched_convs_)
    if (known == kind) return takes;
  pitched_convs_.emplace_back(kind, cuda::takes_pitches(kind, *tuning_, kConvWorkspace));
  return pitched_convs_.back().second;
}

const cuda::Product& CudaDevice::product(const cuda::ProductShape& shape) {
  return found_or_made(products_, shape,
                       [&] { return std::make_unique<const cuda::Product>(shape, *tuning_, kProductWorkspace); });
}

const cuda::AttentionForward& CudaDevice::attention_forward(const cuda::AttentionKind& kind) {
  return found_or_made(attention_forwards_, kind,
                       [&] { return made_attention<cuda::AttentionForward>(kind, *tuning_, "forward"); });
}

const cuda::AttentionBackward& CudaDevice::attention_backward(const cuda::AttentionKind& kind) {
  return found_or_made(attention_backwards_, kind,
                       [&] { return made_attention<cuda::AttentionBackward>(kind, *tuning_, "backward"); });
}

void CudaDevice::save_tuning() { tuning_->save(); }

}  // namespace overtake
