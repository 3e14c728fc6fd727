#include "report/device_memory.h"

namespace overtake {

std::vector<MemoryPeak> memory_peaks(const Plan& plan, const Trace& trace) {
  std::vector<MemoryPeak> peaks;
  for (const std::vector<MemorySample>& samples : live_memory(plan, trace)) {
    MemoryPeak peak;
    for (const MemorySample& s : samples)
      if (const std::int64_t bytes = total_bytes(s); bytes > peak.bytes) peak = {bytes, s.bytes};
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace overtake
