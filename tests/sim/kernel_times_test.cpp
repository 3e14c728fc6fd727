// What kernels of described devices are computed to take: against kernels that were measured, and what must hold of
// any.

#include "machine/kernel_times/kernel_times.h"

#include <gtest/gtest.h>

#include <map>

#include "machine/gpu_target.h"
#include "machine/kernel_times/calibration.h"
#include "machine/kernel_times/kernel_table.h"
#include "machine/kernel_times/product.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"

namespace overtake::tests {
namespace {

DeviceType device_of(const char* preset) { return load_cluster(preset).devices[0]; }

double product_tflops(const char* preset, const ProductShape& s) {
  const DeviceType device = device_of(preset);
  return 2e-3 * static_cast<double>(s.count * s.m * s.n * s.k) / product_time(s, device, kernel_table(device)).ns;
}

// TFLOP/s of large products, by the sources of kernel_table.cpp: 790 on an H200, 230 and 116 on an A100, 95 and 14 on a
// V100. The last wave and the blocks' ends take some of it.
TEST(KernelTimes, LargeProductsReachWhatWasMeasured) {
  const auto of = [](MatrixRate rate) { return ProductShape{.m = 8192, .n = 8192, .k = 8192, .rate = rate}; };
  EXPECT_NEAR(product_tflops("h200", of(MatrixRate::bf16)), 790, 0.05 * 790);
  EXPECT_NEAR(product_tflops("dgx-a100", of(MatrixRate::bf16)), 230, 0.05 * 230);
  EXPECT_NEAR(product_tflops("dgx-a100", of(MatrixRate::tf32)), 116, 0.05 * 116);
  EXPECT_NEAR(product_tflops("p3.8xlarge", of(MatrixRate::bf16)), 95, 0.05 * 95);
  EXPECT_NEAR(product_tflops("p3.8xlarge", of(MatrixRate::f32)), 14, 0.05 * 14);
}

TEST(KernelTimes, SmallAndAwkwardProductsReachLess) {
  const double large = product_tflops("h200", {.m = 8192, .n = 8192, .k = 8192});
  EXPECT_LT(product_tflops("h200", {.m = 256, .n = 256, .k = 256}), 0.1 * large);
  // The whole kernel, from the end of the one before.
  const std::string text =
      "[[kernel]]\nkind = \"product\"\nprecision = \"bf16\"\nm = 1024\nn = 1024\nk = 1024\ntime = \"1 ms\"\n";
  const TaskCost cost = kernel_times(parse_calibration(text, "test")[0].step, device_of("h200"))[0];
  EXPECT_LT(2e-3 * 1024 * 1024 * 1024 / static_cast<double>(cost.ns), 0.5 * large);
  EXPECT_LT(product_tflops("h200", {.m = 8192, .n = 8192, .k = 8192, .is_aligned = false}), 0.5 * large);
  // One row of tiles more than fills the SMs needs a wave more, whatever tiles are taken.
  const double full = product_tflops("h200", {.m = 256 * 12, .n = 128 * 11, .k = 8192});
  EXPECT_GT(full, 1.15 * product_tflops("h200", {.m = 256 * 12 + 8, .n = 128 * 11 + 8, .k = 8192}));
  // Sums of many terms are cut where there are few results.
  EXPECT_GT(product_tflops("h200", {.m = 256, .n = 256, .k = 1 << 20}), 0.5 * large);
}

Graph step_of(const std::string& model, std::int64_t batch) {
  PassRunner runner;
  return build_training_graph(build_model(model, ModelSettings::parse(fmt::format("batch={}", batch))), GpuTarget(),
                              {.optimizer = {}, .bf16 = true, .extra = {}}, runner);
}

// PyTorch's convolutions and linear layers on one H200, each by itself in a CUDA graph, bfloat16, channels-last:
// milliseconds of all forwards, input gradients and weight gradients of a step (docs/validation-method.md).
TEST(KernelTimes, ConvolutionsOfNetworksTakeWhatWasMeasured) {
  const struct {
    const char* model;
    std::int64_t batch;
    double forward, input_grad, weight_grad, within;
  } measured[] = {{"resnet-50", 32, 0.99, 0.79, 1.02, 0.1},
                  {"resnet-50", 128, 3.17, 2.42, 3.01, 0.15},
                  {"densenet-121", 32, 1.35, 1.01, 1.74, 0.2},
                  {"mobilenet-v3-large", 32, 0.54, 0.66, 0.70, 0.2}};
  for (const auto& row : measured) {
    const Graph g = step_of(row.model, row.batch);
    const std::vector<TaskCost> costs = kernel_times(g, device_of("h200"));
    std::map<Kind, double> ms;
    for (TaskId t = 0; t < g.tasks.size(); ++t)
      if (g.tasks[t].op == Op::conv2d || g.tasks[t].op == Op::linear)
        ms[g.tasks[t].kind] += 1e-6 * static_cast<double>(costs[t].ns);
    EXPECT_NEAR(ms[Kind::forward], row.forward, row.within * row.forward) << row.model << " " << row.batch;
    EXPECT_NEAR(ms[Kind::input_grad], row.input_grad, row.within * row.input_grad) << row.model << " " << row.batch;
    EXPECT_NEAR(ms[Kind::weight_grad], row.weight_grad, row.within * row.weight_grad) << row.model << " " << row.batch;
  }
}

// 430 and 614 TFLOP/s were measured with 512 and 8,192 keys, heads of 128 (kernel_table.cpp).
TEST(KernelTimes, AttentionNeedsLongSequences) {
  const auto tflops = [](std::int64_t sequence) {
    const std::string text = fmt::format(
        "[[kernel]]\nkind = \"attention\"\nprecision = \"bf16\"\nbatch = {}\nsequence = {}\nheads = 16\nwidth = "
        "2048\ntime "
        "= \"1 ms\"\n",
        16384 / sequence, sequence);
    const std::vector<MeasuredKernel> kernels = parse_calibration(text, "test");
    const std::vector<TaskCost> costs = kernel_times(kernels[0].step, device_of("dgx-h100"));
    return 4e-3 * 16384 * static_cast<double>(sequence) * 2048 / static_cast<double>(costs[0].compute_ns);
  };
  EXPECT_NEAR(tflops(512), 430, 0.05 * 430);
  EXPECT_NEAR(tflops(8192), 614, 0.05 * 614);
}

TEST(KernelTimes, EveryTaskTakesTimeAndNoLessForMore) {
  for (const char* preset : {"h200", "dgx-a100", "p3.8xlarge", "cpu-hosts"}) {
    const DeviceType device = device_of(preset);
    const Graph small = step_of("resnet-18", 8), large = step_of("resnet-18", 64);
    const std::vector<TaskCost> of_small = kernel_times(small, device), of_large = kernel_times(large, device);
    ASSERT_EQ(small.tasks.size(), large.tasks.size());
    for (TaskId t = 0; t < small.tasks.size(); ++t) {
      const TaskCost& cost = of_large[t];
      EXPECT_EQ(of_small[t].ns == 0, small.tasks[t].op == Op::reshape) << small.task_name(t);
      EXPECT_GE(cost.ns, of_small[t].ns) << preset << " " << small.task_name(t);
      EXPECT_GE(cost.ns, std::max(cost.compute_ns, cost.memory_ns)) << small.task_name(t);
      EXPECT_GE(cost.beside_ns, cost.compute_ns) << small.task_name(t);
    }
  }
}

TEST(KernelTimes, ADeviceHasTheTableOfItsGeneration) {
  EXPECT_EQ(device_of("dgx-a100").kernels, KernelGeneration::ampere);
  DeviceType plain = device_of("dgx-a100");
  const Graph step = step_of("resnet-18", 8);
  const auto total = [&] {
    std::int64_t ns = 0;
    for (const TaskCost& cost : kernel_times(step, plain)) ns += cost.ns;
    return ns;
  };
  const std::int64_t ampere = total();
  plain.kernels = KernelGeneration::generic;
  EXPECT_NE(total(), ampere);
  plain.target = DeviceTarget::cpu;
  const std::int64_t of_cpu = total();
  plain.kernels = KernelGeneration::cpu;
  EXPECT_EQ(total(), of_cpu) << "the table of CPUs without being named";
}

// As many tiles as SMs: with some of the SMs gone there is a second wave.
TEST(KernelTimes, AFullWaveBesideACollectiveIsTwo) {
  const DeviceType device = device_of("dgx-h100");
  const std::string text =
      "[[kernel]]\nkind = \"product\"\nprecision = \"bf16\"\nm = 3072\nn = 1408\nk = 8192\ntime = \"1 ms\"\n";
  const TaskCost cost = kernel_times(parse_calibration(text, "test")[0].step, device)[0];
  EXPECT_NEAR(static_cast<double>(cost.beside_ns) / static_cast<double>(cost.compute_ns), 2, 0.01);
}

const char* const kKernels = R"(
[[kernel]]
kind = "launch"
time = "4 us"
[[kernel]]
kind = "product"
precision = "bf16"
m = 4096
n = 4096
k = 4096
time = "TIME"
[[kernel]]
kind = "elementwise"
bytes = "256 MB"
time = "100 us"
)";

TEST(Calibration, FactorsAreMeasuredOverComputed) {
  const DeviceType device = device_of("h200");
  std::string text = kKernels;
  text.replace(text.find("TIME"), 4, "1 ms");
  const std::vector<MeasuredKernel> kernels = parse_calibration(text, "test");
  ASSERT_EQ(kernels.size(), 3u);
  const KernelFactors factors = factors_of(kernels, device, "test");
  EXPECT_DOUBLE_EQ(factors.launch, 4000.0 / static_cast<double>(kernel_table(device).launch_ns));
  EXPECT_GT(factors.products, 1);
  EXPECT_EQ(factors.convolutions, 1) << "none was measured";
  // With the factors, what was measured comes out.
  for (const MeasuredKernel& kernel : kernels)
    if (kernel.kind != KernelClass::launch) {
      const TaskCost cost = kernel_times(kernel.step, device, {.tf32 = kernel.tf32, .factors = factors})[0];
      EXPECT_NEAR(static_cast<double>(cost.ns), static_cast<double>(kernel.ns), 3);
    }
}

TEST(Calibration, EachPassOfAConvolutionCanBeMeasured) {
  const DeviceType device = device_of("h200");
  for (const char* pass : {"forward", "input_grad", "weight_grad"}) {
    const std::string text = fmt::format(
        "[[kernel]]\nkind = \"convolution\"\nprecision = \"tf32\"\nimage = [32, 64, 56, 56]\nout = 128\nkernel = 3\n"
        "stride = 2\npass = \"{}\"\ntime = \"1 ms\"\n",
        pass);
    const std::vector<MeasuredKernel> kernels = parse_calibration(text, "test");
    const KernelFactors factors = factors_of(kernels, device, "test");
    EXPECT_GT(factors.convolutions, 1) << pass;
    const TaskCost cost = kernel_times(kernels[0].step, device, {.tf32 = true, .factors = factors})[0];
    EXPECT_NEAR(static_cast<double>(cost.ns), 1e6, 100) << pass;
  }
}

}  // namespace
}  // namespace overtake::tests
