#pragma once
// A machine file that the tests of reading it share; the line numbers of expected messages are of this text.

#include <string>

namespace overtake::tests {

inline const std::string kTinyMachine = R"(# two nodes
name = "tiny"
[device.gpu]
f32 = "1.5 TFLOP/s"   # a comment
bf16 = "3 TFLOP/s"
memory = [{ name = "HBM", capacity = "16 GiB", bandwidth = "900 GB/s" }]
sms = 80
[node.box]
count = 2
devices = { gpu = 2 }
[node.box.switch.inner]
[switch.tor]
reduction = "push"
table = 8192
entry = "128 B"
round_trip = "2.5 us"
fixed_cost = "10 us"
efficiency = 0.9
[[link]]
between = ["box/gpu", "box/inner"]
kind = "NVLink"
bandwidth = "25 GB/s"
latency = "700 ns"
[[link]]
between = ["box/inner", "tor"]
kind = "Ethernet"
bandwidth = "25 Gb/s"
latency = "1.5 us"
oversubscription = 2
)";

}  // namespace overtake::tests
