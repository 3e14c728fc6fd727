#include "machine/tpu_presets.h"

namespace overtake {
namespace {

constexpr std::string_view kTpuV4 = R"(
# TPU v4: 275 TFLOP/s bfloat16, 32 GiB at 1200 GB/s (docs.cloud.google.com/tpu/docs/v4). Hosts of four chips, links of
# 45 GB/s each way to six neighbours, and 6.25 GB/s a chip into the data-centre network (Google DeepMind, How to Scale
# Your Model, jax-ml.github.io/scaling-book, part 2; a bisection of 24 TB/s of 16 x 16 x 16 chips, as the first page has
# it, is 47 GB/s a link). 1 us a link: as ASTRA-sim took it for TPU v3 after Google's team
# (astra-sim.github.io/astra-sim-docs, Validation on Google's TPU-v3). Not published, so assumed: float32 products run at
# the bfloat16 rate, as they do by default in JAX; communication holds next to nothing of a chip; the latency of the
# data-centre network. Slices of less than 4 along a dimension have no links from the last to the first in truth. The
# number of nodes is that of hosts: 16 (64 chips, a cube) to 1024 (4096 chips, a pod).
name = "tpu-v4"

[device.tpu]
f32 = "275 TFLOP/s"
bf16 = "275 TFLOP/s"
memory = [{ name = "HBM2", capacity = "32 GiB", bandwidth = "1200 GB/s" }]
sms = 1000  # parts of a chip: communication is by engines of its own
collective_sms = 1

[node.host]
count = 16
devices = { tpu = 4 }

[[torus]]
devices = "host/tpu"
dimensions = 3
kind = "ICI"
bandwidth = "45 GB/s"
latency = "1 us"
)";

constexpr std::string_view kTpuV5p = R"(
# TPU v5p: 459 TFLOP/s bfloat16, 95 GiB at 2765 GB/s, links of 1200 GB/s a chip in both directions of all six, which is
# 100 GB/s each way (docs.cloud.google.com/tpu/docs/v5p). Hosts of four chips (ibid.). All else as in tpu-v4, sources
# included; How to Scale Your Model counts on 90 GB/s. The number of nodes is that of hosts: 16 (64 chips, a cube) to
# 1536 (6144 chips, the largest job) and 2240 (8960 chips, a pod of 16 x 20 x 28).
name = "tpu-v5p"

[device.tpu]
f32 = "459 TFLOP/s"
bf16 = "459 TFLOP/s"
memory = [{ name = "HBM", capacity = "95 GiB", bandwidth = "2765 GB/s" }]
sms = 1000  # parts of a chip: communication is by engines of its own
collective_sms = 1

[node.host]
count = 16
devices = { tpu = 4 }

[[torus]]
devices = "host/tpu"
dimensions = 3
kind = "ICI"
bandwidth = "100 GB/s"
latency = "1 us"
)";

}  // namespace

std::string_view tpu_v4_text() { return kTpuV4; }
std::string_view tpu_v5p_text() { return kTpuV5p; }

}  // namespace overtake
