// Machines that come with Overtake, in the text form anyone can write. FLOP rates and memory are of the vendors' data
// sheets (dense, without sparsity); latencies are rounded: inside a node they add up to NCCL's 0.6 us. They are the
// first thing to replace by your own measurements.

#include <array>
#include <utility>

#include "machine/tpu_presets.h"
#include "overtake/cluster.h"

namespace overtake {
namespace {

constexpr std::string_view kP3Small = R"(
# V100 SXM2: 15.7 TFLOP/s float32, 900 GB/s, 16 GB, 80 SMs, six NVLinks of 25 GB/s each way (NVIDIA, Tesla V100 data
# sheet, 2018). Tensor cores take float16 (125 TFLOP/s) and neither TF32 nor bfloat16; half-precision training there
# uses float16, so bf16 stands for it. Network: AWS, EC2 P3 product page. NVLinks between pairs: `nvidia-smi topo -m`
# there.
name = "p3.8xlarge"

[device.v100]
f32 = "15.7 TFLOP/s"
bf16 = "125 TFLOP/s"  # float16 on tensor cores
memory = [{ name = "HBM2", capacity = "16 GB", bandwidth = "900 GB/s" }]
sms = 80
kernels = "volta"
collective_sms = 8

[node.p3]
devices = { v100 = 4 }

[node.p3.switch.host]  # PCIe root, and the network card behind it

[switch.tor]

[[link]]
between = [
  ["p3/v100.0", "p3/v100.1"], ["p3/v100.0", "p3/v100.2"], ["p3/v100.1", "p3/v100.3"],
]
kind = "NVLink"
bandwidth = "25 GB/s"
latency = "600 ns"

[[link]]
between = [
  ["p3/v100.0", "p3/v100.3"], ["p3/v100.1", "p3/v100.2"], ["p3/v100.2", "p3/v100.3"],
]
kind = "NVLink"
bandwidth = "50 GB/s"  # two links
latency = "600 ns"

[[link]]
between = ["p3/v100", "p3/host"]
kind = "PCIe"
bandwidth = "12 GB/s"  # of 15.75, PCIe 3.0 x16
latency = "1 us"

[[link]]
between = ["p3/host", "tor"]
kind = "Ethernet"
bandwidth = "10 Gb/s"
latency = "15 us"
)";

constexpr std::string_view kP3Large = R"(
# V100 SXM2: 15.7 TFLOP/s float32, 900 GB/s, 16 GB, 80 SMs, six NVLinks of 25 GB/s each way (NVIDIA, Tesla V100 data
# sheet, 2018). Tensor cores take float16 (125 TFLOP/s) and neither TF32 nor bfloat16; half-precision training there
# uses float16, so bf16 stands for it. Network: AWS, EC2 P3 product page. NVLinks between pairs: `nvidia-smi topo -m`
# there.
name = "p3.16xlarge"

[device.v100]
f32 = "15.7 TFLOP/s"
bf16 = "125 TFLOP/s"  # float16 on tensor cores
memory = [{ name = "HBM2", capacity = "16 GB", bandwidth = "900 GB/s" }]
sms = 80
kernels = "volta"
collective_sms = 8

[node.p3]
devices = { v100 = 8 }

[node.p3.switch.host]  # PCIe root, and the network card behind it

[switch.tor]

[[link]]
between = [
  ["p3/v100.0", "p3/v100.1"], ["p3/v100.0", "p3/v100.2"], ["p3/v100.1", "p3/v100.3"], ["p3/v100.2", "p3/v100.6"],
  ["p3/v100.3", "p3/v100.7"], ["p3/v100.4", "p3/v100.5"], ["p3/v100.4", "p3/v100.6"], ["p3/v100.5", "p3/v100.7"],
]
kind = "NVLink"
bandwidth = "25 GB/s"
latency = "600 ns"

[[link]]
between = [
  ["p3/v100.0", "p3/v100.3"], ["p3/v100.0", "p3/v100.4"], ["p3/v100.1", "p3/v100.2"], ["p3/v100.1", "p3/v100.5"],
  ["p3/v100.2", "p3/v100.3"], ["p3/v100.4", "p3/v100.7"], ["p3/v100.5", "p3/v100.6"], ["p3/v100.6", "p3/v100.7"],
]
kind = "NVLink"
bandwidth = "50 GB/s"  # two links
latency = "600 ns"

[[link]]
between = ["p3/v100", "p3/host"]
kind = "PCIe"
bandwidth = "12 GB/s"  # of 15.75, PCIe 3.0 x16
latency = "1 us"

[[link]]
between = ["p3/host", "tor"]
kind = "Ethernet"
bandwidth = "25 Gb/s"
latency = "15 us"
)";

