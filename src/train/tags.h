#pragma once
// Tags of transfers that belong to no plan: far above those of plans, and each use has its own.

#include <cstdint>

namespace overtake {

inline constexpr std::uint64_t kPlanningTag = std::uint64_t{1} << 60;  // what rank 0 decides for all
inline constexpr std::uint64_t kLinkTag = kPlanningTag + 16;           // how fast the link is
inline constexpr std::uint64_t kSiteTag = kPlanningTag + 32;           // where each rank runs
inline constexpr std::uint64_t kTrialTag = kPlanningTag + 48;          // steps of a plan that is tried
inline constexpr std::uint64_t kMetricsTag = std::uint64_t{1} << 61;
inline constexpr std::uint64_t kParameterTag = std::uint64_t{1} << 62;  // and the parameter's number

// Before whatever else waits.
inline constexpr int kUrgent = 1000;

}  // namespace overtake
