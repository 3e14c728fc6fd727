// Named pipeline schedules against their published forms, each with its conditions, for p = 2..16 devices and m = 1..64
// micro-batches.

#include <gtest/gtest.h>

#include <array>

#include "pipeline_problems.h"

namespace overtake {
namespace {

constexpr std::array<Times, 8> kTimes{
    {{1, 1, 1}, {2, 3, 2}, {3, 4, 2}, {5, 7, 3}, {7, 5, 3}, {1, 2, 4}, {4, 1, 2}, {10, 11, 9}}};

// Calls check(p, m, times, where) for p = 2..16 and m = 1..64.
void for_all(auto check) {
  for (const Times t : kTimes)
    for (std::uint32_t p = 2; p <= 16; ++p)
      for (std::uint32_t m = 1; m <= 64; ++m) {
        check(p, m, t);
        if (testing::Test::HasFailure())
          FAIL() << "p " << p << " m " << m << " F " << t.f << " B " << t.b << " W " << t.w;
      }
}

// (p - 1)(F + B + W) of bubble, for all m and all times.
TEST(PipelineForms, GPipe) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    const PipelineTimes times = times_of("gpipe", alike(p, m, t));
    EXPECT_EQ(times.makespan_ns, (m + p - 1) * t.sum());
    for (const DeviceTimes& d : times.devices) {
      EXPECT_EQ(d.busy_ns, m * t.sum());
      EXPECT_EQ(d.bubble_ns, (p - 1) * t.sum());
      EXPECT_EQ(d.peak_micro_batches, m);
    }
  });
}

// The same bubble; device d keeps p - d micro-batches.
TEST(PipelineForms, OneForwardOneBackward) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    const PipelineTimes times = times_of("1f1b", alike(p, m, t));
    EXPECT_EQ(times.makespan_ns, (m + p - 1) * t.sum());
    for (std::uint32_t d = 0; d < p; ++d) EXPECT_EQ(times.devices[d].peak_micro_batches, std::min(m, p - d));
  });
}

// The bubble divided by v, if m is a multiple of p. The first device keeps vp + p - 1 chunks' activations.
TEST(PipelineForms, Interleaved) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    const std::uint32_t v = 2 + p % 3;
    const PipelineProblem problem = alike(p, m, t, v);
    const PipelineTimes times = times_of("interleaved", problem, {.chunks = v, .group = 1});
    if (m % p == 0) {
      EXPECT_EQ(times.makespan_ns, v * m * t.sum() + (p - 1) * t.sum());
      EXPECT_EQ(peak_bytes(times), std::min(m * v, v * p + p - 1));
    } else {
      // As if the last group were full, at worst; never less than the work and the start of the last device.
      const std::uint32_t full = (m + p - 1) / p * p;
      EXPECT_LE(times.makespan_ns, v * full * t.sum() + (p - 1) * t.sum());
      EXPECT_GE(times.makespan_ns, v * m * t.sum() + (p - 1) * t.f);
      EXPECT_LE(peak_bytes(times), std::min(m * v, v * p + p - 1));
    }
  });
}

// (p - 1)(F + B - W) if m >= p and W is the shortest. Every device keeps p micro-batches, those with a weight gradient
// to come counted.
TEST(PipelineForms, ZeroBubbleH1) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    const PipelineTimes times = times_of("zb-h1", alike(p, m, t));
    const std::int64_t form = m * t.sum() + (p - 1) * (t.f + t.b - t.w);
    if (m >= p && t.w <= std::min(t.f, t.b)) {
      EXPECT_EQ(times.makespan_ns, form);
    }
    EXPECT_GE(times.makespan_ns, form);
    EXPECT_LE(times.makespan_ns, (m + p - 1) * t.sum());
    for (const DeviceTimes& d : times.devices) EXPECT_EQ(d.peak_micro_batches, std::min(m, p));
  });
}