constexpr std::string_view kDgxA100 = R"(
# A100 SXM4 80GB: 19.5 TFLOP/s float32, 156 TF32, 312 bfloat16, 2,039 GB/s, 108 SMs, NVLink 300 GB/s each way (NVIDIA,
# A100 data sheet, 2021). DGX A100: eight HDR network cards of 200 Gb/s (NVIDIA, DGX A100 data sheet, 2021).
name = "dgx-a100"

[device.a100]
f32 = "19.5 TFLOP/s"
tf32 = "156 TFLOP/s"
bf16 = "312 TFLOP/s"
memory = [{ name = "HBM2e", capacity = "80 GB", bandwidth = "2039 GB/s" }]
sms = 108
kernels = "ampere"
collective_sms = 24

[node.dgx]
devices = { a100 = 8 }

[node.dgx.switch.nvswitch]

[switch.leaf]  # one per rail
count = 8

[switch.spine]

[[link]]
between = ["dgx/a100", "dgx/nvswitch"]
kind = "NVLink"
bandwidth = "300 GB/s"
latency = "300 ns"

[[link]]
between = ["dgx/a100", "leaf"]
wiring = "rail"
kind = "InfiniBand"
bandwidth = "200 Gb/s"
latency = "1 us"

[[link]]
between = ["leaf", "spine"]
kind = "InfiniBand"
bandwidth = "25.6 Tb/s"  # as wide as all nodes need
latency = "300 ns"
)";

constexpr std::string_view kDgxH100 = R"(
# H100 SXM5: 67 TFLOP/s float32, 494.7 TF32, 989.4 bfloat16 dense, 3.35 TB/s, 80 GB, 132 SMs, NVLink 450 GB/s each way
# (NVIDIA, H100 data sheet, 2023). DGX H100: eight NDR cards of 400 Gb/s (NVIDIA, DGX H100 data sheet). NVLS: 25 us are
# NCCL's own figure (src/graph/tuning.cc, hwLatencies); the table is sized so that it does not bind below the link. Quantum-2 switches reduce (SHARP): 256 B per entry on the low-latency path;
# their table, round trip, fixed cost and efficiency are assumed.
name = "dgx-h100"

[device.h100]
f32 = "67 TFLOP/s"
tf32 = "494.7 TFLOP/s"
bf16 = "989.4 TFLOP/s"
memory = [{ name = "HBM3", capacity = "80 GB", bandwidth = "3350 GB/s" }]
sms = 132
kernels = "hopper"

[node.dgx]
devices = { h100 = 8 }

[node.dgx.switch.nvswitch]
reduction = "pull"
table = 4096
entry = "128 B"
round_trip = "1 us"
fixed_cost = "25 us"
efficiency = 0.69  # measured: 481 GB/s bus bandwidth (docs/validation-method.md, NCCL)

[switch.leaf]  # one per rail
count = 8
reduction = "push"
table = 1024
entry = "256 B"
round_trip = "4 us"
fixed_cost = "30 us"
efficiency = 0.9

[switch.spine]
reduction = "push"
table = 1024
entry = "256 B"
round_trip = "4 us"
fixed_cost = "30 us"
efficiency = 0.9

