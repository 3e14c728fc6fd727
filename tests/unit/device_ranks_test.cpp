// Which GPU a process takes, and what it says where there is none for it.

#include "train/device_ranks.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace overtake {
namespace {

CudaDescription machine(std::size_t gpus) {
  CudaDescription cuda{.is_built_in = true, .note = gpus == 0 ? "no GPU: none" : "", .libraries = {}, .gpus = {}};
  cuda.gpus.resize(gpus);
  return cuda;
}

std::string error_of(const std::string& device, int local_rank, const CudaDescription& cuda, bool has_nccl) {
  try {
    gpu_of_rank(device, 10 + local_rank, local_rank, cuda, has_nccl);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(GpuOfRank, IsTheOneOfItsNumberUnlessNamed) {
  EXPECT_EQ(gpu_of_rank("cuda", 9, 1, machine(2), true), "cuda:1");
  EXPECT_EQ(gpu_of_rank("cuda:0", 9, 1, machine(2), true), "cuda:0");
}

TEST(GpuOfRank, SaysWhatIsMissing) {
  EXPECT_NE(error_of("cuda", 0, {}, false).find("no CUDA"), std::string::npos);
  EXPECT_NE(error_of("cuda", 0, machine(2), false).find("no NCCL"), std::string::npos);
  EXPECT_NE(error_of("cuda", 0, machine(0), true).find("no GPU: none"), std::string::npos);
  const std::string few = error_of("cuda", 4, machine(4), true);
  EXPECT_NE(few.find("rank 14 is the 5. process on its host, which has 4 GPUs"), std::string::npos) << few;
  EXPECT_NE(few.find("--virtual-gpus"), std::string::npos) << few;
}

}  // namespace
}  // namespace overtake
