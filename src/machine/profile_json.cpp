// Profiles as JSON, for files.

#include <algorithm>

#include "base/json.h"
#include "machine/profile.h"

namespace overtake {
namespace {

constexpr int kProfileFormat = 3;
// Nanoseconds, eleven days: sums over thousands of tasks stay within 64 bits.
constexpr std::int64_t kMost = 1'000'000'000'000'000;

}  // namespace

std::string save_json(const Profile& profile, const std::string& key) {
  return nlohmann::json{
      {"format", kProfileFormat},          {"key", key},           {"in_order_ns", profile.in_order_ns},
      {"alone_ns", profile.alone_ns},      {"load", profile.load}, {"joint_ns", profile.joint_ns},
      {"cut_after_s", profile.cut_after_s}}
      .dump();
}

std::optional<Profile> load_profile_json(std::string_view text, const std::string& key, std::size_t tasks) {
  const nlohmann::json in = parse_json(text);
  Profile profile;
  if (checked<int>(in.at("format")) != kProfileFormat || in.at("key").get<std::string>() != key) return {};
  profile.in_order_ns = checked<std::int64_t>(in.at("in_order_ns"));
  profile.alone_ns = checked<std::vector<std::int64_t>>(in.at("alone_ns"));
  profile.load = checked<std::vector<double>>(in.at("load"));
  profile.joint_ns = checked<std::vector<std::int64_t>>(in.at("joint_ns"));
  profile.cut_after_s = in.value("cut_after_s", 0.0);
  const auto is_bad = [](auto x) { return !(x >= 0 && x <= static_cast<decltype(x)>(kMost)); };
  if (!(profile.cut_after_s >= 0) || profile.alone_ns.size() != tasks || profile.load.size() != tasks ||
      (!profile.joint_ns.empty() && profile.joint_ns.size() != tasks) ||
      std::ranges::any_of(profile.alone_ns, is_bad) || std::ranges::any_of(profile.load, is_bad))
    return {};
  return profile;
}

}  // namespace overtake