[[link]]
between = ["dgx/h100", "dgx/nvswitch"]
kind = "NVLink"
bandwidth = "450 GB/s"
latency = "300 ns"

[[link]]
between = ["dgx/h100", "leaf"]
wiring = "rail"
kind = "InfiniBand"
bandwidth = "400 Gb/s"
latency = "1 us"

[[link]]
between = ["leaf", "spine"]
kind = "InfiniBand"
bandwidth = "51.2 Tb/s"  # as wide as all nodes need
latency = "300 ns"
)";

constexpr std::string_view kDgxH200 = R"(
# H200 SXM: an H100 with 141 GB at 4.8 TB/s (NVIDIA, H200 data sheet, 2023). All else as in dgx-h100, sources included.
name = "dgx-h200"

[device.h200]
f32 = "67 TFLOP/s"
tf32 = "494.7 TFLOP/s"
bf16 = "989.4 TFLOP/s"
memory = [{ name = "HBM3e", capacity = "141 GB", bandwidth = "4800 GB/s" }]
sms = 132
kernels = "hopper"

[node.dgx]
devices = { h200 = 8 }

[node.dgx.switch.nvswitch]
reduction = "pull"
table = 4096
entry = "128 B"
round_trip = "1 us"
fixed_cost = "25 us"
efficiency = 0.69  # measured: 481 GB/s bus bandwidth (docs/validation-method.md, NCCL)

[switch.leaf]  # one per rail
count = 8
reduction = "push"
table = 1024
entry = "256 B"
round_trip = "4 us"
fixed_cost = "30 us"
efficiency = 0.9

[switch.spine]
reduction = "push"
table = 1024
entry = "256 B"
round_trip = "4 us"
fixed_cost = "30 us"
efficiency = 0.9

[[link]]
between = ["dgx/h200", "dgx/nvswitch"]
kind = "NVLink"
bandwidth = "450 GB/s"
latency = "300 ns"

[[link]]
between = ["dgx/h200", "leaf"]
wiring = "rail"
kind = "InfiniBand"
bandwidth = "400 Gb/s"
latency = "1 us"

[[link]]
between = ["leaf", "spine"]
kind = "InfiniBand"
bandwidth = "51.2 Tb/s"  # as wide as all nodes need
latency = "300 ns"
)";

constexpr std::string_view kH200 = R"(
# H200 SXM: an H100 with 141 GB at 4.8 TB/s (NVIDIA, H200 data sheet, 2023).
name = "h200"

[device.h200]
f32 = "67 TFLOP/s"
tf32 = "494.7 TFLOP/s"
bf16 = "989.4 TFLOP/s"
memory = [{ name = "HBM3e", capacity = "141 GB", bandwidth = "4800 GB/s" }]
sms = 132
kernels = "hopper"

[node.host]
devices = { h200 = 1 }

[switch.tor]

[[link]]
between = ["host/h200", "tor"]
kind = "InfiniBand"
bandwidth = "400 Gb/s"
latency = "1 us"
)";

constexpr std::string_view kGb200Nvl72 = R"(
# A rack of 18 trays with four Blackwell GPUs each, all 72 in one NVLink domain; which tray a GPU is in makes no
# difference to NVLink, so a rack is a node here. GPU: 90 TFLOP/s float32, 1250 TF32, 2500 bfloat16 dense, HBM3e of
# 8 TB/s, NVLink of 900 GB/s each way (glennklockwood.com/garden/processors/B200, GB200, after NVIDIA's brief); 186 GB,
# four GPUs and four ConnectX-7 cards a tray (mlcommons/inference_results_v6.1,
# closed/Crusoe/systems/GB200-NVL72_GB200-186GB_aarch64x16_Dynamo.json), 72 GPUs in a rack and a network of 400 Gb/s
# InfiniBand NDR (docs.nvidia.com/base-command-manager, NVLink Switch Integration); 148 SMs as programs report them.
# NVLS: NCCL counts on 40.1 of the 50 GB/s of an NVLink (src/graph/topo.h, SM100_NVLINK_BW) and on 0.74 of that
# (src/graph/tuning.cc, nvlsEfficiency); its other keys are those of dgx-h100. Latencies and switches outside are assumed
# to be those of dgx-h100, too.
name = "gb200-nvl72"