// (p - 1)(F + B - 2W) if m >= 2p - 1, W <= F and 2W <= F + B, counted from a device's first start to its last end:
// steps follow one another without a barrier. With one, the last device starts (p - 1)F late.
TEST(PipelineForms, ZeroBubbleH2) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    const PipelineTimes times = times_of("zb-h2", alike(p, m, t));
    const std::int64_t form = m * t.sum() + (p - 1) * (t.f + t.b - 2 * t.w);
    if (m >= 2 * p - 1 && t.w <= t.f && 2 * t.w <= t.f + t.b) {
      EXPECT_EQ(times.span_ns, form);
    }
    if (m >= 2 * p - 1 && t.f == t.b && t.b == t.w) {
      EXPECT_EQ(times.makespan_ns, m * t.sum() + (p - 1) * t.f);
    }
    EXPECT_GE(times.span_ns, std::max<std::int64_t>(form, m * t.sum()));
    for (const DeviceTimes& d : times.devices) EXPECT_EQ(d.peak_micro_batches, std::min(m, 2 * p - 1));
  });
}

// No bubble if F = B = W and m >= 2p, counted as ZB-H2's; memory of 1F1B on all devices.
TEST(PipelineForms, ZeroBubbleV) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    const PipelineTimes times = times_of("zb-v", alike(p, m, t, 2));
    if (m >= 2 * p && t.f == t.b && t.b == t.w) {
      EXPECT_EQ(times.span_ns, 2 * m * t.sum());
      EXPECT_EQ(times.makespan_ns, 2 * m * t.sum() + (p - 1) * t.f);
    }
    EXPECT_GE(times.span_ns, 2 * m * t.sum());
    EXPECT_EQ(peak_bytes(times), 2 * std::min(m, p));
  });
}

// (p/2 - 1)(FB + B' - 3W) with B' = B + W and, where nothing overlaps, FB = F + B'. For even m >= 2p, F <= B and W <=
// B. Both directions together keep p + 1 micro-batches, the device having two chunks, and weights twice.
TEST(PipelineForms, DualPipe) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    if (p % 2 != 0 || m < 2 * p) return;
    PipelineProblem problem = alike(p, m, t);
    for (BlockCosts& c : problem.blocks) c.weight_bytes = 1000;
    const PipelineTimes times = times_of("dualpipe", problem);
    const std::int64_t both = t.b + t.w;
    if (m % 2 == 0) {
      const std::int64_t form = m * t.sum() + (p / 2 - 1) * (t.f + 2 * both - 3 * t.w);
      if (t.f <= t.b && t.w <= t.b) {
        EXPECT_EQ(times.makespan_ns, form);
      }
      EXPECT_GE(times.makespan_ns, form);
      for (const DeviceTimes& d : times.devices) EXPECT_EQ(d.peak_micro_batches, p + 1);
    }
    for (const DeviceTimes& d : times.devices) EXPECT_EQ(d.peak_bytes - d.peak_activation_bytes, 2000);
  });
}

// The same with p devices for 2p chunks, any m >= 2p.
TEST(PipelineForms, DualPipeV) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    if (m < 2 * p) return;
    const PipelineTimes times = times_of("dualpipe-v", alike(p, m, t, 2));
    const std::int64_t form = 2 * m * t.sum() + (p - 1) * (t.f + 2 * (t.b + t.w) - 3 * t.w);
    if (t.f <= t.b && t.w <= t.b) {
      EXPECT_EQ(times.makespan_ns, form);
    }
    EXPECT_GE(times.makespan_ns, form);
    for (const DeviceTimes& d : times.devices) EXPECT_EQ(d.peak_activation_bytes, 2 * p + 1);
  });
}

// Ours keep what 1F1B's first device keeps, and are between the bound for one device and 1F1B.
TEST(PipelineForms, FastForwardAndModulo) {
  for_all([](std::uint32_t p, std::uint32_t m, Times t) {
    const PipelineTimes times = times_of("fast-forward", alike(p, m, t));
    EXPECT_GE(times.makespan_ns, m * t.sum() + (p - 1) * t.f);
    EXPECT_LE(times.makespan_ns, (m + p - 1) * t.sum());
    EXPECT_LE(peak_bytes(times), std::min(m, p));
    if (m % 7 != 0) return;
    const PipelineTimes dealt = times_of("modulo", alike(p, m, t, 2));
    EXPECT_GE(dealt.makespan_ns, 2 * m * t.sum() + (p - 1) * t.f);
    EXPECT_LE(peak_bytes(dealt), 2 * std::min(m, p));
  });
}

}  // namespace
}  // namespace overtake
