#include "machine/kernel_times/kernel_table.h"

namespace overtake {
namespace {

// Sources, by the letters beside the numbers. Rows "looked at" are those of `overtake validate` that were not set aside
// (docs/validation-method.md); what has no letter is assumed.
//
// a: H200, our own: a product of bfloat16 reaches 790 TFLOP/s of 989.4, a copy 4.3 TB/s of 4.8; 60 MB of L2.
//
// b: H200, our own: matrix kernels alone, forward, input and weight gradients (times: docs/validation-method.md).
//
// c: H200, our own: rows looked at of networks of small kernels (ffnn, DenseNet, MobileNet), and of the LSTM.
//
// d: github.com/fanghostt/transformers-benchmarks, README: products of float32 (TF32 on the A100) and float16 reach 116
// and 230 TFLOP/s on an A100, 14 and 95 on a V100; 0.098 T multiplications of 8 bytes a second on a V100.
//
// e: github.com/calculon-ai/calculon, systems/a100_80g.json: of the A100's bandwidth 0.90 for 100 MB, 0.75 for 10 MB.
//
// f: github.com/pytorch/benchmark, commit ff65cb6: attention forward in bfloat16 on an H100, heads of 128: 430, 517,
// 566, 590, 614 TFLOP/s with 512, 1,024, ..., 8,192 keys.
//
// g: Dao, FlashAttention-2, arXiv 2307.08691: 25 to 40 % of the A100's peak by the first FlashAttention; 50 to 73 % by
// the second.
//
// h: ResNet-50's rows looked at, V100 and A100.
//
// i: docs/benchmark-method.md: ResNet-50's first convolution takes 0.2 ms forward where 0.03 would do.
//
// j: docs/benchmarks.md, "CPU: what bounds a step?": of a core's 118 GFLOP/s oneDNN's convolutions reach 112, products
// 105 to 109.
//
// k: modular.github.io/modular/elementwise-ops: 40 MiB of L2 on an A100. A third of a cache is counted on.

constexpr KernelTable kVolta = {
    .product_part = {0.89, 0.89, 0.76},  // d
    .tile_half = {10, 35, 35},
    .block_ns = 300,
    .product_ns = 1000,
    .convolution_ns = 2500,
    .unaligned_part = 0.4,
    .convolution_part = {0.88, 1.0, 0.88},  // h
    .direct_part = 1.0,                     // h
    .winograd_part = 0.75,                  // h
    .strided_part = 0.5,
    .narrow_part = 0.3,
    .depthwise_part = 0.08,
    .attention_part = {0.4, 0.25},  // g, the first one's
    .attention_half = {235, 650},
    .narrow_head_part = 0.65,
    .vector_part = 0.5,
    .bandwidth_part = 0.87,  // d
    .scattered_part = 0.5,
    .cached_bytes = 2'000'000,
    .launch_ns = 2000,
    .ramp_ns = 1200,
    .sum_ns = 3000,
    .recurrent_ns = 2600,
};

constexpr KernelTable kAmpere = {
    .product_part = {0.89, 0.744, 0.737},  // d; without matrix units as on a V100
    .tile_half = {10, 35, 35},
    .block_ns = 300,
    .product_ns = 1000,
    .convolution_ns = 2500,
    .unaligned_part = 0.4,
    .convolution_part = {0.5, 0.58, 0.5},  // h
    .direct_part = 1.0,
    .winograd_part = 0.75,
    .strided_part = 0.5,
    .narrow_part = 0.3,
    .depthwise_part = 0.08,
    .attention_part = {0.73, 0.5},  // g
    .attention_half = {235, 650},
    .narrow_head_part = 0.65,
    .vector_part = 0.5,
    .bandwidth_part = 0.9,  // e
    .scattered_part = 0.5,
    .cached_bytes = 14'000'000,  // k
    .launch_ns = 2000,
    .ramp_ns = 1200,  // e
    .sum_ns = 3000,
    .recurrent_ns = 2600,
};

constexpr KernelTable kHopper = {
    .product_part = {0.89, 0.8, 0.8},  // a
    .tile_half = {10, 35, 35},         // b
    .block_ns = 300,                   // b
    .product_ns = 1000,                // b, c
    .convolution_ns = 2500,            // b
    .unaligned_part = 0.4,
    .convolution_part = {0.85, 1.0, 0.95},  // b
    .direct_part = 1.0,
    .winograd_part = 0.75,
    .strided_part = 0.5,            // b
    .narrow_part = 0.3,             // i
    .depthwise_part = 0.08,         // b
    .attention_part = {0.64, 0.5},  // f, and b backward
    .attention_half = {235, 650},   // the same
    .narrow_head_part = 0.65,       // b
    .vector_part = 0.5,
    .bandwidth_part = 0.896,  // a
    .scattered_part = 0.5,
    .cached_bytes = 20'000'000,  // a
    .launch_ns = 2000,           // c
    .ramp_ns = 1200,             // c
    .sum_ns = 3000,              // c
    .recurrent_ns = 2600,        // c
};

// A GPU of which only rates are known: the middle of the three.
constexpr KernelTable kGeneric = {
    .product_part = {0.89, 0.77, 0.77},
    .tile_half = {10, 35, 35},
    .block_ns = 300,
    .product_ns = 1000,
    .convolution_ns = 2500,
    .unaligned_part = 0.4,
    .convolution_part = {0.75, 0.85, 0.78},
    .direct_part = 1.0,
    .winograd_part = 0.75,
    .strided_part = 0.5,
    .narrow_part = 0.3,
    .depthwise_part = 0.08,
    .attention_part = {0.6, 0.45},
    .attention_half = {235, 650},
    .narrow_head_part = 0.65,
    .vector_part = 0.5,
    .bandwidth_part = 0.89,
    .scattered_part = 0.5,
    .cached_bytes = 14'000'000,
    .launch_ns = 2000,
    .ramp_ns = 1200,
    .sum_ns = 3000,
    .recurrent_ns = 2600,
};

// Cores instead of SMs. Convolutions are direct, kernels begin without a launch, and threads meet between phases.
constexpr KernelTable kCpu = {
    .product_part = {0.907, 0.907, 0.907},  // j
    .tile_half = {0, 0, 0},
    .block_ns = 0,
    .product_ns = 0,
    .convolution_ns = 0,
    .unaligned_part = 1,
    .convolution_part = {1, 1, 1},
    .direct_part = 1.047,        // j: 112 against 107
    .winograd_part = 16.0 / 36,  // of products: none are saved
    .strided_part = 1,
    .narrow_part = 1,
    .depthwise_part = 0.3,
    .attention_part = {0.6, 0.6},
    .attention_half = {0, 0},
    .narrow_head_part = 1,
    .vector_part = 0.5,
    .bandwidth_part = 0.8,
    .scattered_part = 0.5,
    .cached_bytes = 16'000'000,
    .launch_ns = 2500,
    .ramp_ns = 0,
    .sum_ns = 0,
    .recurrent_ns = 2500,
};

}  // namespace

const KernelTable& kernel_table(const DeviceType& device) {
  switch (device.kernels) {
    case KernelGeneration::volta:
      return kVolta;
    case KernelGeneration::ampere:
      return kAmpere;
    case KernelGeneration::hopper:
      return kHopper;
    case KernelGeneration::cpu:
      return kCpu;
    case KernelGeneration::generic:
      break;
  }
  return device.target == DeviceTarget::cpu ? kCpu : kGeneric;
}

}  // namespace overtake