[device.gb200]
f32 = "90 TFLOP/s"
tf32 = "1250 TFLOP/s"
bf16 = "2500 TFLOP/s"
memory = [{ name = "HBM3e", capacity = "186 GB", bandwidth = "8 TB/s" }]
sms = 148

[node.rack]
devices = { gb200 = 72 }

[node.rack.switch.nvswitch]
reduction = "pull"
table = 8192
entry = "128 B"
round_trip = "1 us"
fixed_cost = "25 us"
efficiency = 0.593  # 0.74 of 18 x 40.1 GB/s, over 900 GB/s

[switch.leaf]  # one per GPU of a rack
count = 72

[switch.spine]

[[link]]
between = ["rack/gb200", "rack/nvswitch"]
kind = "NVLink"
bandwidth = "900 GB/s"
latency = "300 ns"

[[link]]
between = ["rack/gb200", "leaf"]
wiring = "rail"
kind = "InfiniBand"
bandwidth = "400 Gb/s"
latency = "1 us"

[[link]]
between = ["leaf", "spine"]
kind = "InfiniBand"
bandwidth = "51.2 Tb/s"  # as wide as all racks need
latency = "300 ns"
)";

constexpr std::string_view kCpuHosts = R"(
# Two sockets of 32 cores at 2.8 GHz, AVX-512 with two units: 32 * 2.8e9 * 64 FLOP per socket; eight channels of
# DDR4-3200 each (204.8 GB/s) at about 80 %. AMX-like bfloat16 is not assumed.
name = "cpu-hosts"

[device.cpu]
target = "cpu"
f32 = "5.7344 TFLOP/s"
memory = [{ name = "DDR4", capacity = "256 GB", bandwidth = "160 GB/s" }]
sms = 32
kernels = "cpu"
collective_sms = 1

[node.host]
count = 2
devices = { cpu = 1 }

[switch.tor]

[[link]]
between = ["host/cpu", "tor"]
kind = "Ethernet"
bandwidth = "25 Gb/s"
latency = "10 us"
)";

constexpr std::string_view kIdeal = R"(
# Devices between which everything takes no time, for schedules as textbooks have them.
name = "ideal"
network = "ideal"

[device.unit]
f32 = "100 TFLOP/s"
bf16 = "1000 TFLOP/s"
memory = [{ capacity = "1 TB", bandwidth = "4 TB/s" }]
sms = 100

[node.unit]
count = 8
devices = { unit = 1 }

[switch.air]

[[link]]
between = ["unit/unit", "air"]
kind = "NVLink"
bandwidth = "1 TB/s"  # not counted
latency = "0 ns"
)";

const std::array<std::pair<std::string_view, std::string_view>, 11> kPresets = {{{"p3.8xlarge", kP3Small},
                                                                                 {"p3.16xlarge", kP3Large},
                                                                                 {"dgx-a100", kDgxA100},
                                                                                 {"dgx-h100", kDgxH100},
                                                                                 {"dgx-h200", kDgxH200},
                                                                                 {"h200", kH200},
                                                                                 {"gb200-nvl72", kGb200Nvl72},
                                                                                 {"tpu-v4", tpu_v4_text()},
                                                                                 {"tpu-v5p", tpu_v5p_text()},
                                                                                 {"cpu-hosts", kCpuHosts},
                                                                                 {"ideal", kIdeal}}};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : kPresets) names.emplace_back(name);
  return names;
}

std::string_view preset_text(std::string_view name) {
  for (const auto& [known, text] : kPresets)
    if (known == name) return text;
  return {};
}

}  // namespace overtake
